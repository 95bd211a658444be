//! Output of the other commands.

use std::process::Stdio;

use maverl::eval::{Comparison, EvalReport};
use serde_json::Value;

use maverl_tests::lab::{Ended, Run, train_args};

use crate::lab;

#[test]
fn list_names_everything_that_is_linked_in() {
    let lab = lab();
    let wide = lab.command(&["list"]).env("COLUMNS", "1000").output().unwrap();
    let text = Ended::of(&wide).succeeded().stdout;
    let lines = [
        ("orchestra", "duo/relay", "One opens, the other closes."),
        ("orchestra", "search/route", "max_turns = 3"),
        ("agent", "duo/opener", "Says anything."),
        ("agent", "search/verifier", ""),
        ("environment", "letters", "delay_ms = 0"),
        ("environment", "search", "top_k = 3"),
        ("reward", "length", "Pays every turn for the length of its reply."),
    ];
    for (kind, name, more) in lines {
        let has = |line: &&str| line.contains(kind) && line.contains(name) && line.contains(more);
        assert!(text.lines().any(|line| has(&line)), "{kind} {name} is missing in\n{text}");
    }
}

#[test]
fn every_table_fits_60_80_and_120_columns() {
    let lab = lab();
    lab.train("run", &["steps=1"]);
    let config = ["run.toml", "--set", "agents.\"duo/closer\".worker_group=\"own\""];
    let commands: [&[&str]; 8] = [
        &["list"],
        &["explain"],
        &["explain", "algorithm"],
        &["explain", "sampling"],
        &["check", config[0], config[1], config[2]],
        &["eval", "--run", "run", "--set", "eval.samples=8"],
        &["eval", "--compare", "--run", "run", "--single", "duo/alone"],
        &["info", "run"],
    ];
    for command in commands {
        for columns in ["60", "80", "120"] {
            let output = lab.command(command).env("COLUMNS", columns).output().unwrap();
            let text = Ended::of(&output).succeeded().stdout;
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            let columns: usize = columns.parse().unwrap();
            assert!(widest <= columns, "{command:?}: {widest} at {columns}\n{text}");
        }
    }
}

#[test]
fn a_wrong_configuration_is_told_to_machines_as_json() {
    let lab = lab();
    let args = ["check", "run.toml", "--json", "--set", "steps=1e3", "--set", "task.gruop_size=4"];
    let ended = lab.run(&args);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""), "{ended}");
    let json: Value = serde_json::from_str(&ended.stdout).unwrap();
    let problems = json["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 2, "{ended}");
    assert_eq!((&problems[0]["key"], &problems[0]["source"]), (&"steps".into(), &"--set".into()));
    assert_eq!(problems[1]["help"], "did you mean `group_size`?");
    // Without `--json`, the same exit code and the same place.
    lab.run(&[&args[..2], &args[3..]].concat()).failed().says(&["--set:1:7", "`steps = 1000`"]);
}

#[test]
fn a_run_directory_in_the_place_of_a_configuration_is_answered_with_resume() {
    let lab = lab();
    lab.train("run", &["steps=0"]);
    for command in ["train", "check", "eval"] {
        let ended = lab.run(&[command, "run"]).failed();
        ended.says(&["run is a directory", "`team train --resume run`", "`team eval --run run`"]);
    }
    lab.run(&["info", "rum"])
        .failed()
        .says(&["there is no directory `rum`", "did you mean `run`?"]);
    lab.run(&["export", "--out", "x"]).says(&["--run <RUN>", "exports a policy of a run"]);
}

#[test]
fn check_prints_the_plan_for_people_and_for_machines() {
    let lab = lab();
    let own = ["check", "run.toml", "--set", "agents.\"duo/closer\".worker_group=\"own\""];
    let table = lab.run(&own).succeeded().stdout;
    for part in ["duo/relay", "duo/opener", "duo/closer", "own", "2 tasks x 4 episodes"] {
        assert!(table.contains(part), "{part} is missing in\n{table}");
    }
    let json = lab.run(&[&own[..], &["--json"]].concat()).succeeded().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["summary"]["step"]["episodes"], 8);
    let workers = json["summary"]["workers"].as_array().unwrap();
    assert_eq!(workers.iter().map(|w| &w["name"]).collect::<Vec<_>>(), ["own", "tiny"]);
    // Embedding 280 x 32; a layer: norms, q, k, v with biases, o, and the MLP; the last norm.
    let layer = 2 * 32 + (32 * 32 + 32) + 2 * (32 * 16 + 16) + 32 * 32 + 3 * 32 * 48;
    let parameters = 280 * 32 + 2 * layer + 32;
    assert_eq!(workers[0]["parameters"], parameters);
    assert_eq!(workers[0]["weight_bytes"], 4 * parameters);
    assert_eq!(json["plan"]["seats"][0]["seat"], "duo/closer");
    assert!(!lab.path("runs").exists(), "checking writes nothing");
}

