//! Data sets from the episodes of runs.

use std::fs;

use maverl_tests::lab::Lab;
use serde_json::Value;

use crate::lab;

fn rows(lab: &Lab, file: &str) -> Vec<Value> {
    let text = fs::read_to_string(lab.path(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_becomes_data_sets_that_supervised_training_and_dpo_learn_from() {
    let lab = lab();
    lab.train("run", &["steps=3"]);
    let collect = |out: &str| {
        let kinds = "sft,preference,verifier,steps";
        let args = ["collect", "--from", "run", "--as", kinds, "--margin", "0.01", "--out", out];
        let told = lab.run(&args).succeeded().stdout;
        assert!(told.contains("rows of `sft`, ") && told.contains(" 24 episodes"), "{told}");
    };
    collect("data");
    collect("again");
    let names = ["sft", "preference", "verifier", "steps"].map(|kind| format!("{kind}.jsonl"));
    let beside = ["provenance.json".to_owned(), "card.md".to_owned()];
    for name in names.iter().chain(&beside) {
        let [one, other] = ["data", "again"].map(|dir| fs::read(lab.path(dir).join(name)).unwrap());
        assert!(one == other && !one.is_empty(), "{name}");
    }
    for row in rows(&lab, "data/sft.jsonl") {
        assert_eq!(row["messages"].as_array().unwrap().last().unwrap()["role"], "assistant");
        let origin = &row["maverl"];
        assert_eq!((&origin["run"], &origin["stage"]), (&"run".into(), &"train".into()));
        assert!(origin["weights"].is_string() && origin["reward"].is_number(), "{origin}");
    }
    let provenance: Value =
        serde_json::from_slice(&fs::read(lab.path("data/provenance.json")).unwrap()).unwrap();
    let source = &provenance["sources"][0];
    assert!(source["files"]["rollouts/step-000003.jsonl.zst"]["sha256"].is_string(), "{source}");
    for (name, data) in [("sft", "data/sft.jsonl"), ("dpo", "data/preference.jsonl")] {
        let set = [
            &format!("algorithm.name=\"{name}\"") as &str,
            &format!("task.data=\"{data}\""),
            "steps=2",
        ];
        let learned = lab.train(name, &set);
        assert_eq!(learned.json("summary.json")["complete"], true, "{name}");
    }
    let args = ["collect", "--from", "run", "--steps", "7..9", "--as", "sft", "--out", "none"];
    lab.run(&args).failed().says(&["`run` has no rollouts in `--steps`; it has steps 1 to 3"]);
    let args = ["collect", "--from", "run", "--seat", "quiz/asker", "--as", "sft", "--out", "none"];
    lab.run(&args).failed().says(&["no episode has the seat `quiz/asker`; seats: `", "`"]);
    let args = ["collect", "--as", "sft", "--out", "none"];
    lab.run(&args).failed().says(&["give `--from RUN`, `--run RUN` or a configuration"]);
    let args =
        ["collect", "--from", "run", "--match", "nothing like it", "--as", "sft", "--out", "none"];
    lab.run(&args).failed().says(&["no rows are left of"]);
    assert!(!lab.path("none").exists());
}

#[test]
fn episodes_are_played_for_a_data_set_with_a_checkpoint_and_split_by_task() {
    let lab = lab();
    lab.train("run", &["steps=2", "checkpoint.every=1"]);
    let args = [
        "collect",
        "--run",
        "run",
        "--checkpoint",
        "1",
        "--samples",
        "3",
        "--temperature",
        "1.3",
        "--as",
        "verifier",
        "--dedup",
        "none",
        "--test-share",
        "0.3",
        "--out",
        "data",
    ];
    lab.run(&args).succeeded();
    let [train, test] =
        ["train", "test"].map(|split| rows(&lab, &format!("data/verifier-{split}.jsonl")));
    assert!(!train.is_empty() && !test.is_empty());
    let tasks = |rows: &[Value]| -> std::collections::BTreeSet<String> {
        rows.iter().map(|row| row["maverl"]["task"].to_string()).collect()
    };
    assert!(tasks(&train).is_disjoint(&tasks(&test)));
    // Half of the 36 tasks are of the training split.
    assert_eq!(tasks(&train).len() + tasks(&test).len(), 18);
    for row in train.iter().chain(&test) {
        assert_eq!(row["label"], row["maverl"]["solved"]);
        assert!((row["maverl"]["temperature"].as_f64().unwrap() - 1.3).abs() < 1e-6, "{row}");
        assert_eq!(row["maverl"]["stage"], "eval/train");
    }
    // `task.limit` is the number of tasks, unless `--tasks` or `--quick` says so.
    for (most, set) in [
        (5, &["--set", "task.limit=5"][..]),
        (3, &["--set", "task.limit=5", "--tasks", "3"]),
        (4, &["--quick"]),
    ] {
        let out = format!("most-{most}");
        let own = ["collect", "--run", "run", "--samples", "1", "--as", "verifier", "--out", &out];
        let told = lab.run(&[&own[..], set].concat()).succeeded().stdout;
        assert!(told.contains(&format!(" from {most} episodes")), "{told}");
    }
    // Several checkpoints and temperatures.
    let mut args = args.to_vec();
    for (name, value) in [("--checkpoint", "1,2"), ("--temperature", "0.7,1.5"), ("--out", "more")]
    {
        let at = args.iter().position(|arg| *arg == name).unwrap();
        args[at + 1] = value;
    }
    lab.run(&args).succeeded();
    let all = ["train", "test"].map(|split| rows(&lab, &format!("more/verifier-{split}.jsonl")));
    let mut found = std::collections::BTreeMap::new();
    for row in all.iter().flatten() {
        let origin = &row["maverl"];
        let temperature = format!("{:.1}", origin["temperature"].as_f64().unwrap());
        *found.entry((origin["version"].as_u64(), temperature)).or_insert(0) += 1;
    }
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found.values().all(|rows| *rows >= 54), "{found:?}");
    let provenance = fs::read_to_string(lab.path("more/provenance.json")).unwrap();
    let provenance: Value = serde_json::from_str(&provenance).unwrap();
    let played = |source: &Value| source["played"]["seed"].as_str().unwrap().to_owned();
    let seeds: std::collections::BTreeSet<String> =
        provenance["sources"].as_array().unwrap().iter().map(played).collect();
    assert_eq!(seeds.len(), 4);
    // Replies that are asked for are trained on alone.
    let mut asked = args.clone();
    let at = asked.iter().position(|arg| *arg == "more").unwrap();
    asked[at] = "asked";
    asked.extend(["--ask", "Give a wrong answer."]);
    lab.run(&asked).succeeded();
    let all = ["train", "test"].map(|split| rows(&lab, &format!("asked/verifier-{split}.jsonl")));
    let [train, test] = all.map(|rows| {
        let asked = |row: &&Value| row["maverl"]["asked"] == "Give a wrong answer.";
        assert!(rows.iter().all(|row| !row["prompt"].to_string().contains("wrong answer")));
        (rows.iter().filter(asked).count(), rows.len())
    });
    assert!(train.0 > 0 && train.0 < train.1 && test.0 == 0 && test.1 > 0, "{train:?} {test:?}");
    let card = fs::read_to_string(lab.path("data/card.md")).unwrap();
    assert!(card.contains("path: verifier-test.jsonl") && card.contains("label `false`"), "{card}");
}

/// Returns the provenance of a data set.
fn provenance(lab: &Lab, out: &str) -> Value {
    serde_json::from_slice(&fs::read(lab.path(out).join("provenance.json")).unwrap()).unwrap()
}

#[test]
fn rows_come_from_the_training_data_unless_the_file_of_evaluations_is_named() {
    let lab = lab();
    let held = |i: usize| format!("{{\"id\": \"h{i}\", \"question\": \"held out {i}?\"}}\n");
    lab.write("held.jsonl", &(0..5).map(held).collect::<String>());
    let played = |out: &str, set: &[&str], more: &[&str]| {
        let own = [
            "collect",
            "run.toml",
            "--samples",
            "1",
            "--as",
            "sft",
            "--dedup",
            "none",
            "--out",
            out,
        ];
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
        lab.run(&[&own[..], &set, more].concat())
    };
    let tasks = |out: &str| -> std::collections::BTreeSet<String> {
        let rows = rows(&lab, &format!("{out}/sft.jsonl"));
        rows.iter().map(|row| row["maverl"]["task"].as_str().unwrap().to_owned()).collect()
    };
    let eval = ["eval.data=\"held.jsonl\""];
    let warned = "warning: the rows come from";
    // Every split is one of the training data; 6 of its 36 tasks are of validation.
    for (out, split, n) in
        [("v", "validation", 6), ("t", "test", 12), ("tr", "train", 18), ("a", "all", 36)]
    {
        let ended = played(out, &eval, &["--split", split]).succeeded();
        assert!(!ended.stderr.contains(warned), "{split}: {ended}");
        let tasks = tasks(out);
        assert!(tasks.len() <= n && tasks.iter().all(|task| task.starts_with('t')), "{tasks:?}");
        let files = &provenance(&lab, out)["sources"][0]["files"];
        assert_eq!(files.as_object().unwrap().keys().collect::<Vec<_>>(), ["tasks.jsonl"]);
        let hash = maverl::run_dir::FileHash::read(&lab.path("tasks.jsonl")).unwrap();
        assert_eq!(files["tasks.jsonl"]["sha256"], hash.sha256);
    }
    let ended = played("h", &eval, &["--data", "eval.data"]).succeeded();
    assert!(tasks("h").iter().all(|task| task.starts_with('h')));
    ended.says(&[
        "warning: the rows come from \"held.jsonl\", the file of `eval.data`",
        "name other data with `--data`",
    ]);
    let files = &provenance(&lab, "h")["sources"][0]["files"];
    assert_eq!(files.as_object().unwrap().keys().collect::<Vec<_>>(), ["held.jsonl"]);
    // The file of evaluations by another name, and without one the splits that are evaluated on.
    let same = ["eval.data=\"./tasks.jsonl\""];
    played("s", &same, &[]).succeeded().says(&["\"tasks.jsonl\", the file of `eval.data`"]);
    let test = ["--split", "test"];
    played("n", &[], &test)
        .succeeded()
        .says(&["split \"test\", which has tasks of `eval.test_split`"]);
    let all = ["--split", "all"];
    played("na", &[], &all)
        .succeeded()
        .says(&["split \"all\", which has tasks of `eval.test_split`"]);
    let validation = ["--split", "validation"];
    assert!(!played("nv", &[], &validation).succeeded().stderr.contains(warned));
    let during = ["eval.every=2"];
    let told = "split \"validation\", which has tasks of `eval.split`";
    played("nw", &during, &validation).succeeded().says(&[told]);
    assert!(!played("p", &[], &[]).succeeded().stderr.contains(warned));
    let none = played("x", &[], &["--data", "eval.data"]).failed();
    none.says(&["`--data eval.data`: the configuration has no `eval.data`"]);
    assert!(!lab.path("x").exists());
    // The recorded episodes of a run that trained on what it evaluates.
    let set = ["steps=1", "eval.before_and_after=false", "eval.data=\"./tasks.jsonl\""];
    let run = lab.train("run", &set);
    let args = ["collect", "--from", "run", "--as", "sft", "--out", "from"];
    lab.run(&args).succeeded().says(&["\"tasks.jsonl\", the file of `eval.data`"]);
    let hash = maverl::run_dir::FileHash::read(&lab.path("tasks.jsonl")).unwrap().sha256;
    assert_eq!(run.json("provenance.json")["files"], serde_json::json!({"tasks.jsonl": hash}));
}

#[test]
fn the_provenance_of_a_run_names_every_data_file_with_its_hash() {
    let lab = lab();
    let held = "{\"question\": \"held out?\"}\n";
    lab.write("held.jsonl", held);
    let hash = |name: &str| maverl::run_dir::FileHash::read(&lab.path(name)).unwrap().sha256;
    let run = lab.train("run", &["steps=1", "eval.data=\"held.jsonl\""]);
    let both =
        serde_json::json!({"held.jsonl": hash("held.jsonl"), "tasks.jsonl": hash("tasks.jsonl")});
    assert_eq!(run.json("provenance.json")["files"], both);
    // A file with the same tasks in other bytes is no other data.
    lab.write("held.jsonl", &format!("{held}\n\n"));
    lab.run(&["train", "--resume", "run", "--steps", "2"]).succeeded();
    lab.write("held.jsonl", "{\"question\": \"another?\"}\n");
    lab.run(&["train", "--resume", "run", "--steps", "3"]).failed().says(&["held out test"]);
    let none = lab.train("none", &["steps=0", "task.data=\"builtin:facts\""]);
    assert!(none.json("provenance.json").get("files").is_none());
}
