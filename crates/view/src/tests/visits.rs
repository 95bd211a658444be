//! Further visits of a browser: old runs, live runs, shared addresses, hostile texts, and the numbers of the tables.

use super::pages::{Visit, Weighed, home};
use super::*;
use maverl::eval::paired_interval;

/// Returns a number as the pages write it: a tie is rounded away from 0.
pub(super) fn js(value: f64, digits: usize) -> String {
    let exact = format!("{:.80}", value.abs());
    let (_, decimals) = exact.split_once('.').unwrap();
    let tie = decimals[digits..].trim_end_matches('0') == "5";
    let up = if tie { 1e-9 * value.signum() } else { 0.0 };
    let text = format!("{:.digits$}", value + up);
    let zero = text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.');
    if zero { text.trim_start_matches('-').to_owned() } else { text.replace('-', "−") }
}

/// Returns a number with its sign as the pages write it.
pub(super) fn signed(value: f64) -> String {
    let text = js(value, 3);
    if value >= 0.0 { format!("+{text}") } else { text }
}

/// Returns the texts of the cells of the rows of a selector.
fn cells(at: &mut Visit, rows: &str) -> Vec<Vec<String>> {
    let rows = json!(rows);
    let found = at.browser.value(&format!(
        "[...document.querySelectorAll({rows})].map((r) => [...r.children].map((c) => c.textContent))"
    ));
    serde_json::from_value(found).unwrap()
}

#[test]
fn pages_of_an_old_run_say_what_it_lacks_and_nothing_breaks() {
    let home = home();
    let path = home.path().join("a");
    for file in ["episodes.jsonl", "spans.jsonl", "plan.json", "warnings.jsonl"] {
        let _ = fs::remove_file(path.join(file));
    }
    for dir in ["samples", "clock", "tokenizers"] {
        fs::remove_dir_all(path.join(dir)).unwrap();
    }
    for name in ["before", "after"] {
        let file = path.join(format!("evaluations/{name}.json"));
        let mut report: Value = maverl::run_dir::disk::read_json(&file).unwrap();
        for part in ["sampled", "greedy"] {
            report[part].as_object_mut().unwrap().remove("tasks");
        }
        fs::write(file, report.to_string()).unwrap();
    }
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let says = [
        ("", "complete"),
        ("r/0", "gain +0.500"),
        ("r/0/step?step=3", "Agents"),
        ("r/0/episodes?stage=train&step=2", "8 of 8"),
        ("r/0/episode/train/2/0", "not trained on: there is no record of samples"),
        ("r/0/tokens/train/2/0/0", "The run has no tokenizer of this policy"),
        ("r/0/groups?step=2", "the run has no record of the samples of this step"),
        ("r/0/group/2/0", "the run has no record of the samples of this step"),
        ("r/0/timeline", "no times"),
        ("r/0/config", "Provenance"),
        ("r/0/metrics", "metrics"),
        ("beside?a=0/train/2/4&b=0/train/2/5", "They part at turn 0"),
    ];
    fs::write(path.join("summary.json"), "{\"complete\":true,\"steps\":4}").unwrap();
    at.go("r/0");
    at.browser.wait("!document.querySelector('#main').textContent.includes('making the list')");
    for (page, text) in says {
        at.go(page);
        at.browser.wait(&format!(
            "document.querySelector('#main').textContent.includes({})",
            json!(text)
        ));
    }
    // The browser itself reports what the server does not have.
    at.browser.complaints.retain(|complaint| !complaint.contains("404"));
    at.browser.assert_quiet();
}

