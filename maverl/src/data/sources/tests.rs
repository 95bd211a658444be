#![allow(clippy::unwrap_used)]

use std::fs;

use serde_json::json;

use super::*;
use crate::data::{documents_of, file_rows};

/// Writes files of one split of a data set, and opens them.
fn set_files(dir: &Path, alone: bool, files: &[(&str, String)]) -> Vec<SourceFile> {
    let files = files.iter().map(|(name, text)| {
        fs::write(dir.join(name), text).unwrap();
        let file = DataFile::open(&dir.join(name), Bounds::default()).unwrap();
        let set = SetFile {
            source: "mine".to_owned(),
            name: (*name).to_owned(),
            split: "train".to_owned(),
            alone,
            labels: Vec::new(),
        };
        SourceFile { file, set: Some(set) }
    });
    files.collect()
}

fn keys(files: &[SourceFile]) -> Vec<String> {
    let documents = documents_of(files).unwrap().into_iter();
    documents.map(|(_, document)| document.key).collect()
}

#[test]
fn a_row_has_a_split_of_its_own_only_in_a_data_set_of_one_split() {
    let dir = tempfile::tempdir().unwrap();
    let is_of = |alone: bool, own: Option<&str>, split: &str, unsplit: Unsplit| {
        let files = set_files(dir.path(), alone, &[("a.jsonl", "{}".to_owned())]);
        files[0].set.as_ref().unwrap().has_row(own.map(str::to_owned), split, unsplit)
    };
    for (own, split, wanted) in [
        (None, "train", true),
        (None, "test", false),
        (Some("test"), "train", false),
        (Some("test"), "test", true),
        (Some("test"), ALL, true),
    ] {
        assert_eq!(is_of(true, own, split, Unsplit::Hashed), wanted, "{own:?} {split}");
    }
    assert!(is_of(false, Some("test"), "train", Unsplit::Hashed));
    // A set for evaluation is evaluated whole, except rows that name another split.
    assert!(is_of(true, None, "test", Unsplit::Every));
    assert!(!is_of(true, Some("train"), "test", Unsplit::Every));
}

#[test]
fn a_title_in_several_files_is_one_document() {
    let dir = tempfile::tempdir().unwrap();
    let rows = |titles: &[&str]| {
        let rows = titles.iter().map(|title| {
            json!({"question": "q", "answer": "a", "context": [[title, ["text"]], ["Shared", ["text"]]]})
        });
        serde_json::Value::Array(rows.collect()).to_string()
    };
    let files = [("a.json", rows(&["One"])), ("b.json", rows(&["Two", "Three"]))];
    let files = set_files(dir.path(), true, &files);
    assert_eq!(keys(&files), ["One", "Shared", "Three", "Two"]);
    // Rows without an id are numbered through.
    let config = TaskConfig::default();
    let rows = file_rows(&files, &config).unwrap().map(|row| row.unwrap().task);
    let tasks: Vec<_> = rows.map(|task| (task.source, task.id)).collect();
    let wanted = ["train-1", "train-2", "train-3"].map(|id| ("mine".to_owned(), id.to_owned()));
    assert_eq!(tasks, wanted);
}

#[test]
fn documents_without_an_id_have_the_name_of_their_file_and_their_row_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let row = "{\"title\": \"t\", \"text\": \"words\"}\n";
    let files = [("a.jsonl", format!("\n\n{row}{row}")), ("b.jsonl", row.repeat(3))];
    let wanted = [
        "a.jsonl:00000003",
        "a.jsonl:00000004",
        "b.jsonl:00000001",
        "b.jsonl:00000002",
        "b.jsonl:00000003",
    ];
    assert_eq!(keys(&set_files(dir.path(), true, &files)), wanted);
}

#[test]
fn paragraphs_of_several_files_are_the_support_of_their_own_questions() {
    let dir = tempfile::tempdir().unwrap();
    let text = |id: &str| {
        let questions =
            json!([{"id": id, "question": "q", "answers": [{"text": "a", "answer_start": 0}]}]);
        let paragraphs = json!([{"context": "words", "qas": questions}]);
        json!({"data": [{"title": "T", "paragraphs": paragraphs}]}).to_string()
    };
    let files = set_files(dir.path(), true, &[("a.json", text("x")), ("b.json", text("y"))]);
    assert_eq!(keys(&files), ["a.json:0000-0000", "b.json:0000-0000"]);
    let config = TaskConfig::default();
    let rows = file_rows(&files, &config).unwrap().map(|row| row.unwrap().task);
    let support: Vec<_> = rows.map(|task| task.data["support"][0].clone()).collect();
    assert_eq!(support, ["a.json:0000-0000", "b.json:0000-0000"]);
}
