//! Results of runs: reproducible and correct.

use std::fs;
use std::path::Path;

use maverl::trajectory::{Episode, Outcome, RewardOf, Turn};
use maverl_kernels::simd::available_paths;
use maverl_tests::lab::{Ended, train_args};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::lab;

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("`{name}` is missing in {row:#}"))
}

#[test]
fn equal_seeds_give_equal_runs_on_any_number_of_threads_and_other_seeds_do_not() {
    let lab = lab();
    let first = lab.train("first", &[]);
    lab.train("second", &[]).equals(&first);
    for threads in ["1", "2"] {
        let args = ["train", "run.toml", "--out", threads];
        let output = lab.command(&args).env("MAVERL_RUNTIME__THREADS", threads).output().unwrap();
        Ended::of(&output).succeeded();
        let run = maverl_tests::lab::Run(lab.path(threads));
        assert_eq!(run.bytes("metrics.jsonl"), first.bytes("metrics.jsonl"));
        assert_eq!(run.weights(4, "tiny"), first.weights(4, "tiny"));
        let resolved = String::from_utf8(run.bytes("resolved.toml")).unwrap();
        assert!(resolved.contains(&format!("threads = {threads}")), "{resolved}");
    }
    lab.run(&["train", "run.toml", "--out", "other", "--seed", "8"]).succeeded();
    let other = maverl_tests::lab::Run(lab.path("other"));
    assert_ne!(other.bytes("metrics.jsonl"), first.bytes("metrics.jsonl"));
}

/// SHA-256 of `metrics.jsonl` and of the weights of a run of seed 7, on every CPU and system.
const BITS: [&str; 2] = [
    "a7e5cac11888a5a3a9f0d4c49ac5c1bfd5cce1df8b90a732a50a0fa839d8964e",
    "2acc270a02688ac8b0f791769918a6f0101be452da0bfacb207bb7cb0e140ad9",
];

#[test]
fn a_seed_gives_the_recorded_bytes_with_every_set_of_vector_instructions() {
    let lab = lab();
    for path in available_paths() {
        let name = path.to_string();
        let args = train_args(&name, &["seed=7"]);
        let output = lab.command(&args).env("MAVERL_SIMD", &name).output().unwrap();
        Ended::of(&output).succeeded();
        let run = maverl_tests::lab::Run(lab.path(&name));
        let bits = [run.bytes("metrics.jsonl"), run.weights(4, "tiny")].map(|bytes| sha256(&bytes));
        assert_eq!(bits, BITS, "{name}");
    }
}

