//! Every number of the charts and of the list of episodes, computed again from the files of the run; every control by
//! keys alone; texts that are no text.

use super::browser::Browser;
use super::pages::Visit;
use super::*;

/// Returns a number as the tables of charts show it.
fn shown(browser: &mut Browser, cells: &str) -> Vec<Vec<String>> {
    let found = browser.value(cells);
    serde_json::from_value(found).unwrap()
}

#[test]
fn every_number_of_every_metric_on_its_page_is_that_of_the_files() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let mut columns: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    for file in ["metrics.jsonl", "timing.jsonl"] {
        let text = fs::read_to_string(home.path().join("a").join(file)).unwrap();
        for line in text.lines() {
            let row: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
            let step = row["step"].as_u64().unwrap();
            for (name, value) in row.iter().filter(|(name, _)| *name != "step") {
                let Some(value) = value.as_f64() else { continue };
                columns.entry(name.clone()).or_default().push((step, value));
            }
        }
    }
    at.go("r/0/metrics");
    at.browser.wait("document.querySelectorAll('figure.chart').length > 10");
    at.browser.value(
        "[...document.querySelectorAll('#main button')].find((b) => b.textContent.startsWith('show all'))?.click()",
    );
    at.browser.value("[...document.querySelectorAll('figure.chart button')].filter((b) => b.textContent === 'table').forEach((b) => b.click())");
    let tables = shown(
        &mut at.browser,
        "[...document.querySelectorAll('figure.chart')].map((f) => [f.dataset.title, ...[...f.querySelectorAll('.chart-table tbody tr')].flatMap((r) => [...r.children].map((c) => c.textContent))])",
    );
    assert_eq!(tables.len(), columns.len(), "a chart for each name");
    let mut seen = 0;
    for table in tables {
        let expected = &columns[&table[0]];
        let rows = table[1..].chunks(2).filter(|cells| cells[1] != "–");
        assert_eq!(rows.clone().count(), expected.len(), "{table:?}");
        for (cells, (step, value)) in rows.zip(expected) {
            assert_eq!(cells[0], step.to_string(), "{table:?}");
            let number: f64 = cells[1].replace('−', "-").parse().unwrap();
            assert!((number - value).abs() <= 1e-9 * value.abs().max(1.0), "{table:?}: {value}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
    at.browser.assert_quiet();
}

#[test]
fn every_row_of_the_list_is_that_of_the_file() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let text = fs::read_to_string(home.path().join("a/episodes.jsonl")).unwrap();
    let rows: Vec<EpisodeRow> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for step in 1..=3 {
        at.go(&format!("r/0/episodes?stage=train&step={step}"));
        at.browser.wait("document.querySelectorAll('tbody tr.row').length === 8");
        let lines = shown(
            &mut at.browser,
            "[...document.querySelectorAll('tbody tr.row')].map((r) => [...r.children].map((c) => c.textContent))",
        );
        let its = rows.iter().filter(|row| row.stage == TRAIN && row.step == step);
        for (line, row) in lines.iter().zip(its) {
            let turns: u32 = row.seats.values().map(|counts| counts.0).sum();
            let solved = if row.solved == Some(true) { "yes" } else { "no" };
            assert!(line[1].starts_with(&row.task), "{line:?}");
            let expected = [step.to_string(), row.index.to_string(), solved.to_owned()];
            assert_eq!([line[0].clone(), line[2].clone(), line[3].clone()], expected);
            assert_eq!(line[4], format!("{:.2}", row.score.unwrap()));
            assert_eq!((&line[6], &line[7]), (&turns.to_string(), &row.tokens.to_string()));
            for (seat, counts) in &row.seats {
                let short = seat.agent.rsplit('/').next().unwrap();
                let mean = counts.4 / f64::from(counts.0);
                let text = format!("{short} {mean:.2}").replace("-", "−");
                assert!(line[5].contains(&text), "{text}: {line:?}");
            }
        }
    }
    at.browser.assert_quiet();
}

/// Controls of a page by the Tab key.
struct Reached {
    all: u64,
    /// Those that it does not reach.
    missed: Vec<String>,
    /// Those that do not show that they have the focus.
    unmarked: Vec<String>,
}

/// Visits the controls of the page by the Tab key; `None` if some were replaced meanwhile.
fn reached(browser: &mut Browser) -> Option<Reached> {
    let all = browser.value(
        "(window.seen = new Set(), window.all = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex]')] \
         .filter((e) => e.tabIndex >= 0 && !e.disabled && e.checkVisibility()), document.activeElement.blur(), window.all.length)",
    );
    let all = all.as_u64().unwrap();
    for _ in 0..all + 5 {
        browser.press("Tab");
        browser.value("window.seen.add(document.activeElement)");
    }
    let missed = browser.value(
        "window.all.filter((e) => !window.seen.has(e)).map((e) => e.outerHTML.slice(0, 80))",
    );
    let unmarked = browser.value(
        "[...window.seen].filter((e) => e !== document.body && window.all.includes(e)).filter((e) => { e.focus({ focusVisible: true }); \
         const s = getComputedStyle(e); return s.outlineStyle === 'none' && s.boxShadow === 'none'; }).map((e) => e.outerHTML.slice(0, 80))",
    );
    let texts = |found| serde_json::from_value(found).unwrap();
    let rests = browser.value("window.all.every((e) => e.isConnected)") == true;
    rests.then(|| Reached { all, missed: texts(missed), unmarked: texts(unmarked) })
}

#[test]
fn every_control_is_reached_and_seen_by_keys_alone() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let Some(mut at) = Visit::new(home.path(), 1200, 800) else { return };
    let pages = [
        "",
        "r/0",
        "r/0/episodes?stage=train&step=2",
        "r/0/episode/train/2/0",
        "r/0/groups?step=2",
        "r/0/group/2/3",
        "r/0/tokens/train/2/0/0",
        "r/0/timeline",
        "r/0/step?step=3",
        "r/0/config",
    ];
    for page in pages {
        at.go(page);
        // The first event replaces elements: what is replaced meanwhile is looked at anew.
        let found = (0..8).find_map(|_| reached(&mut at.browser)).expect("the page comes to rest");
        assert!(found.all > 3, "{page}");
        assert_eq!(found.missed, [""; 0], "{page}: not reached");
        assert_eq!(found.unmarked, [""; 0], "{page}: the focus is not seen");
    }
    // From the list of runs to the tokens of a turn without a pointer.
    at.go("");
    for (key, until) in [
        ("j", "document.activeElement.classList.contains('open')"),
        ("Enter", "location.hash.startsWith('#/r/a')"),
    ] {
        at.browser.press(key);
        at.browser.wait(until);
    }
    at.go("r/0/episodes?stage=train&step=2");
    at.browser.wait("document.querySelectorAll('tbody tr.row').length === 8");
    for (key, until) in [
        ("j", "document.activeElement.classList.contains('open')"),
        ("Enter", "document.querySelector('.lanes') !== null"),
        ("t", "document.querySelector('[role=listbox]') !== null"),
    ] {
        at.browser.press(key);
        at.browser.wait(until);
    }
    at.browser.assert_quiet();
}

#[test]
fn a_lone_surrogate_in_a_file_is_refused_with_its_place_and_nothing_else_breaks() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let file = home.path().join("a/rollouts/step-000001.jsonl.zst");
    let text = zstd::decode_all(&fs::read(&file).unwrap()[..]).unwrap();
    let text = String::from_utf8(text).unwrap();
    // Of equal length, so that the places of the other episodes stay.
    let text = text.replacen("<search>capital", "<search>\\ud800x", 1);
    let end = text.match_indices("{\"episode\":").nth(4).unwrap().0;
    let packed = |text: &str| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    fs::write(&file, packed(&text[..end])).unwrap();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (status, refusal) = ask(&viewer, "api/runs/0/episodes/train/1/0");
    assert_eq!(status, 500, "{refusal}");
    assert!(refusal["error"].as_str().unwrap().contains("hex escape"), "{refusal}");
    for n in 1..4 {
        assert_eq!(ask(&viewer, &format!("api/runs/0/episodes/train/1/{n}")).0, 200);
    }
    assert_eq!(ask(&viewer, "api/runs/0/episodes/train/2/0").0, 200);
    let _searching = searching();
    assert_eq!(ask(&viewer, "api/runs/0/search?q=capital").0, 200);
}
