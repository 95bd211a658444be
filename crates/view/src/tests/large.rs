//! Runs of 10^5 turns and of 10^5 episodes: the pages stay quick, and their memory small.

use super::pages::{Visit, home};
use super::*;

/// Number of steps, and of episodes in each.
const STEPS: u64 = 100;
const EPISODES: u32 = 1000;

/// Writes the run.
fn large(path: &Path) {
    let mut written = Written::new(path);
    for step in 1..=STEPS {
        let episodes: Vec<Episode> = (0..EPISODES)
            .map(|n| {
                let mut one = searched(step, n % 4);
                one.task.id = format!("train-{}", n / 4);
                one
            })
            .collect();
        let places = write_step(&mut written.dir, step, &episodes);
        written.index(TRAIN, step, &episodes, &places);
        let metrics = maverl::metrics::rollout(&episodes);
        written.journal.append(step, &metrics, &Metrics::default(), 0.0).unwrap();
    }
}

/// Returns the resident memory of this process in MiB, where it is known.
pub(super) fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? >> 10)
}

#[test]
#[ignore = "writes 10^5 episodes; prints times"]
fn a_run_of_100_000_episodes_is_listed_opened_and_searched() {
    let home = tempfile::tempdir().unwrap();
    let start = Instant::now();
    large(&home.path().join("a"));
    println!("written in {:.1} s", start.elapsed().as_secs_f64());
    let before = resident();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let timed = |what: &str, path: &str| {
        let start = Instant::now();
        let (status, value) = ask(&viewer, path);
        assert_eq!(status, 200, "{path}");
        println!("{what}: {:.3} s", start.elapsed().as_secs_f64());
        value
    };
    let overview = timed("open", "api/runs/0");
    assert_eq!(overview["episodes"], STEPS * u64::from(EPISODES));
    let rows = timed("first page", "api/runs/0/episodes?limit=50");
    assert_eq!(rows["rows"].as_array().unwrap().len(), 50);
    timed("page sorted by reward", "api/runs/0/episodes?sort=reward&seat=search/verifier&limit=50");
    timed("one episode", "api/runs/0/episodes/train/57/813");
    let found = timed("search in one step", "api/runs/0/search?q=largest+city&step=57");
    let hits = found.as_array().unwrap().iter().filter(|line| line["row"].is_object()).count();
    assert_eq!(hits, 500, "the first 500 are shown");
    timed("search for what is nowhere, in 5 steps", "api/runs/0/search?q=Quito+or+Rome&step=1..5");
    if let (Some(before), Some(after)) = (before, resident()) {
        println!("memory: {} MiB more", after.saturating_sub(before));
        assert!(after.saturating_sub(before) < 200, "{before} to {after} MiB");
    }
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let start = Instant::now();
    at.go("r/0/episodes?stage=train&offset=99950");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length > 0");
    println!("last page in the browser: {:.3} s", start.elapsed().as_secs_f64());
    let rows = at.browser.value("document.querySelectorAll('tbody tr.row').length");
    assert!(rows.as_u64().is_some_and(|rows| rows <= 80), "{rows}");
    at.browser.assert_quiet();
}

/// Notes when a page first has a heading, in milliseconds after it was asked for.
const FIRST_VIEW: &str = "new MutationObserver(() => {
    if (window.firstView === undefined && document.querySelector('#main h1') !== null) {
        window.firstView = performance.now();
    }
}).observe(document, { subtree: true, childList: true })";

/// Maximum time until a page shows something, in milliseconds: what a reader takes for at once.
const AT_ONCE: f64 = 300.0;

#[test]
#[ignore = "a guard of speed; prints times"]
fn the_first_view_of_each_page_is_there_at_once() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let source = json!({ "source": FIRST_VIEW });
    at.browser.call("Page.addScriptToEvaluateOnNewDocument", source);
    for page in
        ["", "r/0", "r/0/step?step=2", "r/0/episodes", "r/0/episode/train/2/0", "r/0/groups"]
    {
        let times: Vec<f64> = (0..5)
            .map(|_| {
                at.go(page);
                at.browser.value("window.firstView").as_f64().unwrap()
            })
            .collect();
        // What else the machine does makes some of them longer.
        let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
        println!("#/{page}: {fastest:.0} ms");
        assert!(fastest < AT_ONCE, "#/{page}: {times:?}");
    }
}

#[test]
fn a_run_of_100_000_turns_shows_its_first_rows_and_bounded_pages() {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    for step in 1..=20 {
        let of = |n: u32| episode(&format!("train-{}", n / 4), n % 4, n.is_multiple_of(3), 100);
        written.played(step, &(0..50).map(of).collect::<Vec<Episode>>());
    }
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let start = Instant::now();
    at.go("r/0/episodes");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length > 0");
    println!("first rows of 10^5 turns: {:.3} s", start.elapsed().as_secs_f64());
    let rows = "document.querySelectorAll('tbody tr.row').length <= 80";
    assert_eq!(at.browser.value(rows), true);
    at.browser.wait("document.body.textContent.includes('of 1,000')");
    at.go("r/0/episodes?stage=train&offset=960");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length > 0");
    assert_eq!(at.browser.value(rows), true);
    at.go("r/0/episode/train/20/49");
    at.browser.wait("document.querySelector('[data-turn=\"0\"]') !== null");
    assert_eq!(at.browser.value("document.querySelectorAll('.turn').length < 100"), true);
    at.browser.assert_quiet();
}