fn sha256(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn micro_batches_do_not_change_what_is_learned() {
    let lab = lab();
    let whole = lab.train("whole", &["steps=1"]);
    let parts = lab.train("parts", &["steps=1", "runtime.micro_batch_tokens=200"]);
    let (whole, parts) = (&whole.steps()[0], &parts.steps()[0]);
    for name in ["policy/tiny/loss", "policy/tiny/grad_norm", "policy/tiny/entropy"] {
        let (whole, parts) = (number(whole, name), number(parts, name));
        assert!((whole - parts).abs() < 1e-5 * (1.0 + whole.abs()), "{name}: {whole}, {parts}");
    }
}

#[test]
fn rollout_and_trainer_agree_on_the_log_probs_of_every_token() {
    let lab = lab();
    let run = lab.train("run", &["steps=6", "sampling.temperature=0.8"]);
    let steps = run.steps();
    assert_eq!(steps.len(), 6);
    for row in &steps {
        assert_eq!(number(row, "mismatch/tiny/logp_abs_max"), 0.0, "step {}", row["step"]);
    }
}

#[test]
fn a_malformed_reply_lowers_the_score_of_its_turn_and_is_trained_on() {
    let lab = lab();
    let run = lab.train("run", &["steps=1", "algorithm.loss.invalid_reply_penalty=0.25"]);
    let episodes = run.episodes(1);
    let invalid = |turn: &Turn| turn.error.is_some();
    let malformed = episodes.iter().flat_map(|episode| &episode.turns).filter(|t| invalid(t));
    assert!(malformed.count() > 0, "the seed gives no malformed reply; choose another");
    for episode in &episodes {
        let score = episode.score().expect("a malformed reply does not make an episode unscored");
        for (i, turn) in episode.turns.iter().enumerate() {
            let penalty = if invalid(turn) { 0.25 } else { 0.0 };
            assert_eq!(episode.turn_reward(i), Some(score.reward - penalty));
        }
        let parts = episode.rewards.iter().map(|part| (part.name.as_str(), &part.of));
        let invalid = (0..episode.turns.len()).filter(|&i| invalid(&episode.turns[i]));
        let expected: Vec<_> = invalid.map(RewardOf::Turn).collect();
        let expected: Vec<_> = expected.iter().map(|of| ("invalid_reply", of)).collect();
        assert_eq!(parts.collect::<Vec<_>>(), expected);
    }
    let turns: usize = episodes.iter().map(|episode| episode.turns.len()).sum();
    assert_eq!(number(&run.steps()[0], "policy/tiny/rows"), turns as f64);
}

#[test]
fn a_fault_of_the_environment_is_counted_and_not_trained_on() {
    let lab = lab();
    // 7 of the 18 training tasks have a 1 in their question.
    let set = ["environment.fault=\"1\"", "eval.before_and_after=false"];
    let run = lab.train("run", &[&set[..], &["rollout.max_unscored=1"]].concat());
    let mut faults = 0;
    for row in run.steps() {
        let episodes = run.episodes(row["step"].as_u64().unwrap());
        let (scored, unscored): (Vec<_>, Vec<_>) =
            episodes.iter().partition(|episode| episode.score().is_some());
        assert_eq!(number(&row, "rollout/unscored/environment"), unscored.len() as f64);
        assert_eq!(number(&row, "rollout/unscored"), unscored.len() as f64);
        let turns: usize = scored.iter().map(|episode| episode.turns.len()).sum();
        assert_eq!(number(&row, "policy/tiny/rows"), turns as f64);
        for episode in unscored {
            assert!(episode.task.question.contains('1') && episode.rewards.is_empty());
            let Outcome::Unscored(fault) = &episode.outcome else { unreachable!() };
            assert!(fault.message.contains("the environment is down"), "{fault}");
            assert!(!episode.turns.is_empty(), "what was said before is recorded");
            faults += 1;
        }
    }
    assert!(faults > 0, "the seed draws no task that fails; choose another");
}

#[test]
fn the_weights_of_a_checkpoint_load_as_a_model() {
    let lab = lab();
    let samples = ["--json", "--set", "eval.samples=8"];
    lab.train("run", &["eval.samples=8", "models.tiny.optim.lr=1e-2"]);
    let eval = |args: &[&str]| lab.run(&[&["eval"], args, &samples].concat()).succeeded().stdout;
    let path = "models.tiny.path=\"run/checkpoints/step-000004/policies/tiny\"";
    let loaded = eval(&["run.toml", "--set", path]);
    assert_eq!(loaded, eval(&["--run", "run"]));
    assert_ne!(loaded, eval(&["run.toml"]));
}

#[test]
fn a_replayed_episode_has_the_tokens_that_were_recorded() {
    let lab = lab();
    let run = lab.train("run", &["checkpoint.every=1", "checkpoint.keep=9"]);
    for step in [1, 3] {
        let episode = &run.episodes(step)[5];
        let name = format!("{step}/{}/{}", episode.task.id, episode.index);
        let json = lab.run(&["replay", "run", &name, "--json"]).succeeded().stdout;
        let report: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(report["identical"], true, "{report:#}");
        let replies = report["turns"].as_array().unwrap().iter().map(|turn| &turn["reply"]);
        let recorded = episode.turns.iter().map(|turn| &turn.reply);
        assert!(replies.eq(recorded), "{report:#}");
        if step == 3 {
            let top = ["--top", "3", "--out", "top.json"];
            lab.run(&[&["replay", "run", &name][..], &top[..]].concat()).succeeded();
            likeliest_tokens_are_those_of_the_turns(&lab.path("top.json"), episode);
        }
    }
    let ended = lab.run(&["replay", "run", "3", "--top", "3"]);
    assert_eq!(ended.code, Some(2), "{ended}");
    ended.says(&["--out"]);
    let listed = lab.run(&["replay", "run", "2"]).succeeded().stdout;
    let names = run.episodes(2).into_iter().map(|e| format!("2/{}/{}", e.task.id, e.index));
    assert!(listed.lines().eq(names), "{listed}");
    lab.run(&["replay", "run", "9"]).failed().says(&["its steps are 1 to 4; step 1 has `1/"]);
}

/// Panics unless a record of likeliest tokens has each token's own log-prob to the bit, wherever it lists the token.
fn likeliest_tokens_are_those_of_the_turns(path: &Path, episode: &Episode) {
    let record: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut listed = 0;
    for (i, turn) in episode.turns.iter().enumerate() {
        let tokens = turn.tokens.as_ref().unwrap();
        let tops = record["turns"][i]["tokens"].as_array().unwrap();
        assert_eq!(tops.len(), tokens.completion.len(), "turn {i}");
        for (place, top) in tops.iter().enumerate() {
            let top: Vec<(u32, f32)> = serde_json::from_value(top.clone()).unwrap();
            assert!(top.len() == 3 && top.is_sorted_by(|a, b| a.1 >= b.1), "{top:?}");
            let own = top.iter().find(|(id, _)| *id == tokens.completion[place]);
            let Some((_, logprob)) = own else { continue };
            assert_eq!(logprob.to_bits(), tokens.logprobs[place].to_bits(), "turn {i}, {place}");
            listed += 1;
        }
    }
    assert!(listed > 0, "some sampled token is likely");
}

#[test]
fn groups_of_one_are_warned_about_once() {
    let lab = lab();
    let set = ["task.group_size=1", "steps=2", "eval.before_and_after=false"];
    let told = lab.run(&train_args("run", &set)).succeeded().stderr;
    assert_eq!(told.matches("warning: `task.group_size` is 1").count(), 1, "{told}");
    assert!(!told.contains("have one member"), "{told}");
}
