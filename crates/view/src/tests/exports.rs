//! Files for other programs, and a page without a server: their numbers are those of the run.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use maverl::run_dir::read_rollouts;

use super::browser::Browser;
use super::*;

/// Writes a part of the run of the tests, and returns the file.
pub(super) fn extracted(home: &Path, part: ExtractPart, name: &str) -> std::path::PathBuf {
    let out = home.join(name);
    let format = ExtractFormat::from_path(part, &out).unwrap();
    extract_part(&home.join("a"), (part, format), "after", &out).unwrap();
    out
}

#[test]
fn extracted_metrics_have_more_steps_than_an_answer_of_the_interface() {
    let home = tempfile::tempdir().unwrap();
    drop(Written::new(&home.path().join("a")));
    let row = |step: u64| {
        let values = (0..300).map(|i| (format!("rollout/{i}"), json!(0.5)));
        let row: serde_json::Map<String, Value> = values.collect();
        let mut row = Value::from(row);
        row["step"] = json!(step);
        format!("{row}\n")
    };
    let rows: String = (1..=1000).map(row).collect();
    fs::write(home.path().join("a/metrics.jsonl"), rows).unwrap();
    let viewer = viewer_of(vec![home.path().to_owned()]);
    let (_, part) = ask(&viewer, "api/runs/0/series");
    assert!(part["next"].as_u64().is_some_and(|next| next < 1000), "{}", part["next"]);
    let lines =
        fs::read_to_string(extracted(home.path(), ExtractPart::Metrics, "x.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 1000);
}

#[test]
fn extracted_metrics_are_those_of_the_files() {
    let home = tempfile::tempdir().unwrap();
    let written = run(&home.path().join("a"));
    let csv = fs::read_to_string(extracted(home.path(), ExtractPart::Metrics, "m.csv")).unwrap();
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(names[0], "step");
    let mut seen = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let step: u64 = cells[0].parse().unwrap();
        let Some(metrics) = written.rows.get(&step) else { continue };
        for (name, value) in metrics.iter() {
            let at = names.iter().position(|found| *found == name).unwrap();
            assert_eq!(cells[at].parse::<f64>().unwrap(), value, "step {step}, {name}");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
    let text = fs::read_to_string(extracted(home.path(), ExtractPart::Metrics, "m.jsonl")).unwrap();
    let row: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&row["step"], &row["time/rollout_s"]), (&json!(3), &json!(3.5)));
}

#[test]
fn extracted_episodes_and_turns_have_all_rows_and_csv_has_no_texts() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let read = |part, name: &str| fs::read_to_string(extracted(home.path(), part, name)).unwrap();
    let rows = fs::read_to_string(home.path().join("a/episodes.jsonl")).unwrap();
    let episodes = read(ExtractPart::Episodes, "e.jsonl");
    assert_eq!(episodes.lines().count(), rows.lines().count());
    let turns = read(ExtractPart::Turns, "t.jsonl");
    let turns: Vec<Value> = turns.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(turns.len(), 3 * 8 * 3);
    let of = |step: u64, n: u64, turn: u64| {
        let is = |row: &&Value| row["step"] == step && row["n"] == n && row["turn"] == turn;
        turns.iter().find(is).unwrap()
    };
    let expected = searched(2, 0);
    assert_eq!(of(2, 0, 1)["reply"], expected.turns[1].reply);
    let samples = samples(&(0..8).map(|n| searched(2, n)).collect::<Vec<_>>());
    for sample in &samples.samples {
        let row = of(2, sample.episode as u64, sample.turn as u64);
        assert_eq!(
            (&row["advantage"], &row["reward"]),
            (&json!(sample.advantage), &json!(sample.reward))
        );
    }
    for (part, name) in [(ExtractPart::Episodes, "e.csv"), (ExtractPart::Turns, "t.csv")] {
        let text = read(part, name);
        assert!(!text.contains("onerror") && !text.contains("Lima"), "{name} has texts of models");
        assert!(text.starts_with("step,"), "{name}");
    }
    let wrong = ExtractFormat::from_path(ExtractPart::Trace, Path::new("t.csv")).unwrap_err();
    assert_eq!(wrong, "`t.csv` must end with `.json`");
    let trace = read(ExtractPart::Trace, "t.json");
    let trace: Value = serde_json::from_str(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.len() > 3 * 24 * 2);
    let open = crate::report::analyses::trace::tests::replayed(events);
    assert!(open.len() == 3 * 24 && open.values().all(Vec::is_empty), "{open:?}");
}

#[test]
fn a_log_of_inspect_has_the_episodes_of_an_evaluation() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let log = fs::read(extracted(home.path(), ExtractPart::Inspect, "after.json")).unwrap();
    let log: Value = serde_json::from_slice(&log).unwrap();
    let samples = log["samples"].as_array().unwrap();
    assert_eq!((samples.len(), &log["results"]["total_samples"]), (16, &json!(16)));
    let solved = samples.iter().filter(|one| one["scores"]["solved"]["value"] == "C").count();
    assert_eq!(solved, 12);
    let accuracy = &log["results"]["scores"][0]["metrics"]["accuracy"]["value"];
    assert_eq!(accuracy, &json!(0.75), "{}", log["results"]);
    assert_eq!(samples[0]["events"][0]["output"]["usage"]["output_tokens"], 2);
    let missing = extract_part(
        &home.path().join("a"),
        (ExtractPart::Inspect, ExtractFormat::Json),
        "step-000009",
        &home.path().join("x.json"),
    );
    assert!(missing.unwrap_err().to_string().contains("no episodes of this evaluation"));
}

