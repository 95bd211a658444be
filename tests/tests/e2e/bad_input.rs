//! Mistakes of users end with an error that has the problem and its place, and lose nothing.

use std::fs;
use std::path::PathBuf;

use maverl_tests::lab::Lab;
use serde_json::Value;

use crate::lab;

const QUICK: &str = "eval.before_and_after=false";

/// Changes a JSON file of the model.
fn change(lab: &Lab, file: &str, change: impl FnOnce(&mut Value)) {
    let path = lab.path("model").join(file);
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    fs::write(path, json.to_string()).unwrap();
}

/// Returns the weights of the newest checkpoint of a run of four steps.
fn weights(lab: &Lab) -> PathBuf {
    lab.path("run/checkpoints/step-000004/policies/tiny/model.safetensors")
}

#[test]
fn a_missing_model_directory_is_named_with_its_key() {
    let lab = lab();
    let ended = lab.fails("run", &["models.tiny.path=\"nowhere\""]);
    ended.says(&["nowhere", "models.tiny.path", "Hugging Face model directory"]);
    assert!(!lab.path("run").exists());
}

#[test]
fn weights_cut_short_are_named() {
    let lab = lab();
    let path = lab.path("model/model.safetensors");
    let bytes = fs::read(&path).unwrap();
    for keep in [0, 7, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..keep]).unwrap();
        lab.fails("run", &[]).says(&["model.safetensors"]);
    }
    fs::write(&path, &bytes).unwrap();
    lab.train("run", &["steps=0", QUICK]);
}

#[test]
fn weights_of_another_shape_are_named_with_both_shapes() {
    let lab = lab();
    change(&lab, "config.json", |config| config["intermediate_size"] = 50.into());
    let ended = lab.fails("run", &[]);
    ended.says(&["`model.layers.0.mlp.gate_proj.weight` is [48, 32]", "asks for [50, 32]"]);
}

#[test]
fn a_model_of_another_family_is_refused() {
    let lab = lab();
    change(&lab, "config.json", |config| config["model_type"] = "gpt2".into());
    lab.fails("run", &[]).says(&["gpt2", "qwen2"]);
}

#[test]
fn a_tokenizer_without_chat_template_is_refused() {
    let lab = lab();
    change(&lab, "tokenizer_config.json", |config| config["chat_template"] = Value::Null);
    lab.fails("run", &[]).says(&["chat template", "model"]);
}

#[test]
fn an_empty_corpus_is_refused() {
    let lab = lab();
    lab.write("corpus.jsonl", "\n");
    let set = ["environment={name=\"search\",corpus=\"corpus.jsonl\"}"];
    let search = [&set[..], &["orchestra={name=\"search/route\"}"]].concat();
    lab.fails("run", &search).says(&["corpus.jsonl", "no documents"]);
}

#[test]
fn zero_tasks_are_refused() {
    let lab = lab();
    lab.write("tasks.jsonl", "\n");
    lab.fails("run", &[]).says(&["tasks.jsonl", "no tasks in split `train`"]);
    lab.write("tasks.jsonl", "{\"question\": \"q\", \"split\": \"test\"}\n");
    lab.fails("run", &[]).says(&["no tasks in split `train`; it has `test`: 1"]);
    lab.write("tasks.jsonl", "{\"question\": \"q\", \"split\": \"train\"}\n{\"qestion\"\n");
    lab.fails("run", &[]).says(&["tasks.jsonl:2"]);
}

