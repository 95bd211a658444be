//! Splits of data sets on the hub: which rows a run reads, what is missing offline, and what is not read.

use std::fs;

use maverl_tests::data_hub::DataHub;
use maverl_tests::lab::Lab;
use serde_json::{Value, json};

use crate::data_sets::{put, with};
use crate::lab;

/// Serves files as a data set.
fn serve(lab: &Lab, hub: &DataHub, repo: &str, revision: &str, files: &[(&str, String)]) {
    let folder = format!("{repo}/{}", revision.replace('/', "-"));
    for (name, text) in files {
        put(lab, &format!("{folder}/{name}"), text);
    }
    hub.set(repo, revision, &lab.path(&folder));
}

fn lines(rows: &[Value]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

#[test]
fn supervised_training_reads_the_rows_of_its_split_alone() {
    let (lab, hub) = (lab(), DataHub::start());
    // Rows of the split `test` would be errors.
    let shown = [
        json!({ "prompt": "a", "completion": "b", "split": "train" }),
        json!({ "prompt": "a", "completion": "", "messages": [], "split": "test" }),
    ];
    serve(&lab, &hub, "org/shown", "main", &[("all.jsonl", lines(&shown))]);
    let pairs = [
        json!({ "prompt": "a", "chosen": "b", "rejected": "c", "split": "train" }),
        json!({ "prompt": "a", "chosen": "b", "rejected": "b", "split": "test" }),
    ];
    serve(&lab, &hub, "org/pairs", "main", &[("all.jsonl", lines(&pairs))]);
    for (algorithm, data) in [("sft", "hf:org/shown"), ("dpo", "hf:org/pairs")] {
        lab.configuration("s.toml", algorithm, data);
        with(&lab, &hub, &[], &["check", "s.toml"]).succeeded();
        let other = ["check", "s.toml", "--set", "task.split=\"other\""];
        with(&lab, &hub, &[], &other).failed().says(&["split `other`", "rows of other splits"]);
    }
}

#[test]
fn a_column_of_splits_of_a_set_of_one_split_chooses_tasks() {
    let (lab, hub) = (lab(), DataHub::start());
    let row =
        |n: usize, split: &str| json!({ "question": format!("{split} {n}?"), "split": split });
    let rows = [row(0, "train"), row(1, "train"), row(2, "test")];
    serve(&lab, &hub, "org/columns", "main", &[("all.jsonl", lines(&rows))]);
    let set =
        ["task.data=\"hf:org/columns\"", "task.split=\"test\"", "eval.before_and_after=false"];
    let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    with(&lab, &hub, &[], &[&["check", "run.toml"][..], &set].concat()).succeeded();
    let args = ["data", "hf:org/columns", "--split", "test", "--rows", "9"];
    let printed = with(&lab, &hub, &[], &args).succeeded().stdout;
    assert_eq!(printed, format!("{}\n", rows[2]));
    let args = ["data", "hf:org/columns", "--json"];
    let printed = with(&lab, &hub, &[], &args).succeeded().stdout;
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["task"]["id"], "train-1");
    let none = ["data", "hf:org/columns", "--split", "dev"];
    with(&lab, &hub, &[], &none).failed().says(&["no tasks in split `dev`", "`train`: 2"]);
}

#[test]
fn a_verifier_is_evaluated_on_the_held_out_split_of_a_data_set() {
    let (lab, hub) = (lab(), DataHub::start());
    let row = |word: &str, n: usize| json!({ "prompt": format!("{word} {n}"), "completion": "a", "label": n.is_multiple_of(2) });
    let rows = |word: &str| lines(&(0..20).map(|n| row(word, n)).collect::<Vec<_>>());
    let wrong = lines(&[json!({ "prompt": "a", "completion": "b", "label": "perhaps" })]);
    let files = [("train.jsonl", rows("a")), ("test.jsonl", rows("b")), ("dev.jsonl", wrong)];
    serve(&lab, &hub, "org/judged", "main", &files);
    lab.configuration("judge.toml", "verifier", "hf:org/judged");
    let set = "eval.data={ own = \"hf:org/judged\" }";
    with(&lab, &hub, &[], &["check", "judge.toml", "--set", set]).succeeded();
}

