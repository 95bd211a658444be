//! Data sets on the hub: their rows, runs on them, and error messages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use maverl_tests::data_hub::{DataFault, DataHub};
use maverl_tests::lab::{Ended, Lab, wait_until};
use serde_json::{Map, Value, json};

use crate::lab;
use crate::tracking::python_with;

/// Variables of the hub, removed from the environment.
const SILENT: [&str; 6] =
    ["HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "http_proxy", "all_proxy"];

/// Writes a file of a data set.
pub(crate) fn put(lab: &Lab, name: &str, text: &str) {
    fs::create_dir_all(lab.path(name).parent().unwrap()).unwrap();
    lab.write(name, text);
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hub")
}

/// Serves the stored data sets as `org/NAME`.
fn stored_hub() -> DataHub {
    let hub = DataHub::start();
    for entry in fs::read_dir(fixtures()).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        match name.strip_suffix("-converted") {
            Some(name) => drop(hub.set(&format!("org/{name}"), "refs/convert/parquet", &path)),
            None if path.is_dir() => drop(hub.set(&format!("org/{name}"), "main", &path)),
            None => {}
        }
    }
    hub
}

/// Runs a command with a hub, a cache of its own and additional variables.
pub(crate) fn with(lab: &Lab, hub: &DataHub, set: &[(&str, &str)], args: &[&str]) -> Ended {
    Ended::of(&command(lab, hub, args).envs(set.iter().copied()).output().unwrap())
}

/// Returns a command with a hub and a cache of its own.
fn command(lab: &Lab, hub: &DataHub, args: &[&str]) -> Command {
    let mut command = lab.command(args);
    for name in SILENT {
        command.env_remove(name);
    }
    command.env("HF_ENDPOINT", hub.address()).env("HF_HOME", lab.path("hf"));
    command
}

/// Returns a row without what is null: Parquet files have each column in each row.
fn present(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(key, value)| (key.clone(), present(value))).collect())
        }
        Value::Array(items) => items.iter().map(present).collect(),
        other => other.clone(),
    }
}

#[test]
fn every_layout_has_the_rows_that_the_package_datasets_reads_in_the_same_order() {
    let (lab, hub) = (lab(), stored_hub());
    let expected: Value =
        serde_json::from_str(&fs::read_to_string(fixtures().join("expected.json")).unwrap())
            .unwrap();
    let sets = expected["rows"].as_object().unwrap();
    assert!(sets.len() >= 8, "{:?}", sets.keys());
    for (name, configs) in sets {
        let configs = configs.as_object().unwrap();
        for (config, splits) in configs {
            let config = if configs.len() > 1 { format!("/{config}") } else { String::new() };
            for (split, rows) in splits.as_object().unwrap() {
                let data = format!("hf:org/{name}{config}");
                let args = ["data", &data, "--split", split, "--rows", "99"];
                let printed = with(&lab, &hub, &[], &args).succeeded().stdout;
                let read = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                assert_eq!(read.collect::<Value>(), present(rows), "{data} {split}");
            }
        }
    }
    // What is in the cache needs no hub.
    let offline = [("HF_HUB_OFFLINE", "1")];
    hub.asked();
    let args = ["data", "hf:org/sharded", "--rows", "12"];
    assert_eq!(with(&lab, &hub, &offline, &args).succeeded().stdout.lines().count(), 12);
    assert!(hub.asked().is_empty());
}