#[test]
fn a_score_that_is_not_a_number_leaves_its_episode_unscored() {
    let lab = lab();
    let ended = lab.fails("run", &["environment.nan=true", QUICK]);
    ended.says(&["8 of 8 episodes could not be scored", "NaN", "rollout.max_unscored"]);
    let allowed = ["environment.nan=true", "rollout.max_unscored=1", QUICK];
    let cause = "not one of 8 episodes of step 1 could be scored (environment: 8)";
    lab.fails("allowed", &allowed).says(&[cause, "NaN"]);
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run_before_the_step_it_would_have_entered() {
    let lab = lab();
    let set = ["models.tiny.optim.lr=1e30", "algorithm.epochs=2", QUICK];
    let ended = lab.fails("run", &set);
    ended.says(&["policy `tiny`: the loss is not finite", "was not taken", "smaller `optim.lr`"]);
    let run = maverl_tests::lab::Run(lab.path("run"));
    assert!(run.rows().is_empty() && run.is_tidy());
    let checkpoint = fs::read(lab.path("model/model.safetensors")).unwrap();
    assert_eq!(run.weights(0, "tiny").len(), checkpoint.len());
}

#[test]
fn weights_that_blow_up_end_the_run_at_the_next_reply() {
    let lab = lab();
    let set = ["models.tiny.optim.lr=1e30", "checkpoint.every=1", "checkpoint.keep=9", QUICK];
    let ended = lab.fails("run", &set);
    ended.says(&["is not a number: the weights have blown up", "smaller `optim.lr`"]);
    let run = maverl_tests::lab::Run(lab.path("run"));
    assert_eq!(run.steps().len(), 1);
    assert_eq!(run.episodes(1).len(), 8, "what was written before stays");
    // As do the episodes of step 2 that had ended.
    fs::remove_file(run.0.join("rollouts/step-000002.part.jsonl.zst")).unwrap();
    assert!(run.is_tidy());
}

#[test]
fn too_many_flat_steps_end_the_run_with_what_would_help() {
    let lab = lab();
    let set = ["environment.flat=true", "algorithm.loss.invalid_reply_penalty=0", QUICK];
    let ended = lab.fails("run", &[&set[..], &["algorithm.max_flat_steps=2"]].concat());
    let ended = ended.says(&["2 steps in a row", "group_size", "warning: step 1"]);
    let run = maverl_tests::lab::Run(lab.path("run"));
    assert_eq!(run.steps().len(), 2);
    assert_eq!(run.steps()[1]["group/flat_steps"], 2.0);
    // The remedy of the message works, and `info` prints the same.
    let longer = ["--set", "algorithm.max_flat_steps=4"];
    ended.says(&["go on with `team train --resume run --set algorithm.max_flat_steps=4`"]);
    let info = lab.run(&["info", "run"]).succeeded().stdout;
    assert!(info.contains("team train --resume run --set algorithm.max_flat_steps=4"), "{info}");
    lab.run(&["train", "--resume", "run"]).failed().says(&["2 steps in a row"]);
    lab.run(&[&["train", "--resume", "run"], &longer[..]].concat()).failed().says(&["4 steps in"]);
    assert_eq!(run.steps().len(), 4);
}

#[test]
fn a_directory_with_something_in_it_is_no_place_for_a_run() {
    let lab = lab();
    fs::create_dir(lab.path("full")).unwrap();
    lab.write("full/thesis.tex", "years of work");
    lab.fails("full", &[]).says(&["`full` is not empty", "--resume"]);
    assert_eq!(fs::read_to_string(lab.path("full/thesis.tex")).unwrap(), "years of work");
    assert_eq!(fs::read_dir(lab.path("full")).unwrap().count(), 1);
    lab.run(&["train", "--resume", "full"]).failed().says(&["not a run directory"]);
    lab.run(&["train", "--resume", "nowhere"]).failed().says(&["`nowhere`"]);
}

#[test]
fn a_resumed_run_refuses_another_configuration_and_other_data() {
    let lab = lab();
    let run = lab.train("run", &[QUICK]);
    let before = run.lasting();
    let resume = ["train", "--resume", "run", "--steps", "6"];
    let other = ["--set", "task.group_size=8", "--seed", "3"];
    let ended = lab.run(&[&resume[..], &other].concat()).failed();
    ended.says(&[
        "`task.group_size` was 4, is 8",
        "`seed` was 7, is 3",
        "may change only keys of the level `run`",
    ]);
    let tasks = fs::read_to_string(lab.path("tasks.jsonl")).unwrap();
    lab.write("tasks.jsonl", &tasks.replacen("question 0?", "question 00?", 1));
    lab.run(&resume).failed().says(&["data of `train` had hash"]);
    lab.write("tasks.jsonl", &tasks);
    lab.model("other", 256);
    fs::remove_dir_all(lab.path("model")).unwrap();
    lab.run(&resume).failed().says(&["there is no directory `model`", "resolved.toml"]);
    assert!(run.lasting() == before);
    fs::rename(lab.path("other"), lab.path("model")).unwrap();
    lab.run(&resume).succeeded();
}

#[test]
fn a_damaged_checkpoint_is_named_and_refused() {
    let lab = lab();
    let run = lab.train("run", &[QUICK]);
    let path = weights(&lab);
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    for bytes in [&bad[..], &good[..good.len() - 1], &[]] {
        fs::write(&path, bytes).unwrap();
        let ended = lab.run(&["train", "--resume", "run", "--steps", "6"]).failed();
        ended.says(&["step-000004/policies/tiny/model.safetensors` is damaged", "step 2 instead"]);
        lab.run(&["eval", "--run", "run"]).failed().says(&["is damaged"]);
    }
    fs::remove_file(&path).unwrap();
    lab.run(&["train", "--resume", "run", "--steps", "6"]).failed().says(&["model.safetensors"]);
    assert_eq!(run.steps().len(), 4, "a refused run is left as it is");
    // The remedy of the message works.
    fs::remove_dir_all(lab.path("run/checkpoints/step-000004")).unwrap();
    lab.run(&["train", "--resume", "run", "--steps", "6"]).succeeded();
    run.equals(&lab.train("fresh", &[QUICK, "steps=6"]));
}

#[test]
fn what_a_run_was_started_with_is_checked_too() {
    let lab = lab();
    lab.train("run", &["steps=0", QUICK]);
    lab.write("run/provenance.json", "{}");
    for command in [&["info", "run"][..], &["train", "--resume", "run"]] {
        lab.run(command).failed().says(&["run/provenance.json` is damaged"]);
    }
    lab.train("next", &["steps=0", QUICK]);
    let manifest = fs::read_to_string(lab.path("next/manifest.json")).unwrap();
    lab.write("next/manifest.json", &manifest.replacen("\"format\": 3", "\"format\": 99", 1));
    lab.run(&["train", "--resume", "next"]).failed().says(&["format 99"]);
}

#[test]
fn a_finished_run_that_was_changed_is_not_gone_on_with_and_info_says_so() {
    let lab = lab();
    let run = lab.train("run", &["steps=2"]);
    let info = lab.run(&["info", "run"]).succeeded().stdout;
    assert!(info.contains("complete"), "{info}");
    let change = |file: &str| {
        let text = String::from_utf8(run.bytes(file)).unwrap();
        lab.write(&format!("run/{file}"), &text.replacen('0', "1", 1));
    };
    let resolved = String::from_utf8(run.bytes("resolved.toml")).unwrap();
    lab.write("run/resolved.toml", &resolved.replace("group_size = 4", "group_size = 2"));
    let resume = ["train", "--resume", "run", "--steps", "4"];
    for command in [&resume[..], &["info", "run"], &["eval", "--run", "run"]] {
        lab.run(command).failed().says(&["run/resolved.toml` is damaged", "beside `--resume`"]);
    }
    lab.write("run/resolved.toml", &resolved);
    change("metrics.jsonl");
    change("evaluations/before.json");
    lab.run(&resume).failed().says(&["metrics.jsonl"]);
    let info = lab.run(&["info", "run", "--json"]);
    assert_eq!(info.code, Some(1), "{info}");
    let json: Value = serde_json::from_str(&info.stdout).unwrap();
    assert_eq!(json["state"]["is"], "damaged");
    assert_eq!(json["state"]["problems"].as_array().unwrap().len(), 2, "{json:#}");
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_what_a_run_leaves() {
    use std::os::unix::fs::PermissionsExt;
    fn open(path: &std::path::Path, found: &mut Vec<PathBuf>) {
        let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
        if mode != if path.is_dir() { 0o700 } else { 0o600 } {
            found.push(path.to_owned());
        }
        if path.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| open(&entry.unwrap().path(), found));
        }
    }
    let lab = lab();
    let run = lab.train("run", &["steps=2", "eval.every=1"]);
    let mut found = Vec::new();
    open(&run.0, &mut found);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_run_has_one_process() {
    let lab = lab();
    let slow = ["environment.delay_ms=300"];
    let mut child = lab.command(&maverl_tests::lab::train_args("run", &slow)).spawn().unwrap();
    maverl_tests::lab::wait_until("the first checkpoint", || {
        lab.path("run/checkpoints/step-000000").exists()
    });
    lab.run(&["train", "--resume", "run"]).failed().says(&["another process"]);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn every_problem_of_a_configuration_is_reported_at_once() {
    let lab = lab();
    let text = fs::read_to_string(lab.path("run.toml")).unwrap();
    lab.write("bad.toml", &format!("sede = 7\n{text}\n[rolout]\n[rewards.lenght]\n"));
    let args = ["check", "bad.toml", "--set", "task.group_size=\"four\"", "--set", "eval.evry=1"];
    let ended = lab.run(&args).failed();
    ended.says(&["5 problems", "bad.toml:1", "sede", "seed", "rollout", "length", "every", "four"]);
}

#[test]
fn a_damaged_parquet_file_is_refused_without_a_word_of_the_readers_panic() {
    let lab = lab();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../maverl/src/data/parquet/verl.parquet");
    let whole = fs::read(shipped).unwrap();
    let path = lab.path("tasks.parquet");
    let config =
        maverl::config::TaskConfig { data: "tasks.parquet".to_owned(), ..Default::default() };
    let panics = |at: &usize| {
        let mut damaged = whole.clone();
        damaged[*at] ^= 0x40;
        fs::write(&path, damaged).unwrap();
        let read = maverl::data::load(&config, maverl::data::ALL, path.parent().unwrap());
        read.is_err_and(|error| error.to_string().contains("cannot make sense of it"))
    };
    assert!((0..whole.len()).find(panics).is_some(), "no flip of a bit makes the reader panic");
    let set = ["task.data=\"tasks.parquet\"", QUICK];
    let ended = lab.fails("run", &set).says(&["tasks.parquet", "Parquet file"]);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}
