//! Verifiers: from labeled replies over training to a part of the reward of another run.

use std::fs;
use std::path::Path;

use maverl_tests::lab::{Lab, Run, train_args};
use serde_json::{Value, json};

use crate::lab;

/// Writes rows of tasks `from` to `to`: "yes" is right for even numbers, "no" for odd ones.
pub(crate) fn write_rows(lab: &Lab, name: &str, from: usize, to: usize) {
    let row = |n: usize, reply: &str| {
        let right = (n.is_multiple_of(2)) == (reply == "yes");
        let origin = json!({"policy": "p", "seat": "duo/opener", "path": "0"});
        json!({"prompt": format!("is number {n} even?"), "completion": reply, "label": right, "score": 0.5, "maverl": origin})
    };
    let rows = (from..to).flat_map(|n| ["yes", "no"].map(|reply| format!("{}\n", row(n, reply))));
    lab.write(name, &rows.collect::<String>());
}

const SET: [&str; 6] = [
    "algorithm.name=\"verifier\"",
    "task.data=\"labeled.jsonl\"",
    "eval.data=\"held_out.jsonl\"",
    "task.tasks_per_step=8",
    "checkpoint.every=2",
    "algorithm.verifier.lr=0.001",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SET[..], more].concat()
}

fn prepared() -> Lab {
    let lab = lab();
    write_rows(&lab, "labeled.jsonl", 100, 140);
    write_rows(&lab, "held_out.jsonl", 200, 220);
    lab
}

fn last(run: &Run) -> Value {
    run.rows().into_iter().rfind(|row| row["verifier/test/auc"].is_number()).unwrap()
}

/// Returns the bytes of weights whose head is infinite.
fn with_infinite_head(mut bytes: Vec<u8>) -> Vec<u8> {
    let start = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..start]).unwrap();
    let head = &header["score.weight"];
    assert_eq!(head["dtype"], "F32", "{header}");
    let place = |i: usize| start + head["data_offsets"][i].as_u64().unwrap() as usize;
    for value in bytes[place(0)..place(1)].chunks_exact_mut(4) {
        value.copy_from_slice(&f32::INFINITY.to_le_bytes());
    }
    bytes
}

#[test]
fn a_verifier_is_trained_exported_and_rewards_another_run() {
    let lab = prepared();
    let run = lab.train("run", &with(&["steps=4"]));
    let row = last(&run);
    assert_eq!(
        (row["verifier/test/n"].as_f64(), row["verifier/rows"].as_f64()),
        (Some(40.0), Some(8.0))
    );
    for name in [
        "probe/completion",
        "probe/length",
        "temperature",
        "offset",
        "validation/nll",
        "test/ece",
        "loss",
        "lr",
    ] {
        assert!(row[format!("verifier/{name}")].is_number(), "{name}");
    }
    assert_eq!(row["verifier/probe/policy"], 0.5);
    // The policy itself is not trained.
    assert!(row.as_object().unwrap().keys().all(|key| !key.starts_with("policy/")), "{row}");

    let halves = lab.train("halves", &with(&["steps=2"]));
    lab.run(&["train", "--resume", "halves", "--steps", "4"]).succeeded();
    assert_eq!(last(&halves), row);

    let told = lab.run(&["export", "--run", "run", "--verifier", "--out", "exported"]).succeeded();
    assert!(told.stdout.contains("a reward model of step 4"), "{}", told.stdout);
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(lab.path("exported").join(name)).unwrap()).unwrap()
    };
    assert_eq!(read("reward_head.json")["place"], "generation_prompt");
    // One in ten of the 40 tasks is not trained on.
    assert_eq!(read("reward_tasks.json")["tasks"].as_array().unwrap().len(), 36);
    assert!(
        read("config.json")["architectures"][0]
            .as_str()
            .unwrap()
            .ends_with("ForSequenceClassification")
    );

    let path = "rewards.verified.verifier.path=\"exported\"";
    let rewarded = lab.train("rewarded", &["steps=1", path, "rewards.verified.weight=0.5"]);
    let part = rewarded.steps()[0]["rollout/reward/verified"].as_f64().unwrap();
    assert!(part > 0.0 && part < 4.0, "{part}");

    // A head without finite numbers rewards nothing.
    let weights = lab.path("exported/model.safetensors");
    let (whole, bytes) = (fs::read(&weights).unwrap(), fs::read(&weights).unwrap());
    fs::write(&weights, with_infinite_head(bytes)).unwrap();
    let set = ["steps=1", "eval.before_and_after=false", path];
    let ended = lab.fails("infinite", &set);
    ended.says(&["reward `verified`", "a reward is a number from -1e9 to 1e9"]);
    fs::write(&weights, whole).unwrap();

    let task = |n: usize| {
        let question = format!("Is number {n} even?");
        format!("{}\n", json!({"id": format!("t{n}"), "question": question, "split": "train"}))
    };
    lab.write("tasks.jsonl", &(100..105).map(task).collect::<String>());
    let set = ["steps=1", path, "eval.before_and_after=false", "task.tasks_per_step=1"];
    let seen = lab.fails("seen", &set);
    seen.says(&["the verifier was trained on ", "of the tasks, such as `t", "allow_seen = true"]);
}

