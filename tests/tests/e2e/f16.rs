//! Runs of models whose products are in f16.

use maverl::files::Shards;
use maverl_tests::lab::{Ended, Lab, Run, wait_until};
use serde_json::Value;

use crate::kill::spawn;
use crate::lab;

/// Steps of the search team. The first scale of the loss overflows, and two good steps double a scale, which then overflows again.
const SET: [&str; 12] = [
    "steps=4",
    "task.tasks_per_step=2",
    "task.group_size=4",
    "eval.before_and_after=false",
    "eval.every=0",
    "checkpoint.every=1",
    "checkpoint.keep=4",
    "models.tiny.dtype=f16",
    "models.tiny.loss_scale.start=16777216",
    "models.tiny.loss_scale.every=2",
    "sampling.max_tokens=12",
    "algorithm.minibatches=4",
];

/// Returns the arguments of a run of the search team.
fn search<'a>(config: &'a str, out: &'a str) -> Vec<&'a str> {
    let mut args = vec!["train", config, "--out", out];
    args.extend(SET.iter().flat_map(|set| ["--set", set]));
    args
}

/// Trains to the end, or until a step is there; then the run is killed and resumed.
fn train(lab: &Lab, out: &str, killed_after: Option<usize>) -> Run {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/search_orchestra.toml");
    let run = Run(lab.path(out));
    let Some(steps) = killed_after else {
        lab.run(&search(config, out)).succeeded();
        return run;
    };
    let mut child = spawn(lab, &search(config, out));
    wait_until("a step is there", || {
        child.try_wait().unwrap().is_some()
            || run.0.join("metrics.jsonl").exists() && run.steps().len() >= steps
    });
    child.kill().unwrap();
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert!(ended.code.is_none() || ended.code == Some(0), "{ended}");
    lab.run(&["train", "--resume", out]).succeeded();
    run
}

#[test]
fn a_team_is_trained_in_f16_and_a_run_that_is_killed_ends_with_the_bits_of_one_that_is_not() {
    let lab = lab();
    let whole = train(&lab, "whole", None);
    // A flat step updates nothing.
    let updated = |row: &Value| row.get("policy/tiny/optimizer_steps").is_some();
    let rows: Vec<Value> = whole.steps().into_iter().filter(updated).collect();
    let metric = |name: &str| -> Vec<f64> {
        rows.iter().map(|row| row[format!("policy/tiny/{name}")].as_f64().unwrap()).collect()
    };
    let [scales, skipped, taken] = ["loss_scale", "skipped_steps", "optimizer_steps"].map(metric);
    println!("scales {scales:?}, skipped {skipped:?}, taken {taken:?}");
    assert!(skipped[0] >= 1.0, "the first scale overflows: {skipped:?}");
    assert!(skipped[0] < *skipped.last().unwrap(), "a scale that has grown does: {skipped:?}");
    assert!(taken.iter().sum::<f64>() >= 4.0, "steps are taken: {taken:?}");
    assert!(scales.iter().all(|scale| (*scale as u64).is_power_of_two()), "{scales:?}");
    assert!(whole.weights(4, "tiny") != whole.weights(1, "tiny"), "the policy is trained");
    for row in &rows {
        let mismatch = &row["mismatch/tiny/logp_abs_max"];
        assert_eq!(mismatch, &0.0, "rollout and trainer have the same bits");
        let norm = &row["policy/tiny/grad_norm"];
        assert_eq!(norm.is_null(), row["policy/tiny/optimizer_steps"] == 0.0, "{row}");
    }
    for steps in [1, 2] {
        train(&lab, &format!("killed-{steps}"), Some(steps)).equals(&whole);
    }
}

#[test]
fn a_mixer_skips_the_steps_that_its_critic_skips() {
    let lab = lab();
    let set = [
        "steps=3",
        "algorithm.name=\"qmix\"",
        "algorithm.advantage.epochs=8",
        // Values soon have large errors, whose derivatives overflow.
        "algorithm.advantage.optim.lr=0.02",
        "eval.before_and_after=false",
        "checkpoint.every=1",
        "models.tiny.dtype=f16",
        "models.tiny.loss_scale.start=16777216",
    ];
    let run = lab.train("qmix", &set);
    let dir = run.0.join("checkpoints/step-000003");
    let counters = |file: &str| {
        Shards::open_file(&dir.join(file)).and_then(|saved| saved.values("counters")).unwrap()
    };
    // Size of the state and steps; steps of trunk and head in halves of 24 bits.
    let of_mixer = counters("mixer.safetensors")[1];
    let of_head = counters("policies/tiny/critic/optimizer.safetensors")[3];
    let steps = run.steps();
    let skipped = steps.last().unwrap()["critic/tiny/skipped_steps"].as_f64().unwrap();
    println!("the mixer took {of_mixer} steps, its critic {of_head}, which skipped {skipped}");
    assert!(of_head > 0.0 && skipped > 0.0, "some steps overflow, and some do not");
    assert_eq!(of_mixer, of_head);
}

#[test]
fn a_resumed_run_keeps_its_precision_and_its_scale_of_the_loss() {
    let lab = lab();
    let set = ["steps=1", "checkpoint.every=1", "eval.before_and_after=false"];
    lab.train("run", &[&set[..], &["models.tiny.dtype=f16"]].concat());
    for key in ["models.tiny.dtype=bf16", "models.tiny.loss_scale.every=3"] {
        let resumed = ["train", "--resume", "run", "--set", "steps=2", "--set", key];
        lab.run(&resumed).failed().says(&["models.tiny"]);
    }
    lab.run(&["train", "--resume", "run", "--set", "steps=2"]).succeeded();
}