#[test]
fn eval_reports_every_k_with_intervals() {
    let lab = lab();
    let args = ["eval", "run.toml", "--set", "eval.samples=4", "--split", "validation"];
    let table = lab.run(&args).succeeded().stdout;
    assert!(table.contains("avg@4 (95 %)") && table.contains("pass@4"), "{table}");
    let json = lab.run(&[&args[..], &["--json"]].concat()).succeeded().stdout;
    let report: EvalReport = serde_json::from_str(&json).unwrap();
    assert_eq!((report.split.as_str(), report.samples), ("validation", 4));
    assert_eq!((report.overall.tasks, report.overall.episodes), (4, 16));
    assert_eq!(report.overall.pass.keys().copied().collect::<Vec<_>>(), [1, 2, 4]);
    for estimate in report.overall.pass.values().chain([&report.overall.avg]) {
        assert!(estimate.low <= estimate.mean && estimate.mean <= estimate.high, "{estimate}");
    }
    assert_eq!(report.sources["tasks"], report.overall);
}

#[test]
fn a_trained_team_is_compared_with_what_its_tokens_could_have_bought() {
    let lab = lab();
    lab.train("run", &[]);
    let args = ["eval", "--compare", "--run", "run", "--single", "duo/alone"];
    let table = lab.run(&args).succeeded().stdout;
    for part in ["4 tasks of `test`", "trained team ahead by (95", "majority vote"] {
        assert!(table.contains(part), "{part} is missing in\n{table}");
    }
    let json = lab.run(&[&args[..], &["--json"]].concat()).succeeded().stdout;
    let Comparison { tasks, left_out, sides, .. } = serde_json::from_str(&json).unwrap();
    assert_eq!((tasks, left_out), (4, 0));
    let names: Vec<&str> = sides.iter().map(|side| side.name.as_str()).collect();
    assert_eq!(names, ["trained team", "untrained team", "single agent", "majority vote"]);
    let budget = sides[0].sampled_tokens.ceil();
    assert!(sides[2].sampled_tokens <= budget, "{json}");
    // The number of votes derives from the average tokens of one reply, and the votes are other draws.
    assert!(sides[3].samples >= 1 && sides[3].sampled_tokens <= 2.0 * budget, "{json}");
    assert!(sides[0].first_ahead.is_none());
    for side in &sides[1..] {
        let ahead = side.first_ahead.unwrap();
        assert!((sides[0].solved.mean - side.solved.mean - ahead.mean).abs() < 1e-12, "{json}");
        // Four tasks with equal differences have no interval.
        assert!(!ahead.is_known() || (ahead.low..=ahead.high).contains(&ahead.mean), "{json}");
    }
    // Without a name, an orchestra that acts is used, as the team does.
    lab.run(&args[..4]).succeeded();
}

#[test]
fn a_comparison_that_cannot_be_made_says_what_would_do() {
    let lab = lab();
    let compare = |more: &[&str]| lab.run(&[&["eval", "--compare"], more].concat());
    let usage = compare(&[]);
    assert_eq!(usage.code, Some(2));
    assert!(usage.stderr.contains("--run <DIR>"), "{}", usage.stderr);
    lab.train("run", &["steps=0"]);
    let run = |more: &[&str]| compare(&[&["--run", "run"], more].concat()).failed();
    run(&["--single", "duo/relay"]).says(&["`duo/relay` is none", "`duo/alone`", "`solo/act`"]);
    run(&["--model", "large"]).says(&["no model of the team is called `large`", "`tiny`"]);
    lab.model("other", 128);
    let two = [
        "models.large.path=\"other\"",
        "agents.\"duo/closer\".model=\"large\"",
        "agents.\"duo/opener\".model=\"tiny\"",
        "steps=0",
    ];
    lab.train("two", &two);
    compare(&["--run", "two"]).failed().says(&["several models, `large`, `tiny`", "--model"]);
    let alone = ["--single", "duo/alone"];
    compare(&[&["--run", "two", "--model", "large"][..], &alone].concat()).succeeded();
}