#[test]
fn a_verifier_that_scores_by_log_probs_learns_is_exported_and_rewards_another_run() {
    let lab = prepared();
    let head =
        ["steps=30", "algorithm.verifier.head=\"likelihood\"", "algorithm.verifier.head_rate=30.0"];
    let run = lab.train("run", &with(&head));
    let row = last(&run);
    let area = row["verifier/test/auc"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&area), "{row}");
    let told = lab.run(&["export", "--run", "run", "--verifier", "--out", "exported"]).succeeded();
    assert!(told.stdout.contains("a reward model of step 30"), "{}", told.stdout);
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(lab.path(&format!("exported/{name}"))).unwrap()).unwrap()
    };
    let head = read("reward_head.json");
    assert_eq!(head["place"], "reply");
    let of_head = ["weight", "bias"].map(|name| head["likelihood"][name].as_f64().unwrap());
    assert!(of_head[0] != 1.0 && of_head[1] != 0.0, "both are trained: {head}");
    assert!(read("config.json")["architectures"][0].as_str().unwrap().ends_with("ForCausalLM"));
    let path = "rewards.verified.verifier.path=\"exported\"";
    let rewarded = lab.train("rewarded", &["steps=1", path]);
    let part = rewarded.steps()[0]["rollout/reward/verified"].as_f64().unwrap();
    assert!(part > 0.0 && part < 4.0, "{part}");
}

#[test]
fn a_verifier_is_trained_on_pairs_and_on_the_steps_of_episodes() {
    let lab = prepared();
    let rows = |name: &str, set: &[&str]| {
        let run = lab.train(name, &with(&[&["steps=2"][..], set].concat()));
        let row = last(&run);
        assert!(row["verifier/loss"].as_f64().is_some_and(f64::is_finite), "{row}");
        row["verifier/rows"].as_f64()
    };
    // A step has 8 pairs of the replies to equal prompts, or 8 episodes of 2 steps.
    let pairs = "algorithm.verifier.loss=\"pairs\"";
    assert_eq!(rows("pairs", &[pairs]), Some(16.0));
    let write = |name: &str, row: fn(usize) -> Value| {
        let rows = (100..140).map(|n| format!("{}\n", row(n)));
        lab.write(name, &rows.collect::<String>());
    };
    write("preference.jsonl", |n| {
        let (chosen, rejected) = if n.is_multiple_of(2) { ("yes", "no") } else { ("no", "yes") };
        json!({"prompt": format!("is number {n} even?"), "chosen": chosen, "rejected": rejected})
    });
    assert_eq!(rows("preference", &[pairs, "task.data=\"preference.jsonl\""]), Some(16.0));
    write("steps.jsonl", |n| {
        let right = n.is_multiple_of(2);
        json!({"prompt": format!("is number {n} even?"), "completions": ["it is", "yes"], "labels": [right, right]})
    });
    let steps = ["algorithm.verifier.loss=\"steps\"", "task.data=\"steps.jsonl\""];
    assert_eq!(rows("steps", &steps), Some(16.0));
    write(
        "alone.jsonl",
        |n| json!({"prompt": format!("is number {n} even?"), "completion": "yes", "label": n.is_multiple_of(2)}),
    );
    let alone = with(&["steps=2", pairs, "task.data=\"alone.jsonl\""]);
    lab.fails("alone", &alone).says(&["no prompt has a right and a wrong reply"]);
}

#[test]
fn rows_that_say_so_are_those_of_validation_with_all_others_of_their_tasks() {
    let lab = prepared();
    let rows = fs::read_to_string(lab.path("labeled.jsonl")).unwrap();
    let marked = |(line, row): (usize, &str)| match line {
        0 | 2 | 4 => format!("{},\"split\":\"validation\"}}\n", row.strip_suffix('}').unwrap()),
        _ => format!("{row}\n"),
    };
    lab.write("labeled.jsonl", &rows.lines().enumerate().map(marked).collect::<String>());
    let row = last(&lab.train("run", &with(&["steps=2"])));
    // Two rows of each of three tasks.
    assert_eq!(row["verifier/validation/n"], 6.0);
    lab.run(&["export", "--run", "run", "--verifier", "--out", "exported"]).succeeded();
    let seen = fs::read(lab.path("exported/reward_tasks.json")).unwrap();
    let seen: Value = serde_json::from_slice(&seen).unwrap();
    assert_eq!(seen["tasks"].as_array().unwrap().len(), 37);
}

