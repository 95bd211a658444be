#![allow(clippy::unwrap_used)]

use super::*;

/// Returns the splits of files without a card.
fn found(files: &[&str]) -> Vec<(String, Vec<String>)> {
    let configs = data_configs(files, &[]).unwrap();
    assert_eq!(configs.len(), 1);
    configs.into_iter().next().unwrap().splits
}

fn splits(wanted: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let splits = wanted.iter().map(|(split, files)| {
        ((*split).to_owned(), files.iter().map(|file| (*file).to_owned()).collect())
    });
    splits.collect()
}

#[test]
fn sharded_files_are_of_the_split_in_their_name() {
    let files = [
        "README.md",
        "data/extra-00000-of-00001.parquet",
        "data/test-00000-of-00001-0a1b.parquet",
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
    ];
    let wanted =
        splits(&[("train", &[files[3], files[4]]), ("test", &[files[2]]), ("extra", &[files[1]])]);
    assert_eq!(found(&files), wanted);
}

#[test]
fn folders_with_a_keyword_come_before_files_with_one() {
    let files = ["a/train/2.jsonl", "a/train/1.jsonl", "dev_set/x.jsonl", "train.jsonl"];
    let wanted = splits(&[("train", &[files[1], files[0]]), ("validation", &["dev_set/x.jsonl"])]);
    assert_eq!(found(&files), wanted);
    let files = ["my-eval.jsonl", "training_2.jsonl", "train.jsonl", "trainer.jsonl"];
    let wanted =
        splits(&[("train", &["train.jsonl", "training_2.jsonl"]), ("test", &["my-eval.jsonl"])]);
    assert_eq!(found(&files), wanted);
}

#[test]
fn other_files_are_of_train_without_those_about_the_data_and_hidden_ones() {
    let files = [
        ".gitattributes",
        "README.md",
        "dataset_infos.json",
        "b.jsonl",
        "a/rows.jsonl",
        "__x__/c.jsonl",
        "a/.hidden.jsonl",
    ];
    assert_eq!(found(&files), splits(&[("train", &["a/rows.jsonl", "b.jsonl"])]));
    assert_eq!(found(&["README.md"]), splits(&[]));
}

#[test]
fn the_conversion_of_the_hub_has_configurations_and_splits_as_folders() {
    let files = ["en/odd/0000.parquet", "en/odd/0001.parquet", "fr/partial-train/0000.parquet"];
    let configs = data_configs(&files, &[]).unwrap();
    let names: Vec<_> = configs.iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["en", "fr"]);
    assert_eq!(configs[0].splits, splits(&[("odd", &files[..2])]));
    assert_eq!(configs[1].splits, splits(&[("train", &files[2..])]));
    // Files of a user are read by their folders.
    let files = [&files[..], &["README.md"]].concat();
    assert_eq!(data_configs(&files, &[]).unwrap()[0].name, "default");
}

#[test]
fn patterns_of_a_card_do_not_cross_folders() {
    let files = ["main/deep/train-2.jsonl", "main/train-1.jsonl", "main/train-0.jsonl"];
    let config = CardConfig {
        name: "main".to_owned(),
        is_default: false,
        folder: String::new(),
        patterns: Some(vec![("train".to_owned(), vec!["main/train-*".to_owned()])]),
    };
    let configs = data_configs(&files, std::slice::from_ref(&config)).unwrap();
    assert_eq!(configs[0].splits, splits(&[("train", &[files[2], files[1]])]));
    let inside = CardConfig { folder: "main".to_owned(), patterns: None, ..config };
    let configs = data_configs(&files, &[inside]).unwrap();
    let all = [files[0], files[2], files[1]];
    assert_eq!(configs[0].splits, splits(&[("train", &all)]));
}

#[test]
fn a_pattern_names_files_and_one_that_matches_none_lists_them() {
    let files = ["data/a.jsonl", "data/b.jsonl", "other/c.jsonl"];
    let config = matched_config(&files, "data/*.jsonl").unwrap();
    assert_eq!(config.splits, splits(&[("train", &files[..2])]));
    let told = matched_config(&files, "*.jsonl").unwrap_err();
    assert!(told.contains("no file matches `*.jsonl`; it has `data/a.jsonl`"), "{told}");
    assert!(matched_config(&files, "a**").unwrap_err().contains("`a**`: "));
}

