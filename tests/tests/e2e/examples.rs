//! Every example configuration runs.

use std::fs;
use std::path::{Path, PathBuf};

use maverl_tests::lab::stride;

use crate::lab;

/// Returns the example configurations, by name.
fn examples() -> Vec<(String, PathBuf)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let runs = files.filter(|path| path.extension().is_some_and(|e| e == "toml"));
    let runs = runs.filter(|path| !path.ends_with("Cargo.toml"));
    let named = runs.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), path));
    let mut examples: Vec<_> = named.collect();
    examples.sort();
    examples
}

#[test]
fn every_example_plays_and_learns() {
    let lab = lab();
    let examples = examples();
    assert!(examples.len() >= 14, "{examples:?}");
    for (name, path) in examples.into_iter().step_by(stride(4)) {
        let start = std::time::Instant::now();
        let config = path.display().to_string();
        if name == "code" && lab.run(&["check", &config]).code != Some(0) {
            eprintln!("{name}: skipped, programs cannot be run here");
            continue;
        }
        if name.starts_with("program") && crate::programs::without_python(&name) {
            continue;
        }
        lab.run(&["train", &config, "--quick", "--out", &name]).succeeded();
        let run = maverl_tests::lab::Run(lab.path(&name));
        assert_eq!(run.json("summary.json")["complete"], true, "{name}");
        if name == "verifier" {
            assert!(run.rows().iter().any(|row| row["verifier/test/auc"].is_number()), "{name}");
            continue;
        }
        let steps = run.steps();
        assert_eq!(steps.len(), 2, "{name}");
        if name == "two_environments" {
            for world in ["sums", "nli"] {
                let key = format!("rollout/mixture/{world}/solved");
                assert!(steps[0][&key].is_number(), "{key} is missing");
            }
        }
        for row in steps {
            let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
            assert_eq!(
                (number("rollout/episodes"), number("rollout/unscored")),
                (8.0, 0.0),
                "{name}"
            );
            assert!(number("rollout/turns_mean") >= 1.0, "{name}");
        }
        eprintln!("{name}: {:.1} s", start.elapsed().as_secs_f64());
    }
}

/// A turn of Search-R1 continues the tokens of the one before, and an update computes what both begin with once.
#[test]
fn the_reply_of_search_r1_is_one_growing_row() {
    let lab = lab();
    lab.run(&["train", "example:search_r1", "--quick", "--out", "r1"]).succeeded();
    let run = maverl_tests::lab::Run(lab.path("r1"));
    let mut grown = 0;
    for episode in run.episodes(1) {
        for pair in episode.turns.windows(2) {
            let [first, next] = [&pair[0], &pair[1]].map(|turn| turn.tokens.as_ref().unwrap());
            let so_far = [&first.prompt[..], &first.completion].concat();
            // A stop id that ended the reply is no part of the text.
            let text = &so_far[..so_far.len() - 1];
            assert!(next.prompt.starts_with(text) && next.prompt.len() > so_far.len());
            assert!(!pair[1].forked);
            grown += 1;
        }
    }
    let share = run.steps()[0]["policy/tiny/share"].as_f64().unwrap();
    println!("{grown} turns continue a reply; {share} of the tokens are shared");
    assert!(grown > 0 && share > 0.0);
}