#[test]
fn a_run_says_how_it_went_in_its_summary_its_table_and_info() {
    let lab = lab();
    let out = lab.run(&["train", "run.toml", "--out", "run", "--seed", "9"]).succeeded();
    let run = maverl_tests::lab::Run(lab.path("run"));
    let summary = run.json("summary.json");
    assert_eq!((&summary["complete"], &summary["seed"]), (&Value::from(true), &Value::from(9)));
    for when in ["before", "after"] {
        let score = summary[when]["exact_match"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&score));
        assert_eq!(summary[when]["tasks"], 4);
    }
    assert!(summary["train_seconds"].as_f64().unwrap() > 0.0);
    assert!(summary["agents"]["duo/opener"]["calls"].as_u64().unwrap() >= 32);
    let info = lab.run(&["info", "run"]).succeeded().stdout;
    for text in [&out.stdout, &info] {
        for part in ["before", "after", "duo/opener", "duo/closer", "reply errors", "run"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
    assert!(info.contains("steps 2, 4"), "{info}");
    out.says(&["solved before training", "step 4/4: score "]);
}

#[test]
fn the_configuration_in_a_run_directory_has_what_the_command_line_gave_and_makes_the_run_again() {
    let lab = lab();
    let quick = ["train", "run.toml", "--quick", "--set", "sampling.max_tokens=9", "--steps", "1"];
    lab.run(&[&quick[..], &["--out", "deep/run"]].concat()).succeeded();
    let run = maverl_tests::lab::Run(lab.path("deep/run"));
    let config = String::from_utf8(run.bytes("config.toml")).unwrap();
    for part in ["#   --set steps=1\n", "\nsteps = 1\n", "max_tokens = 9", "base = \"../..\""] {
        assert!(config.contains(part), "{part:?} is missing in\n{config}");
    }
    for file in ["config", "resolved"] {
        let path = format!("deep/run/{file}.toml");
        lab.run(&["train", &path, "--out", file]).succeeded();
        run.equals(&maverl_tests::lab::Run(lab.path(file)));
    }
}

#[test]
fn seeds_are_trained_one_after_the_other_and_runs_are_listed() {
    let lab = lab();
    let sweep = ["train", "run.toml", "--steps", "1", "--seeds", "0..2", "--out", "sweep"];
    let table = lab.run(&sweep).succeeded().stdout;
    for part in ["solved before", "mean (95 %)", "sweep"] {
        assert!(table.contains(part), "{part} is missing in\n{table}");
    }
    // In a second call, existing runs are unchanged.
    let again = lab.run(&sweep).succeeded();
    assert_eq!(again.stdout, table);
    again.says(&["the run is complete"]);
    lab.train("alone", &["steps=1", "seed=1"]);
    maverl_tests::lab::Run(lab.path("alone"))
        .equals(&maverl_tests::lab::Run(lab.path("sweep/seed-1")));
    let list = lab.run(&["runs", "."]).succeeded().stdout;
    assert_eq!(list.matches("complete").count(), 3, "{list}");
    let json = lab.run(&["runs", "sweep", "--json"]).succeeded().stdout;
    let runs: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&runs[1]["name"], &runs[1]["seed"]), (&"seed-1".into(), &1.into()), "{json}");
    lab.run(&["runs", "model"]).failed().says(&["there is no run in `model`"]);
}

#[test]
fn the_episodes_of_an_evaluation_are_kept_where_it_is_told() {
    let lab = lab();
    let args = ["eval", "run.toml", "--set", "eval.tasks=2", "--episodes", "played.jsonl.zst"];
    lab.run(&args).succeeded();
    let episodes = maverl::run_dir::read_rollouts(&lab.path("played.jsonl.zst")).unwrap();
    assert_eq!(episodes.len(), 2);
    assert!(episodes.iter().all(|episode| !episode.turns.is_empty()));
}