#[test]
fn a_tree_of_containers_is_refused() {
    let told = data_configs(&["hello/task.toml", "hello/instruction.md"], &[]).unwrap_err();
    assert!(told.contains("tasks of Harbor"), "{told}");
}

#[test]
fn the_form_is_that_of_most_files() {
    let of = |files: &[&str]| most_form(&splits(&[("train", files)])[0].1);
    assert_eq!(of(&["a.jsonl.gz", "b.json", "c.parquet"]), FileForm::Json);
    assert_eq!(of(&["a.parquet", "b.jsonl"]), FileForm::Parquet);
    assert_eq!(of(&["a.csv", "b.csv", "c.json"]), FileForm::Other);
    assert_eq!(of(&[]), FileForm::Other);
}

/// Returns the splits of files that are read, and the notes about the others.
fn read(mut config: DataConfig) -> (Vec<String>, String) {
    keep_read(&mut config);
    let splits = config.splits.into_iter().map(|(split, _)| split).collect();
    (splits, config.notes.join("\n"))
}

#[test]
fn splits_of_different_forms_are_read_and_what_is_not_read_is_named() {
    let of = |files: &[&str]| data_configs(files, &[]).unwrap().remove(0);
    let found = read(of(&["data/test-00000-of-00001.jsonl", "data/train-00000-of-00001.parquet"]));
    assert_eq!(found, (vec!["train".to_owned(), "test".to_owned()], String::new()));
    let found = read(of(&["train.jsonl", "test.csv"]));
    let note = "`test.csv` of the split `test` is not read: Parquet and JSON are";
    assert_eq!(found, (vec!["train".to_owned()], note.to_owned()));
    let found = read(of(&["train.csv", "train_stats.json"]));
    let note = "`train.csv` of the split `train` is not read: files of a split have one form";
    assert_eq!(found, (vec!["train".to_owned()], note.to_owned()));
    let found = read(of(&["train.jsonl", "more.jsonl"]));
    assert!(
        found.1.starts_with("`more.jsonl` is not read: its name is that of no split"),
        "{found:?}"
    );
}

#[test]
fn tables_beside_as_many_other_files_are_read_from_the_conversion_of_the_hub() {
    let of = |files: &[&str]| has_tables(&splits(&[("train", files)]));
    assert!(of(&["train.csv", "train_stats.json"]));
    assert!(!of(&["a.jsonl", "b.jsonl", "c.csv"]));
    assert!(!of(&["a.jsonl", "picture.png"]));
}

#[test]
fn a_pattern_of_a_card_without_a_file_and_a_partial_conversion_are_noted() {
    let patterns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let config = CardConfig {
        name: "default".to_owned(),
        is_default: false,
        folder: String::new(),
        patterns: Some(vec![
            ("train".to_owned(), patterns(&["a.jsonl"])),
            ("test".to_owned(), patterns(&["none.jsonl", "https://example.com/b.jsonl"])),
        ]),
    };
    let config = data_configs(&["a.jsonl"], &[config]).unwrap().remove(0);
    assert_eq!(config.splits, splits(&[("train", &["a.jsonl"])]));
    assert_eq!((config.lost, config.notes.len()), (vec!["test".to_owned()], 2));
    for (note, file) in config.notes.iter().zip(["none.jsonl", "https://example.com/b.jsonl"]) {
        let wanted = format!("`{file}`, which the card names for the split `test`, is no file");
        assert!(note.starts_with(&wanted), "{note}");
    }
    let configs = data_configs(&["a/partial-train/0000.parquet", "b/train/0000.parquet"], &[]);
    let notes: Vec<_> = configs.unwrap().into_iter().map(|config| config.notes).collect();
    let note = "the hub's conversion has only the first rows of the split `train`";
    assert_eq!(notes, [vec![note.to_owned()], Vec::new()]);
}

proptest::proptest! {
    #[test]
    fn any_names_of_files_have_a_layout_or_a_message(
        names in proptest::collection::vec("[-a-z_./0-9]{0,24}", 0..12),
        pattern in "[-a-z*?\\[\\]{}/.]{0,12}",
    ) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let _ = data_configs(&names, &[]);
        let _ = matched_config(&names, &pattern);
    }
}