/// Trains the stages of the example, and returns the last evaluation of its verifier.
fn example(lab: &Lab, more: &[&str]) -> Value {
    let stages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/verifier/stages.toml");
    let stages = stages.display().to_string();
    lab.run(&[&["train", &stages, "--out", "run"], more].concat()).succeeded();
    last(&Run(lab.path("run/2-verifier")))
}

/// Returns the highest AUC of a probe.
fn best_probe(row: &Value) -> f64 {
    let names = ["length", "policy", "place", "format", "completion"];
    let areas = names.map(|name| row[format!("verifier/probe/{name}")].as_f64().unwrap());
    areas.into_iter().fold(0.0, f64::max)
}

#[test]
#[ignore = "second tier: takes half a minute"]
fn the_rows_of_the_example_have_no_shortcut_and_are_trained_on_in_two_stages() {
    let lab = lab();
    let row = example(&lab, &["--quick"]);
    assert!(row["verifier/test/n"].as_f64().unwrap() >= 400.0, "{row}");
    assert!((row["verifier/test/base_rate"].as_f64().unwrap() - 0.5).abs() < 0.15, "{row}");
    let probe = best_probe(&row);
    assert!(probe < 0.7, "{probe}: {row}");
}

/// The test above trains on the same rows for two steps.
#[test]
#[ignore = "takes 25 minutes"]
fn the_verifier_of_the_example_knows_right_replies_to_questions_that_it_has_not_seen() {
    let lab = lab();
    let row = example(&lab, &[]);
    let area = row["verifier/test/auc"].as_f64().unwrap();
    let probe = best_probe(&row);
    assert!(area >= 0.80 && area >= probe + 0.05, "{area} and {probe}: {row}");
    assert!(row["verifier/test/ece"].as_f64().unwrap() <= 0.05, "{row}");
}

#[test]
fn rows_that_a_verifier_cannot_be_trained_on_are_refused() {
    let lab = prepared();
    let refused = |more: &[&str], parts: &[&str]| lab.fails("refused", &with(more)).says(parts);
    write_rows(&lab, "held_out.jsonl", 130, 160);
    refused(&[], &[" held-out questions are trained on", "team collect --test-share"]);
    let rows = |name: &str, from: usize, long: &str| {
        write_rows(&lab, name, from, from + 20);
        let rows = fs::read_to_string(lab.path(name)).unwrap();
        lab.write(name, &rows.replacen("even?", long, 2));
    };
    let story =
        "A train leaves at nine and comes at noon with forty people who paid two coins each";
    rows("labeled.jsonl", 100, story);
    rows("held_out.jsonl", 200, &format!("even? {story}"));
    let near = "held-out questions share 13 words in a row with one that is trained on: ";
    refused(&[], &[near, "`algorithm.verifier.allow_near = true`"]);
    let allowed =
        lab.run(&train_args("allowed", &with(&["steps=1", "algorithm.verifier.allow_near=true"])));
    allowed.succeeded().says(&[near]);
    write_rows(&lab, "labeled.jsonl", 100, 140);
    lab.write("held_out.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    refused(&[], &["there is no `label`"]);
    write_rows(&lab, "held_out.jsonl", 200, 220);
    lab.write("labeled.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n");
    let checked = |more: &[&str], parts: &[&str]| {
        let set = with(more);
        let set = set.iter().flat_map(|set| ["--set", *set]);
        lab.run(&["check", "run.toml"].into_iter().chain(set).collect::<Vec<_>>())
            .failed()
            .says(parts);
    };
    let one = &["algorithm.verifier.validation=0.0"];
    refused(one, &["a verifier needs right and wrong replies"]);
    checked(one, &["a verifier needs right and wrong replies"]);
    let row =
        |n: u8| format!("{{\"prompt\": \"{n}?\", \"completion\": \"b\", \"label\": {}}}\n", n % 2);
    lab.write("labeled.jsonl", &(0..8).map(row).collect::<String>());
    let soft = &["algorithm.verifier.labels=\"soft\""];
    refused(soft, &["`score` of a row is missing"]);
    checked(soft, &["`score` of a row is missing"]);
}