#[test]
fn a_step_is_on_the_page_soon_after_it_was_written_and_so_is_the_end_of_the_run() {
    let home = tempfile::tempdir().unwrap();
    let mut written = Written::new(&home.path().join("a"));
    written.step(1);
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("r/0");
    at.browser.value("window.loaded = 'once'");
    let state = "document.querySelector('#main .line').textContent";
    at.browser.wait(&format!("{state}.includes('step 1 of 4') && {state}.includes('stopped')"));
    for step in 2..=4 {
        written.step(step);
        let start = Instant::now();
        at.browser.wait(&format!("{state}.includes('step {step} of 4')"));
        println!("step {step}: on the page after {:.2} s", start.elapsed().as_secs_f64());
    }
    let progress = home.path().join("a/progress.json");
    let beat = |beat: u64| {
        let beat = json!({ "beat": beat, "step": 4, "steps": 4, "phase": "evaluating", "done": 7, "of": 16, "unit": "episodes", "since": 0.0 });
        fs::write(&progress, beat.to_string()).unwrap();
    };
    beat(1);
    at.browser.wait(&format!("{state}.includes('looking')"));
    beat(2);
    at.browser.wait(&format!(
        "{state}.includes('running') && {state}.includes('evaluating: 7 of 16 episodes')"
    ));
    fs::remove_file(&progress).unwrap();
    fs::write(
        home.path().join("a/summary.json"),
        "{\"complete\":true,\"steps\":4,\"train_seconds\":12.5}",
    )
    .unwrap();
    at.browser.wait(&format!("{state}.includes('complete') && {state}.includes('trained 12.5 s')"));
    assert_eq!(at.browser.value("window.loaded"), "once");
    at.browser.assert_quiet();
}

#[test]
fn an_address_shows_the_same_in_another_tab() {
    let home = home();
    drop(run(&home.path().join("b")));
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    // A page, what a user does there, and what is true then.
    let set = |of: &str, value: &str| {
        format!(
            "(() => {{ const s = document.querySelector({of:?}); s.value = {value:?}; s.dispatchEvent(new Event('change')); }})()"
        )
    };
    let press = |label: &str| {
        format!(
            "[...document.querySelectorAll('#main button')].find((b) => b.textContent.startsWith({label:?})).click()"
        )
    };
    let rows = |n: u32| format!("document.querySelectorAll('tbody tr.row').length === {n}");
    let steps = [
        ("r/0/episodes?stage=train", set("#main label:nth-of-type(5) select", "1"), rows(8)),
        (
            "r/0/episodes?stage=train&step=2",
            press("tokens"),
            "location.hash.includes('sort=-tokens')".to_owned(),
        ),
        (
            "r/0/groups?step=2",
            press("deviation"),
            "location.hash.includes('sort=deviation')".to_owned(),
        ),
        (
            "r/0/tokens/train/2/0/0",
            set("#main select", "entropy"),
            "location.hash.includes('color=entropy')".to_owned(),
        ),
        (
            "r/0/episode/train/2/0",
            press("time"),
            "document.querySelector('.lane-path')?.textContent.includes(' s')".to_owned(),
        ),
        (
            "compare?runs=0,1",
            set("#main select", "episodes"),
            "location.hash.includes('x=episodes')".to_owned(),
        ),
    ];
    // The texts, the places of all rows, and the colors of tokens; identifiers of charts differ.
    let shown = "document.querySelector('#main').innerText + [...document.querySelectorAll('.token')].map((t) => t.className).join()";
    for (page, action, done) in steps {
        at.go(page);
        at.browser.value(&action);
        at.browser.wait(&done);
        at.browser.rest();
        let text = at.browser.value(shown);
        let url = at.browser.value("location.href");
        at.browser.visit("about:blank");
        at.browser.visit(url.as_str().unwrap());
        at.browser.wait("document.querySelector('#main h1') !== null");
        at.browser.rest();
        assert_eq!(at.browser.value(shown), text, "{page}");
    }
    at.browser.assert_quiet();
}

