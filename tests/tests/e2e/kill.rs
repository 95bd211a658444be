//! Killed runs.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use maverl_tests::lab::{Ended, Lab, Run, stride, train_args};

use crate::lab;

const SEED: u64 = 1;
/// A checkpoint in every step, validation, slow observations: every part of a run takes a share of its time.
const SET: [&str; 8] = [
    "steps=8",
    "rollout.max_episodes=4",
    "eval.samples=6",
    "checkpoint.every=1",
    "eval.every=2",
    "environment.delay_ms=20",
    "algorithm.loss.kl_coef=0.01",
    "models.tiny.optim.schedule=\"linear\"",
];

/// Returns the next of a fixed sequence of numbers in `[0, 1)` (SplitMix64).
pub(crate) fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns the number of kills; overridden by `MAVERL_FUZZ_CASES`.
pub(crate) fn kills_wanted() -> usize {
    std::env::var("MAVERL_FUZZ_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(if stride(2) == 1 { 20 } else { 6 })
}

/// Starts a run, or resumes it if it exists.
fn start(lab: &Lab, out: &str) -> Child {
    let args =
        if lab.path(out).exists() { vec!["train", "--resume", out] } else { train_args(out, &SET) };
    spawn(lab, &args)
}

/// Starts the command line.
pub(crate) fn spawn(lab: &Lab, args: &[&str]) -> Child {
    lab.command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Kills a child after a time; returns false if it had already ended, with success.
pub(crate) fn kill_after(mut child: Child, time: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if child.try_wait().unwrap().is_some() {
            Ended::of(&child.wait_with_output().unwrap()).succeeded();
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    let ended = Ended::of(&child.wait_with_output().unwrap());
    match ended.code {
        None => true,
        Some(_) => {
            ended.succeeded();
            false
        }
    }
}

/// Describes the state of a run.
fn standing(run: &Run) -> String {
    if !run.0.exists() {
        return "before there is a run directory".to_owned();
    }
    let exists = |name: &str| run.0.join(name).exists();
    if exists("evaluations/after.json") {
        return "after the last evaluation".to_owned();
    }
    if !exists("metrics.jsonl") || !exists("evaluations/before.json") {
        return "before or in the first evaluation".to_owned();
    }
    let torn = if run.is_tidy() { "" } else { ", while something is being written" };
    match run.steps().len() {
        8 => format!("in or before the last evaluation{torn}"),
        steps => format!("with {steps} steps{torn}"),
    }
}

#[test]
fn a_run_killed_at_random_moments_ends_as_if_it_had_never_been() {
    let lab = lab();
    let begun = Instant::now();
    let baseline = lab.train("baseline", &SET);
    let whole = begun.elapsed().as_secs_f64();
    println!("seed {SEED}; an uninterrupted run takes {whole:.2} s");
    let (mut state, mut kills, mut runs) = (SEED, 0, 0);
    while kills < kills_wanted() {
        // Four kills in a run, each anywhere in the first 60 % of the duration of a fresh run; then the run may end.
        let out = format!("run-{runs}");
        let run = Run(lab.path(&out));
        let mut ended = false;
        for _ in 0..4 {
            let after = 0.6 * whole * uniform(&mut state);
            if !kill_after(start(&lab, &out), Duration::from_secs_f64(after)) {
                ended = true;
                break;
            }
            kills += 1;
            println!("kill {kills}: {out} after {after:.3} s, {}", standing(&run));
        }
        if !ended {
            Ended::of(&start(&lab, &out).wait_with_output().unwrap()).succeeded();
        }
        run.equals(&baseline);
        assert!(run.is_tidy(), "{}", run.0.display());
        std::fs::remove_dir_all(&run.0).unwrap();
        runs += 1;
    }
    println!("{kills} kills of {runs} runs, all of which ended as the one that was left alone");
}
