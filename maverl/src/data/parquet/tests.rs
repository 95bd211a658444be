#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use super::super::{ALL, Bounds, DataError, corpus, load};
use crate::config::TaskConfig;
use crate::task::Task;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/data/parquet")
}

fn read(name: &str, split: &str, directory: &Path) -> Result<Vec<Task>, DataError> {
    load(&TaskConfig { data: name.to_owned(), ..TaskConfig::default() }, split, directory)
}

#[test]
fn rows_of_verl_are_tasks() {
    let tasks = read("verl.parquet", "train", &directory()).unwrap();
    let first = &tasks[3];
    assert_eq!(
        (first.question.as_str(), first.source.as_str()),
        ("What is 3 + 3?", "openai/gsm8k")
    );
    assert_eq!(first.data["answers"], serde_json::json!(["6"]));
    assert_eq!((&first.data["index"], &first.data["ability"]), (&3.into(), &"math".into()));
    let all = read("verl.parquet", ALL, &directory()).unwrap();
    let ids: Vec<String> = all.iter().map(|task| task.id.clone()).collect();
    assert_eq!(ids, (1..=22).map(|id| id.to_string()).collect::<Vec<_>>());
    // Missing values of a row are omitted.
    let last = &all[21];
    assert_eq!((last.source.as_str(), last.data.len()), ("verl", 0), "{:?}", last.data);
    assert_eq!(read("verl.parquet", "test", &directory()).unwrap()[0].data["answers"][0], "0");
}

#[test]
fn truths_of_search_r1_are_answers() {
    let tasks = read("search.parquet", "test", &directory()).unwrap();
    assert_eq!((tasks[0].id.as_str(), tasks[0].source.as_str()), ("test_0", "nq"));
    assert_eq!(tasks[0].data["answers"], serde_json::json!(["Ada", "Ada T."]));
}

#[test]
fn rows_of_trl_are_tasks() {
    let solution = &read("trl_solution.parquet", ALL, &directory()).unwrap()[0];
    assert_eq!(solution.question, "What is 1/2 of 3?");
    assert_eq!(solution.data["answers"][0], "It is $\\boxed{3/2}$.");
    assert_eq!(solution.data["level"], 2);
    assert_eq!((&solution.data["score"], &solution.data["hard"]), (&0.5.into(), &true.into()));
    let answer = &read("trl_answer.parquet", ALL, &directory()).unwrap()[0];
    assert_eq!((answer.question.as_str(), &answer.data["answers"][0]), ("What is 7?", &"7".into()));
}

#[test]
fn hotpot_gives_tasks_and_documents() {
    let tasks = read("hotpot.parquet", ALL, &directory()).unwrap();
    assert_eq!(tasks[0].data["support"], serde_json::json!(["B", "A"]));
    let documents = corpus("hotpot.parquet", &directory(), Bounds::default()).unwrap();
    assert_eq!((documents[0].text.as_str(), documents.len()), ("One. Two.", 2));
}

#[test]
fn a_file_that_holds_no_tasks_is_named() {
    for (name, expected) in [
        ("wrong_type.parquet", "wrong_type.parquet:1: `prompt` is 1; write a text or a list"),
        ("no_question.parquet", "among the keys [\"text\", \"label\"]"),
        ("brotli.parquet", "is no Parquet file that can be read: "),
    ] {
        let error = read(name, ALL, &directory()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Reads bytes as a file; a damaged one may give an error or other rows, but must return.
fn survives(bytes: &[u8], directory: &Path) -> bool {
    std::fs::write(directory.join("rows.parquet"), bytes).unwrap();
    read("rows.parquet", ALL, directory).is_ok()
}

#[test]
fn a_damaged_file_is_an_error_and_ends_nothing() {
    let whole = std::fs::read(directory().join("verl.parquet")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    assert!(survives(&whole, dir.path()));
    // Few cases in the first tier; all in the second.
    let (cuts, damages) =
        if std::env::var_os("MAVERL_FULL").is_some() { (100, 1500) } else { (25, 300) };
    let cut = (0..whole.len()).step_by(whole.len() / cuts);
    for length in cut {
        assert!(!survives(&whole[..length], dir.path()), "cut at {length}");
    }
    let mut draw = crate::rng::SplitMix64::new(5);
    let mut read = 0;
    for _ in 0..damages {
        let mut damaged = whole.clone();
        for _ in 0..=draw.index(3) {
            damaged[draw.index(whole.len())] ^= 1 << draw.index(8);
        }
        read += usize::from(survives(&damaged, dir.path()));
    }
    println!("{read} of {damages} damaged files were read all the same");
}