#[test]
fn hostile_texts_are_texts_on_the_pages_of_a_run_too() {
    let home = tempfile::tempdir().unwrap();
    for (name, solved) in [("a", true), ("b", false)] {
        let mut written = run(&home.path().join(name));
        let of = |n: u32| {
            let mut one = searched(4, n);
            one.task.id = format!("{HOSTILE}{}", n / 4);
            one.task.question = HOSTILE.to_owned();
            one
        };
        written.played(4, &(0..8).map(of).collect::<Vec<Episode>>());
        written.journal.append_warnings(4, &[HOSTILE.to_owned()]).unwrap();
        written.evaluated(
            "after",
            4,
            &[episode(HOSTILE, 0, solved, 1), episode("test-1", 0, true, 1)],
        );
    }
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let pages = [
        "r/0",
        "r/0/episodes?stage=train&step=4",
        "r/0/episodes?stage=train&step=2&q=onerror",
        "r/0/step?step=4",
        "r/0/episode/train/4/0",
        "compare?runs=0,1",
        "beside?a=0/train/4/4&b=0/train/4/5",
    ];
    for page in pages {
        at.go(page);
        at.browser.wait("document.body.textContent.includes('<img src=x onerror=alert(1)>')");
        at.browser.wait(
            "[...document.querySelectorAll('.mark')].some((mark) => mark.textContent === 'U+202E')",
        );
        assert_eq!(
            at.browser.value("document.querySelectorAll('main img, main script').length"),
            0
        );
        let hidden = at.browser.value("/[\\u202e\\u200b\\u001b]/.test(document.body.textContent)");
        assert_eq!(hidden, false, "{page}");
        let wide = at.browser.value("document.documentElement.scrollWidth <= innerWidth");
        assert_eq!(wide, true, "{page} is as wide as the window");
    }
    // A text of a megabyte without a space, by its button.
    at.go("r/0/episode/train/2/5");
    let button = "[...document.querySelectorAll('#main button')].find((b) => b.textContent === 'all 1,048,576 characters')";
    at.browser.wait(&format!("{button} !== undefined"));
    at.browser.value(&format!("{button}.click()"));
    at.browser.wait(
        "document.querySelector('[data-turn=\"2\"] .foreign').textContent.length === 1048576",
    );
    assert_eq!(at.browser.value("document.documentElement.scrollWidth <= innerWidth"), true);
    at.browser.assert_quiet();
}

#[test]
fn the_theme_is_switched_and_kept_and_the_keys_are_listed() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.browser.theme("light");
    at.go("");
    at.browser.wait("document.documentElement.dataset.theme === 'light'");
    let background = "getComputedStyle(document.body).backgroundColor";
    let light = at.browser.value(background);
    at.browser.value("[...document.querySelectorAll('#top button')].find((b) => b.textContent === 'theme').click()");
    at.browser.wait("document.documentElement.dataset.theme === 'dark'");
    assert_ne!(at.browser.value(background), light);
    at.go("r/0");
    at.browser.wait("document.documentElement.dataset.theme === 'dark'");
    at.browser.press("?");
    at.browser.wait("document.querySelector('dialog[open]') !== null");
    let keys = at.browser.text("dialog");
    for key in ["j k", "[ ]", "group of the episode", "tokens of the turn"] {
        assert!(keys.contains(key), "{key}: {keys}");
    }
    // Keys of the page do nothing while the dialog is open.
    at.browser.press("?");
    assert_eq!(at.browser.value("document.querySelectorAll('dialog').length"), 1);
    at.browser.value("document.querySelector('dialog form button').click()");
    at.browser.wait("document.querySelector('dialog') === null");
    at.browser.assert_quiet();
}