#[cfg(feature = "parquet")]
#[test]
fn a_parquet_file_has_the_rows_of_the_json_lines() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    for part in [ExtractPart::Metrics, ExtractPart::Episodes, ExtractPart::Turns] {
        let lines = fs::read_to_string(extracted(home.path(), part, "x.jsonl")).unwrap();
        let file = fs::File::open(extracted(home.path(), part, "x.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_json_value());
        let mut count = 0;
        for (row, line) in rows.zip(lines.lines()) {
            let line: Value = serde_json::from_str(line).unwrap();
            for (name, value) in line.as_object().unwrap() {
                let same = match (value.as_f64(), row[name].as_f64()) {
                    (Some(a), Some(b)) => a == b,
                    _ => *value == row[name],
                };
                assert!(same, "{part:?} {name}: {value} and {}", row[name]);
            }
            count += 1;
        }
        assert_eq!(count, lines.lines().count());
    }
}

#[test]
fn extracted_rollouts_are_the_recorded_episodes_those_of_a_growing_step_too() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let run = RunDir::open(&home.path().join("a")).unwrap();
    let growing = run.growing_rollouts(4);
    fs::write(&growing, fs::read(run.rollouts(3)).unwrap()).unwrap();
    let read = |steps| {
        let file = extracted(home.path(), ExtractPart::Rollouts { steps }, "r.jsonl");
        let text = fs::read_to_string(file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    for (steps, expected) in
        [(None, &[1, 2, 3, 4][..]), (Some((2, 3)), &[2, 3]), (Some((4, 9)), &[4])]
    {
        let rows = read(steps);
        let wanted = expected.iter().flat_map(|&step| {
            let of = if step == 4 { 3 } else { step };
            read_rollouts(&run.rollouts(of))
                .unwrap()
                .into_iter()
                .map(move |episode| (step, episode))
        });
        let wanted: Vec<Value> = wanted
            .map(|(step, episode)| {
                let text = serde_json::to_string(&episode).unwrap();
                let mut row: Value = serde_json::from_str(&text).unwrap();
                row["step"] = json!(step);
                row
            })
            .collect();
        assert_eq!(rows, wanted, "{steps:?}");
    }
    let out = home.path().join("r.jsonl");
    let part = (ExtractPart::Rollouts { steps: Some((7, 8)) }, ExtractFormat::Jsonl);
    let missing = extract_part(run.path(), part, "after", &out).unwrap_err().to_string();
    assert!(missing.contains("has no rollouts: it has not done these steps"), "{missing}");
    let csv = ExtractFormat::from_path(part.0, Path::new("r.csv")).unwrap_err();
    assert!(csv.contains("must end with `.jsonl`"), "{csv}");
}

/// Returns the content of every block of a page.
fn blocks(page: &str) -> Vec<Value> {
    let starts = page.match_indices("id=\"block-").map(|(at, _)| &page[at..]);
    let packed = starts.map(|rest| rest.split_once('>').unwrap().1.split_once('<').unwrap().0);
    let open = |packed: &str| {
        let bytes = STANDARD.decode(packed).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    packed.map(open).collect()
}

#[test]
fn a_page_without_a_server_holds_the_chosen_episodes_and_no_path() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let viewer = viewer_of(vec![home.path().join("a")]);
    let out = home.path().join("out.html");
    let few = PageChoice { episodes: 10, steps: None };
    let summary = viewer.write_page(&few, &out).unwrap();
    assert_eq!((summary.runs, summary.episodes, summary.of), (1, 8, 24 + 32));
    let page = fs::read_to_string(&out).unwrap();
    assert_eq!(page.len(), summary.bytes);
    let place = home.path().to_string_lossy().into_owned();
    let text = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!text.contains(&place) && !text.contains("http:") && !text.contains("https:"));
    let blocks = blocks(&page);
    assert!(blocks.iter().all(|block| !block.to_string().contains(&place)));
    let all = blocks.iter().find(|block| !block["runs"].is_null()).unwrap();
    let rows = all["runs/a/episodes"]["rows"].as_array().unwrap();
    let steps: Vec<u64> = rows.iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert!(steps.iter().all(|step| [1, 3].contains(step)), "{steps:?}");
    let none = viewer.write_page(&PageChoice { episodes: 0, ..few }, &out).unwrap();
    assert_eq!(none.episodes, 0);
    let texts = ["onerror", "Lima", "capital of Peru", "documents are enough"];
    for block in self::blocks(&fs::read_to_string(&out).unwrap()) {
        let block = block.to_string();
        assert!(!texts.iter().any(|text| block.contains(text)), "a text of a model: {block}");
    }
    let second = PageChoice { episodes: usize::MAX, steps: Some((2, 2)) };
    assert_eq!(viewer.write_page(&second, &out).unwrap().episodes, 8);
    let full = home.path().join("a");
    let refused = viewer.write_page(&few, &full).unwrap_err().to_string();
    assert!(refused.contains("not empty"), "{refused}");
}

#[test]
fn pages_without_a_server_work_from_a_file_and_from_a_directory() {
    let home = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        drop(run(&home.path().join("runs").join(name)));
    }
    let viewer = viewer_of(vec![home.path().join("runs")]);
    let choice = PageChoice { episodes: 100, steps: None };
    for (out, page) in [("out.html", "out.html"), ("out", "out/index.html")] {
        viewer.write_page(&choice, &home.path().join(out)).unwrap();
        // Requests of the pages stay below their place.
        let place = format!("file://{}", home.path().join(out).display());
        let Some(browser) = Browser::open(&place, 1200, 800) else { return };
        all_pages(browser, &format!("file://{}", home.path().join(page).display()));
    }
}