#[test]
fn runs_without_a_name_are_numbered() {
    let lab = lab();
    for _ in 0..2 {
        lab.run(&["train", "run.toml", "--steps", "0"]).succeeded();
    }
    assert!(lab.path("runs/run-1/summary.json").exists());
    assert!(lab.path("runs/run-2/summary.json").exists());
}

const BENCH: [&str; 6] = ["bench", "rollout", "--size", "S", "--repeats", "1"];

#[test]
fn bench_gives_figures_for_machines() {
    let lab = lab();
    let json = lab.run(&[&BENCH[..], &["--json"]].concat()).succeeded().stdout;
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["part"], &report["size"]), (&"rollout".into(), &"S".into()));
    let figure = &report["figures"][0];
    assert_eq!(
        (figure["what"].as_str(), figure["unit"].as_str()),
        (Some("64 rows"), Some("new tokens/s"))
    );
    assert_eq!(
        (figure["values"].as_array().unwrap().len(), &figure["min"]),
        (1, &figure["median"])
    );
    assert!(
        figure["gflops"].as_f64().unwrap() > 0.0 && report["matmul_gflops"].as_f64().unwrap() > 0.0
    );
}

/// Measures two parts, each in a separate process.
#[test]
#[ignore = "second tier: takes ten seconds"]
fn bench_gives_figures_for_people() {
    let table = lab().run(&[&BENCH[..], &["sft"]].concat()).succeeded().stdout;
    for part in ["size S, f32", "rollout", "sft", "new tokens/s", "% "] {
        assert!(table.contains(part), "{part} is missing in\n{table}");
    }
}

#[test]
fn bench_says_what_is_wrong_with_what_it_is_given() {
    let lab = lab();
    let stderr = lab.run(&["bench", "sft", "--set", "runtime.micro_batch_token=1"]).failed().stderr;
    assert!(stderr.contains("did you mean `micro_batch_tokens`?"), "{stderr}");
}

#[test]
fn a_closed_reader_of_standard_error_does_not_end_a_run() {
    let lab = lab();
    let args = train_args("run", &["steps=2"]);
    let mut child =
        lab.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(Run(lab.path("run")).json("summary.json")["complete"], true);
    let mut child = lab
        .command(&["check", "none.toml"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_file_for_evaluation_is_evaluated_whole_and_a_task_without_a_reference_is_refused() {
    let lab = lab();
    let row =
        |i: usize| format!("{{\"question\": \"What is {i}+1?\", \"answer\": \"{}\"}}\n", i + 1);
    lab.write("held.jsonl", &(0..30).map(row).collect::<String>());
    let math = [
        "environment.name=\"math\"",
        "orchestra.name=\"duo/alone\"",
        "task.data=\"builtin:arithmetic\"",
    ];
    let run = |command: &str, set: &[&str], more: &[&str]| {
        let set: Vec<&str> = math.iter().chain(set).flat_map(|set| ["--set", set]).collect();
        lab.run(&[&[command, "run.toml"][..], &set, more].concat())
    };
    let held = ["eval.data=\"held.jsonl\"", "eval.tasks=100"];
    run("check", &held, &[]).succeeded().prints(&["test 30"]);
    let report: Value =
        serde_json::from_str(&run("eval", &held, &["--json"]).succeeded().stdout).unwrap();
    assert_eq!(report["overall"]["tasks"], 30, "{report}");
    let missing = "{\"question\": \"1+1?\", \"answer\": \"2\"}\n{\"question\": \"2+2?\"}\n";
    lab.write("held.jsonl", missing);
    let wanted =
        "environment `math`: held.jsonl:2: the task `2` of `held` has no answer to judge by";
    for command in ["check", "eval"] {
        run(command, &held, &[]).failed().says(&[wanted]);
    }
    let set = [&math[..], &held].concat();
    lab.fails("out", &set).says(&[wanted]);
    // The data of training, of whatever split.
    let own = ["task.data=\"held.jsonl\""];
    run("eval", &own, &["--split", "all"]).failed().says(&[wanted]);
    let collect = ["--split", "all", "--as", "sft", "--out", "rows"];
    run("collect", &own, &collect).failed().says(&[wanted]);
    assert!(!lab.path("rows").exists());
}