#[test]
fn the_numbers_of_the_tables_are_those_of_the_files() {
    let home = home();
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    at.go("");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 1");
    let row = cells(&mut at, "tbody tr.row").remove(0);
    assert_eq!(row[1..7].join("|"), "a|! stopped|step 3 of 4|0.250|0.750|0");
    // The gain: each task before and after.
    let path = home.path().join("a/evaluations");
    let shares = |name: &str| -> BTreeMap<String, f64> {
        let report: Value = maverl::run_dir::disk::read_json(&path.join(name)).unwrap();
        let tasks = report["sampled"]["tasks"].as_array().unwrap().iter();
        tasks
            .map(|of| {
                (
                    of["id"].to_string(),
                    of["solved"].as_f64().unwrap() / of["episodes"].as_f64().unwrap(),
                )
            })
            .collect()
    };
    let (before, after) = (shares("before.json"), shares("after.json"));
    let gain =
        paired_interval(&before.iter().map(|(task, of)| after[task] - of).collect::<Vec<_>>());
    at.go("r/0");
    at.browser.wait("document.querySelectorAll('[data-team]').length === 3");
    let text = at.browser.text("#main");
    let expected =
        format!("gain {} (95 %: {} to {})", signed(gain.mean), signed(gain.low), signed(gain.high));
    assert!(text.contains(&expected), "{expected}: {text}");
    // The agents: the last row of the metrics.
    let metrics = fs::read_to_string(home.path().join("a/metrics.jsonl")).unwrap();
    let last: Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    let rows = cells(&mut at, "[data-agent]");
    assert_eq!(rows.len(), 3);
    for row in rows {
        let of = |name: &str| last[format!("rollout/{}/{name}", row[0])].as_f64().unwrap();
        let expected = [
            js(of("reward_mean"), 3),
            format!("{} %", js(100.0 * of("reply_error_rate"), 1)),
            format!("{} %", js(100.0 * of("truncated_rate"), 1)),
            of("turns").to_string(),
        ];
        let shown: Vec<&str> = row[1..5].iter().map(|cell| cell.trim()).collect();
        assert_eq!(shown, expected, "{row:?}");
    }
    // Groups: the records of the step.
    let episodes: Vec<Episode> = (0..8).map(|n| searched(2, n)).collect();
    let of_step = samples(&episodes);
    at.go("r/0/groups?step=2");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 6");
    let weighed = |id: usize| Weighed::new(&episodes, &of_step, id);
    let whole: f64 = (0..6).map(|id| weighed(id).weight).sum();
    for row in cells(&mut at, "tbody tr.row") {
        let its = |of: &&GroupRecord| {
            of.task == row[0] && of.seat.as_ref().is_some_and(|seat| seat.to_string() == row[1])
        };
        let group = of_step.groups.iter().find(its).unwrap();
        let Weighed { weight, sum, .. } = weighed(group.id);
        let expected = [
            group.size.to_string(),
            js(group.mean, 3),
            js(group.deviation, 3),
            js(sum, 2),
            js(weight / of_step.of_group(group.id).count() as f64, 3),
            js(weight, 2),
            format!("{} %", js(100.0 * weight / whole, 1)),
        ];
        assert_eq!(row[2..9], expected, "{row:?}");
    }
    // Cards of an episode: rewards of the episode, advantages of the samples.
    for n in [0, 5] {
        let one = searched(2, n);
        at.go(&format!("r/0/episode/train/2/{n}"));
        at.browser.wait("document.querySelectorAll('[data-turn]').length === 3");
        for (i, turn) in one.turns.iter().enumerate() {
            let card = at.browser.text(&format!("[data-turn='{i}']"));
            let sample = of_step.samples.iter().find(|of| (of.episode, of.turn) == (n as usize, i));
            let tokens = turn.tokens.as_ref().unwrap();
            let sum: f64 = tokens.logprobs.iter().map(|of| f64::from(*of)).sum();
            for expected in [
                format!("reward {}", js(one.turn_reward(i).unwrap(), 3)),
                format!("advantage {}", signed(sample.unwrap().advantage)),
                format!("log-prob {}", js(sum, 2)),
            ] {
                assert!(card.contains(&expected), "{expected}: {card:.400}");
            }
        }
    }
    at.browser.assert_quiet();
}