/// Visits every page of two runs.
fn all_pages(mut browser: Browser, url: &str) {
    let mut go = |page: &str, wait: &str| {
        browser.visit("about:blank");
        browser.visit(&format!("{url}#/{page}"));
        browser.wait("document.querySelector('#main h1, #main .error') !== null");
        browser.wait(wait);
        browser.text("#main")
    };
    go("", "document.querySelectorAll('tbody tr a.open').length === 2");
    go("r/a", "document.querySelector('[data-outcome=after]')?.textContent === '0.750'");
    go("compare?runs=b,a", "document.querySelector('[data-pair]') !== null");
    let list = "document.querySelectorAll('tbody tr.row').length";
    go("r/a/episodes?stage=train&step=3", &format!("{list} === 8"));
    go("r/a/episodes?stage=train&step=3&solved=1", &format!("{list} > 0 && {list} < 8"));
    go("r/a/episodes?stage=train&step=3&q=largest+city", &format!("{list} === 8"));
    go("r/a/episode/train/3/5", "document.querySelectorAll('.lane-head').length === 4");
    go("r/a/tokens/train/3/0/1", "document.querySelectorAll('[role=option]').length > 3");
    go("r/a/groups?step=3", &format!("{list} === 6"));
    go("r/a/group/3/0", "document.querySelectorAll('td.sum').length === 4");
    go("r/a/step?step=3", "document.querySelector('[data-step-score]') !== null");
    go("r/a/groups?step=all&by=task", &format!("{list} === 6"));
    go("r/a/timeline", "document.querySelectorAll('[data-span]').length === 4");
    let absent = go("r/a/episode/train/2/0", "document.querySelector('.error') !== null");
    assert!(absent.contains("32 of 112 episodes"), "{absent}");
    browser.assert_quiet();
}

#[test]
fn an_episode_is_shown_with_every_token_and_as_json() {
    let home = tempfile::tempdir().unwrap();
    drop(run(&home.path().join("a")));
    let (dir, one) = (home.path().join("a"), searched(2, 0));
    let shown = ShownEpisodes::Named("2/train-0/0".into());
    let text = show_episodes(&dir, &shown, Detail::Tokens, 80).unwrap();
    let of = one.turns[0].tokens.as_ref().unwrap();
    for (i, (id, logprob)) in of.completion.iter().zip(&of.logprobs).enumerate() {
        let line = text.lines().find(|line| line.starts_with(&format!("  {i:<9} "))).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[1..3], [id.to_string(), format!("{logprob:.4}")], "{line}");
        assert_eq!(cells[3], format!("{:.4}", 0.25 * (i % 9) as f64), "the entropy: {line}");
    }
    assert!(text.contains("   logprob  entropy  advantage     moved\n"), "{text}");
    let plain = show_episodes(&dir, &shown, Detail::Turns, 80).unwrap();
    assert!(!plain.contains("tokens") && plain.lines().all(|line| text.contains(line)), "{plain}");
    let found = show_json(&dir, &shown, Detail::Tokens).unwrap();
    let turn = &found[0]["turns"][0];
    assert_eq!(
        (&turn["reply"], &turn["prompt"]),
        (&json!(one.turns[0].reply), &json!(one.turns[0].prompt))
    );
    assert_eq!(turn["completion"]["logprob"], json!(of.logprobs));
    assert_eq!(turn["completion"]["entropy"][3], 0.75);
    let samples = samples(&(0..8).map(|n| searched(2, n)).collect::<Vec<_>>());
    assert_eq!(turn["sample"], json!(samples.samples[0]));
    assert!(show_json(&dir, &shown, Detail::Turns).unwrap()[0]["turns"][0]["completion"].is_null());
    // A long text is complete.
    let worst =
        show_json(&dir, &ShownEpisodes::Named("2/train-1/1".into()), Detail::Turns).unwrap();
    assert_eq!(worst[0]["turns"][2]["reply"].as_str().unwrap().len(), 1 << 20);
}