#[test]
fn offline_a_part_of_a_data_set_is_not_taken_for_all_of_it() {
    let (lab, hub) = (lab(), DataHub::start());
    let row = |n: usize| json!({ "question": format!("{n} {}", "x".repeat(700_000)) });
    let name = |shard: usize| format!("data/train-0000{shard}-of-00002.jsonl");
    let files = [0, 1].map(|shard| (name(shard), lines(&[row(shard)])));
    let files = files.each_ref().map(|(name, text)| (name.as_str(), text.clone()));
    serve(&lab, &hub, "me/large", "main", &files);
    let data = ["data", "hf:me/large", "--rows"];
    let set = [
        "task.data=\"hf:me/large\"",
        "task.max_mib=1",
        "task.limit=1",
        "eval.before_and_after=false",
    ];
    let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    with(&lab, &hub, &[], &[&["check", "run.toml"][..], &set].concat());
    let offline = [("HF_HUB_OFFLINE", "1")];
    let missing = format!("`{}` is not in the cache, and `HF_HUB_OFFLINE` is set", name(1));
    with(&lab, &hub, &offline, &[&data[..], &["2"]].concat()).failed().says(&[&missing]);
    // The cache of another library has no list of the files.
    fs::remove_dir_all(lab.path("hf/hub/datasets--me--large/.listings")).unwrap();
    with(&lab, &hub, &offline, &[&data[..], &["2"]].concat()).failed().says(&[&missing]);
}

#[test]
fn a_limit_bounds_the_files_of_each_component() {
    let (lab, hub) = (lab(), DataHub::start());
    let row = |n: usize| json!({ "question": format!("{n} {}", "x".repeat(700_000)) });
    let files = [0, 1, 2].map(|n| (format!("data/train-0000{n}-of-00003.jsonl"), lines(&[row(n)])));
    let files = files.each_ref().map(|(name, text)| (name.as_str(), text.clone()));
    serve(&lab, &hub, "me/large", "main", &files);
    let text = fs::read_to_string(lab.path("run.toml")).unwrap();
    let text = text.replace("data = \"tasks.jsonl\"", "max_mib = 1\nlimit = 1");
    let mixture = "[task.mixture.large]\ndata = \"hf:me/large\"\n[task.mixture.own]\ndata = \"tasks.jsonl\"\n";
    lab.write("mixed.toml", &format!("{text}\n{mixture}"));
    hub.asked();
    let args = ["check", "mixed.toml", "--set", "eval.before_and_after=false"];
    let ended = with(&lab, &hub, &[], &args);
    let files = hub.asked().into_iter().filter(|(path, _)| path.ends_with(".jsonl")).count();
    assert_eq!(files, 1, "{ended}");
}

#[test]
fn what_of_a_data_set_is_not_read_is_a_warning() {
    let (lab, hub) = (lab(), DataHub::start());
    let rows = lines(&(0..4).map(|n| json!({ "question": format!("{n}?") })).collect::<Vec<_>>());
    let files = [("train.jsonl", rows.clone()), ("test.csv", "question\na\n".to_owned())];
    serve(&lab, &hub, "org/forms", "main", &files);
    let card = "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: a.jsonl\n  - split: test\n    path: none.jsonl\n---\n";
    serve(&lab, &hub, "org/missing", "main", &[("README.md", card.to_owned()), ("a.jsonl", rows)]);
    for (data, note) in [
        ("hf:org/forms", "`test.csv` of the split `test` is not read"),
        ("hf:org/missing", "`none.jsonl`, which the card names for the split `test`"),
    ] {
        let set = format!("task.data={data:?}");
        let args = ["check", "run.toml", "--set", &set, "--set", "eval.before_and_after=false"];
        with(&lab, &hub, &[], &args).succeeded().prints(&[note]);
        with(&lab, &hub, &[], &["data", data]).succeeded().prints(&[note]);
    }
}

#[test]
fn the_default_configuration_of_a_card_is_that_of_the_hub_s_conversion() {
    let (lab, hub) = (lab(), DataHub::start());
    let card = "---\nconfigs:\n- config_name: a\n  data_files: a.csv\n- config_name: b\n  default: true\n  data_files: b.csv\n---\n";
    let table = "question\nq\n".to_owned();
    let files = [("README.md", card.to_owned()), ("a.csv", table.clone()), ("b.csv", table)];
    serve(&lab, &hub, "org/tables", "main", &files);
    let stored = fs::read_dir(crate::data_sets::fixtures().join("sharded/data")).unwrap();
    let parquet = stored.flatten().map(|file| file.path()).min().unwrap();
    for folder in ["a/train", "b/partial-train"] {
        let folder = lab.path("converted").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::copy(&parquet, folder.join("0000.parquet")).unwrap();
    }
    hub.set("org/tables", "refs/convert/parquet", &lab.path("converted"));
    let described = |data: &str| {
        let printed = with(&lab, &hub, &[], &["data", data, "--json"]).succeeded().stdout;
        serde_json::from_str::<Value>(&printed).unwrap()
    };
    let first = described("hf:org/tables");
    let pinned = first["data"].as_str().unwrap();
    assert!(pinned.starts_with("hf:org/tables/b@"), "{pinned}");
    let notes = first["notes"].to_string();
    assert!(notes.contains("only the first rows of the split `train`"), "{notes}");
    let again = described(pinned);
    assert_eq!((&again["config"], &again["data"]), (&json!("b"), &first["data"]));
}