#[test]
fn the_package_datasets_reads_the_same_rows_of_the_same_hub_into_a_cache_that_both_use() {
    let Some(python) = python_with("datasets") else { return };
    let (lab, hub) = (lab(), stored_hub());
    let expected = fs::read_to_string(fixtures().join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let sets = expected["rows"].as_object().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/read_hub.py");
    let mut reader = Command::new(python);
    reader.arg(script).args(sets.keys().map(|name| format!("org/{name}")));
    reader.env("HF_ENDPOINT", hub.address()).env("HF_HOME", lab.path("hf"));
    reader.env("NO_PROXY", "127.0.0.1").env("HF_HUB_DISABLE_TELEMETRY", "1");
    let read = Ended::of(&reader.output().unwrap()).succeeded().stdout;
    let read: Value = serde_json::from_str(read.lines().last().unwrap()).unwrap();
    let mut count = 0;
    for (name, configs) in sets {
        for (config, splits) in configs.as_object().unwrap() {
            for (split, rows) in splits.as_object().unwrap() {
                let theirs = &read["rows"][format!("org/{name}")][config][split];
                assert_eq!(present(theirs), present(rows), "{name} {config} {split}");
                count += 1;
            }
        }
    }
    println!("datasets {}: {count} splits of {} sets", read["version"], sets.len());
    // The files of its cache are read without a download, and without a hub where the cache has the branch.
    hub.asked();
    with(&lab, &hub, &[], &["data", "hf:org/sharded", "--rows", "12"]).succeeded();
    let asked = hub.asked();
    assert!(!asked.iter().any(|(path, _)| path.contains("/resolve/")), "{asked:?}");
    let offline = [("HF_HUB_OFFLINE", "1")];
    with(&lab, &hub, &offline, &["data", "hf:org/configs/main", "--rows", "3"]).succeeded();
    assert_eq!(hub.asked(), []);
}

#[test]
fn a_data_set_is_described_with_its_task_and_files_are_named_by_a_pattern() {
    let (lab, hub) = (lab(), stored_hub());
    let described = |args: &[&str]| {
        let args = [&["data"][..], args, &["--json"]].concat();
        serde_json::from_str::<Value>(&with(&lab, &hub, &[], &args).succeeded().stdout).unwrap()
    };
    let configs = described(&["hf:org/configs", "--split", "test"]);
    assert_eq!(
        (&configs["configs"], &configs["config"]),
        (&json!(["main", "other"]), &json!("main"))
    );
    assert_eq!(configs["splits"][0]["rows"], 3);
    assert_eq!(configs["task"]["question"], "What is 0 + 1, in main test?");
    assert_eq!(described(&["hf:org/chat"])["task"]["question"], "And 4?");
    assert_eq!(described(&["hf:org/talk"])["task"]["question"], "Who?");
    let labels = described(&["hf:org/labels", "--split", "test"]);
    assert_eq!(labels["task"]["data"]["answers"], json!(["no"]));
    let glob = described(&["hf:org/folders:*/a.jsonl"]);
    assert_eq!((&glob["splits"][0]["rows"], &glob["configs"]), (&json!(2), &json!([])));
    let csv = described(&["hf:org/csv"]);
    assert!(csv["notes"][0].as_str().unwrap().contains("refs/convert/parquet"), "{csv}");
    let text = with(&lab, &hub, &[], &["data", "hf:org/configs"]).succeeded().stdout;
    for part in ["configurations: main, other", "question: What is 0 + 1, in main?", "train"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_run_keeps_the_commit_where_the_branch_moves_and_needs_no_hub_to_go_on() {
    let (lab, hub) = (lab(), DataHub::start());
    let rows = |word: &str| {
        let line = |n: usize| {
            let split = ["train", "test", "validation"][n % 3];
            json!({ "question": format!("{word} {n}?"), "split": split })
        };
        (0..12).map(|n| format!("{}\n", line(n))).collect::<String>()
    };
    put(&lab, "first/rows.jsonl", &rows("first"));
    put(&lab, "second/rows.jsonl", &rows("second"));
    let commit = hub.set("me/mine", "main", &lab.path("first"));
    let data = ["--set", "task.data=\"hf:me/mine\"", "--set", "eval.before_and_after=false"];
    let train = ["train", "run.toml", "--out", "run", "--steps", "1"];
    with(&lab, &hub, &[], &[&train[..], &data].concat()).succeeded();
    let resolved = fs::read_to_string(lab.path("run/resolved.toml")).unwrap();
    assert!(resolved.contains(&format!("data = \"hf:me/mine@{commit}\"")), "{resolved}");
    let provenance: Value =
        serde_json::from_str(&fs::read_to_string(lab.path("run/provenance.json")).unwrap())
            .unwrap();
    let file = format!("hf:me/mine@{commit}:rows.jsonl");
    assert_eq!(provenance["files"][&file].as_str().unwrap().len(), 64, "{provenance}");

    let moved = hub.set("me/mine", "main", &lab.path("second"));
    assert_ne!(moved, commit);
    let resume = ["train", "--resume", "run", "--steps", "2"];
    with(&lab, &hub, &[], &resume).succeeded();
    let offline = [("HF_HUB_OFFLINE", "1")];
    let resume = ["train", "--resume", "run", "--steps", "3"];
    with(&lab, &hub, &offline, &resume).succeeded();
    let now = with(&lab, &hub, &[], &["data", "hf:me/mine", "--rows", "1"]).succeeded();
    assert!(now.stdout.contains("second 0?"), "{now}");
}

#[test]
fn several_sets_of_evaluation_have_a_line_each() {
    let (lab, hub) = (lab(), stored_hub());
    let eval =
        "eval.data={ words = \"hf:org/words\", plain = \"hf:org/plain\", own = \"tasks.jsonl\" }";
    let args = ["eval", "run.toml", "--split", "test", "--json", "--set", eval];
    let ended = with(&lab, &hub, &[], &args).succeeded();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let sources: Vec<&String> = report["sources"].as_object().unwrap().keys().collect();
    assert_eq!(sources, ["own", "plain", "words"], "{report}");
    // A set of one split is evaluated whole, and of each set at most `eval.tasks`.
    let tasks = ["own", "plain", "words"].map(|name| report["sources"][name]["tasks"].as_u64());
    assert_eq!(tasks, [Some(4), Some(3), Some(1)], "{report}");
    with(&lab, &hub, &[], &["check", "run.toml", "--set", eval]).succeeded();
    let eval = "eval.data={ sharded = \"hf:org/sharded\" }";
    let check = with(&lab, &hub, &[], &["check", "run.toml", "--set", eval]).failed();
    check.says(&["no tasks in split `test`", "`extra`", "eval.before_and_after"]);
}

#[test]
fn what_the_hub_refuses_is_one_message_with_its_remedy() {
    let (lab, hub) = (lab(), stored_hub());
    let set = |data: &str| format!("task.data=\"{data}\"");
    let check = |data: &str, more: &[&str]| {
        let data = set(data);
        let args = [&["check", "run.toml", "--set", &data][..], more].concat();
        with(&lab, &hub, &[], &args).failed()
    };
    check("hf:org/nothing", &[]).says(&["no such data set or revision (404)", "HF_TOKEN"]);
    check("hf:org/several", &[]).says(&["several configurations, `en`, `fr`", "hf:org/several/en"]);
    check("hf:org/configs/none", &[]).says(&["no configuration `none`", "`main`, `other`"]);
    check("hf:org/a/b/c", &[]).says(&["write `hf:ORG/NAME[/CONFIG][@REVISION][:GLOB]`"]);
    let part = ["--set", "task.split=\"train[:3]\""];
    check("hf:org/plain", &part).says(&["task.limit"]);
    let other = ["--set", "task.split=\"other\""];
    check("hf:org/words", &other).says(&["no tasks in split `other`", "`train`", "`test`"]);
    put(&lab, "only/rows.csv", "a,b\n1,2\n");
    hub.set("org/only", "main", &lab.path("only"));
    check("hf:org/only", &[]).says(&["`rows.csv`", "no Parquet of it"]);
    put(&lab, "tree/hello/task.toml", "");
    hub.set("org/tree", "main", &lab.path("tree"));
    check("hf:org/tree", &[]).says(&["Harbor"]);
    hub.fault("org/sharded", Some(DataFault::Gated));
    let page = format!("{}/datasets/org/sharded", hub.address());
    check("hf:org/sharded", &[]).says(&["denies access", &page, "HF_TOKEN"]);
    hub.fault("org/sharded", Some(DataFault::Damaged));
    check("hf:org/sharded", &[]).says(&["it came damaged"]);
    let args = ["check", "run.toml", "--set", &set("hf:org/never")];
    with(&lab, &hub, &[("HF_HUB_OFFLINE", "1")], &args)
        .failed()
        .says(&["hf:org/never", "HF_HUB_OFFLINE"]);
}

#[test]
fn a_download_that_was_cut_goes_on_where_it_ended() {
    let (lab, hub) = (lab(), stored_hub());
    let args = ["data", "hf:org/sharded", "--rows", "1"];
    hub.fault("org/sharded", Some(DataFault::Cut));
    with(&lab, &hub, &[], &args)
        .failed()
        .says(&["cannot download `data/train-00000-of-00003.parquet`"]);
    hub.fault("org/sharded", None);
    hub.asked();
    with(&lab, &hub, &[], &args).succeeded();
    let asked = hub.asked();
    let first = asked.iter().find(|(path, _)| path.ends_with("train-00000-of-00003.parquet"));
    let half = fs::metadata(fixtures().join("sharded/data/train-00000-of-00003.parquet"));
    assert_eq!(first.map(|(_, from)| *from), Some(half.unwrap().len() as usize / 2));
}

#[test]
fn a_process_that_is_killed_while_it_downloads_leaves_no_damaged_file() {
    let (lab, hub) = (lab(), stored_hub());
    let args = ["data", "hf:org/sharded", "--rows", "12"];
    hub.fault("org/sharded", Some(DataFault::Stalled));
    for _ in 0..3 {
        let mut download = command(&lab, &hub, &args);
        let mut child = download.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let is_file = |(path, _): &(String, usize)| path.ends_with("train-00000-of-00003.parquet");
        wait_until("the file is half there", || hub.asked().iter().any(is_file));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    hub.fault("org/sharded", None);
    let whole = with(&lab, &hub, &[], &args).succeeded().stdout;
    let fresh = with(&lab, &hub, &[("HF_HOME", "another")], &args).succeeded().stdout;
    assert_eq!(whole.lines().count(), 12);
    assert_eq!(whole, fresh);
}

#[test]
fn a_split_that_is_too_large_is_refused_or_read_up_to_the_limit() {
    let (lab, hub) = (lab(), DataHub::start());
    let row = |n: usize| json!({ "question": format!("{n} {}", "x".repeat(700_000)) });
    for shard in 0..3 {
        let lines: String = (0..1).map(|n| format!("{}\n", row(shard + n))).collect();
        put(&lab, &format!("large/data/train-0000{shard}-of-00003.jsonl"), &lines);
    }
    hub.set("me/large", "main", &lab.path("large"));
    let set = ["task.data=\"hf:me/large\"", "task.max_mib=1", "eval.before_and_after=false"];
    let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    let args = [&["check", "run.toml"][..], &set].concat();
    with(&lab, &hub, &[], &args).failed().says(&[
        "`train` have 2 MiB",
        "task.max_mib",
        "task.limit",
    ]);
    hub.asked();
    let args = [&args[..], &["--set", "task.limit=1"]].concat();
    with(&lab, &hub, &[], &args);
    let files = hub.asked().into_iter().filter(|(path, _)| path.ends_with(".jsonl")).count();
    assert_eq!(files, 1);
}

#[test]
fn known_data_sets_are_tasks_as_they_are() {
    let (lab, hub) = (lab(), DataHub::start());
    let chat =
        json!([{ "role": "user", "content": "Q?" }, { "role": "assistant", "content": "A" }]);
    let prompt = json!([{ "role": "user", "content": "Q?" }]);
    let cases: &[(&str, Value)] = &[
        ("openai/gsm8k", json!({ "question": "Q?", "answer": "1 + 1 = 2\n#### 2" })),
        (
            "DigitalLearningGmbH/MATH-lighteval",
            json!({ "problem": "Q?", "solution": "\\boxed{2}", "level": "Level 1", "type": "Algebra" }),
        ),
        (
            "HuggingFaceH4/MATH-500",
            json!({ "problem": "Q?", "solution": "..", "answer": "2", "subject": "Algebra", "level": 1, "unique_id": "a" }),
        ),
        (
            "HuggingFaceH4/aime_2024",
            json!({ "id": 60, "problem": "Q?", "solution": "..", "answer": "204", "url": "u", "year": "2024" }),
        ),
        (
            "zwhe99/DeepMath-103K",
            json!({ "question": "Q?", "final_answer": "2", "difficulty": 4.5, "topic": "t", "r1_solution_1": ".." }),
        ),
        ("zhuzilin/dapo-math-17k", json!({ "prompt": prompt, "label": "34" })),
        (
            "PeterJinGo/nq_hotpotqa_train",
            json!({ "id": "a", "question": "Q?", "golden_answers": ["x"], "data_source": "nq", "prompt": prompt, "ability": "fact", "reward_model": { "ground_truth": { "target": ["x"] }, "style": "rule" } }),
        ),
        (
            "RUC-NLPIR/FlashRAG_datasets",
            json!({ "id": "test_0", "question": "Q?", "golden_answers": ["x"] }),
        ),
        ("trl-lib/Capybara", json!({ "source": "s", "messages": chat, "num_turns": 1 })),
        ("trl-lib/tldr", json!({ "prompt": "Q?", "completion": "A" })),
        ("allenai/tulu-3-sft-mixture", json!({ "id": "a", "messages": chat, "source": "s" })),
    ];
    for (n, (repo, row)) in cases.iter().enumerate() {
        put(&lab, &format!("known-{n}/train.jsonl"), &format!("{row}\n"));
        hub.set(repo, "main", &lab.path(&format!("known-{n}")));
        let args = ["data", &format!("hf:{repo}"), "--json"];
        let ended = with(&lab, &hub, &[], &args).succeeded();
        let described: Map<String, Value> = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(described["task"]["question"], "Q?", "{repo}: {ended}");
        let answered = described["task"]["data"].get("answers").is_some();
        assert_eq!(answered, n < 8, "{repo}: {ended}");
    }
}

#[test]
fn demonstrations_pairs_and_documents_may_be_on_the_hub() {
    let (lab, hub) = (lab(), stored_hub());
    lab.configuration("sft.toml", "sft", "hf:org/talk");
    with(&lab, &hub, &[], &["check", "sft.toml"]).succeeded();
    lab.configuration("few.toml", "sft", "hf:org/plain:b.jsonl");
    with(&lab, &hub, &[], &["check", "few.toml"]).succeeded();
    let chosen = json!({ "prompt": "a", "chosen": "b", "rejected": "c" });
    put(&lab, "pairs/train.jsonl", &format!("{chosen}\n"));
    hub.set("org/pairs", "main", &lab.path("pairs"));
    lab.configuration("dpo.toml", "dpo", "hf:org/pairs");
    with(&lab, &hub, &[], &["check", "dpo.toml"]).succeeded();
    let document = |n: usize| json!({ "id": format!("d{n}"), "title": "T", "text": "words" });
    for n in 0..2 {
        let name = format!("docs/data/train-0000{n}-of-00002.jsonl");
        put(&lab, &name, &format!("{}\n", document(n)));
    }
    hub.set("org/docs", "main", &lab.path("docs"));
    let check = |corpus: &str| {
        let corpus = format!("environment.corpus={corpus:?}");
        with(&lab, &hub, &[], &["check", "example:search_orchestra", "--set", &corpus])
    };
    check("hf:org/docs").succeeded();
    check("hf:org/none").failed().says(&["no such data set", "corpus"]);
}
