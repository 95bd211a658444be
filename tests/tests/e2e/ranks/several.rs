//! Several runs of one command, each trained by all ranks: stages and seeds.

use std::fs;
use std::process::{Command, Stdio};

use maverl_tests::lab::{Ended, Lab, Run, wait_until};

use super::{Launched, set, signal};
use crate::lab;

/// Returns arguments of a command with settings of short runs, and with others.
fn args<'a>(command: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    let short = ["steps=2", "eval.before_and_after=false"];
    let set = set(&[&short[..], more].concat());
    let mut args = command.to_vec();
    set.into_iter().for_each(|set| args.extend(["--set", set]));
    args
}

/// Runs a command on two ranks, which succeed, and returns what rank 0 prints. Rank 1 prints nothing.
fn run(lab: &Lab, args: &[&str]) -> Ended {
    let [first, second] = both(lab, args).map(Ended::succeeded);
    assert_eq!(second.stdout + &second.stderr, "");
    first
}

/// Runs a command on two ranks.
fn both(lab: &Lab, args: &[&str]) -> [Ended; 2] {
    Launched::start(lab, 2, args, |_, _| ()).end().try_into().unwrap()
}

#[test]
fn stages_on_two_ranks_are_the_runs_of_two_ranks_one_after_the_other() {
    let lab = lab();
    lab.hybrid();
    let told = run(&lab, &args(&["train", "hybrid.toml"], &[]));
    told.says(&["stage 1 of 2: sft.toml", "stage 2 of 2: rl.toml", "`tiny` starts from"]);
    let runs: Vec<_> = fs::read_dir(lab.path("runs")).unwrap().collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    // The same by hand.
    run(&lab, &args(&["train", "sft.toml", "--out", "first"], &[]));
    let policy = lab.path("first/checkpoints/step-000002/policies/tiny").display().to_string();
    let start = format!("models.tiny.path=\"{policy}\"");
    run(&lab, &args(&["train", "rl.toml", "--out", "second"], &[&start]));
    for (stage, alone) in [("1-sft", "first"), ("2-rl", "second")] {
        let [stage, alone] = [lab.path("runs/hybrid-1").join(stage), lab.path(alone)].map(Run);
        assert_eq!(stage.bytes("metrics.jsonl"), alone.bytes("metrics.jsonl"));
        assert!(stage.weights(2, "tiny") == alone.weights(2, "tiny"));
        assert_eq!(stage.json("provenance.json")["ranks"], 2);
        assert!(stage.is_tidy());
    }
}

#[test]
fn the_verifier_of_a_stage_is_written_by_rank_0_and_rewards_the_next_stage_of_both() {
    let lab = lab();
    lab.judged();
    let told = run(&lab, &args(&["train", "judged.toml", "--out", "both"], &[]));
    told.says(&["reward `verified` has the verifier `both/1-judge/verifier-000002`"]);
    let rl = Run(lab.path("both/2-rl"));
    assert_eq!(rl.json("provenance.json")["ranks"], 2);
    assert!(rl.steps()[0]["rollout/reward/verified"].as_f64() > Some(0.0));
    assert!(Run(lab.path("both/1-judge")).is_tidy());
}

#[test]
fn a_stage_that_fails_on_one_rank_ends_all_with_one_message_and_the_command_goes_on_from_there() {
    let lab = lab();
    lab.hybrid();
    // Rank 0 alone creates directories, and this one is no run.
    fs::create_dir_all(lab.path("both/2-rl")).unwrap();
    lab.write("both/2-rl/notes.txt", "mine");
    let command = args(&["train", "hybrid.toml", "--out", "both"], &[]);
    let [first, second] = both(&lab, &command).map(Ended::failed);
    let first = first.says(&["rank 0: ", "both/2-rl"]);
    let second = second.says(&["rank 1: rank 0 (", "ended the run: ", "both/2-rl"]);
    for ended in [first, second] {
        assert_eq!(ended.stderr.matches("error: ").count(), 1, "{ended}");
    }
    let done = Run(lab.path("both/1-sft")).bytes("metrics.jsonl");
    fs::remove_dir_all(lab.path("both/2-rl")).unwrap();
    run(&lab, &command).says(&["the run is complete", "stage 2 of 2"]);
    assert_eq!(Run(lab.path("both/1-sft")).bytes("metrics.jsonl"), done);
    assert_eq!(Run(lab.path("both/2-rl")).steps().len(), 2);
}

#[test]
fn a_wrong_stage_is_found_by_all_ranks_before_the_first_is_trained() {
    let lab = lab();
    lab.hybrid();
    let rl = fs::read_to_string(lab.path("rl.toml")).unwrap();
    lab.write("rl.toml", &rl.replace("steps = 2", "stepz = 2"));
    for (rank, ended) in both(&lab, &["train", "hybrid.toml"]).into_iter().enumerate() {
        let named = format!("rank {rank}: stage 2 of 2: rl.toml");
        ended.failed().says(&[&named, "unknown key `stepz`"]);
    }
    assert!(!lab.path("runs").exists());
}

#[test]
fn stopped_stages_and_seeds_go_on_to_the_end_that_they_have_without_the_stop() {
    let lab = lab();
    lab.hybrid();
    let slow = ["environment.delay_ms=20", "rollout.max_episodes=4", "steps=4"];
    for (name, command, stopped) in [
        ("stages", &["train", "hybrid.toml"][..], "2-rl"),
        ("seeds", &["train", "run.toml", "--seeds", "0..2"], "seed-0"),
    ] {
        let [whole, parted] = ["whole", "parted"].map(|end| format!("{name}-{end}"));
        let with = |out| args(&[command, &["--out", out]].concat(), &slow);
        run(&lab, &with(&whole));
        let launched = Launched::start(&lab, 2, &with(&parted), |_, _| ());
        let metrics = lab.path(&parted).join(stopped).join("metrics.jsonl");
        wait_until("a step", || metrics.metadata().is_ok_and(|file| file.len() > 0));
        launched.children.iter().for_each(|rank| signal(rank, "-INT"));
        let [first, second]: [Ended; 2] = launched.end().try_into().unwrap();
        assert_eq!([first.code, second.code], [Some(130); 2], "{first}{second}");
        first.says(&["stopped in `", "goes on"]);
        run(&lab, &with(&parted));
        for dir in fs::read_dir(lab.path(&whole)).unwrap() {
            let dir = dir.unwrap().file_name();
            let [parted, whole] = [&parted, &whole].map(|out| Run(lab.path(out).join(&dir)));
            assert_eq!(parted.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));
            assert!(parted.weights(4, "tiny") == whole.weights(4, "tiny"), "{dir:?}");
            assert!(parted.is_tidy());
        }
    }
}

#[test]
fn seeds_on_two_ranks_are_the_runs_of_two_ranks_and_have_one_table() {
    let lab = lab();
    let told = run(&lab, &args(&["train", "run.toml", "--seeds", "3,5"], &[]));
    assert!(told.stdout.contains("mean (95 %)"), "{told}");
    told.says(&["seed 3, run 1 of 2", "seed 5, run 2 of 2"]);
    for seed in ["3", "5"] {
        run(&lab, &args(&["train", "run.toml", "--seed", seed, "--out", seed], &[]));
        let together = Run(lab.path("runs/run-seeds-1").join(format!("seed-{seed}")));
        assert_eq!(together.bytes("metrics.jsonl"), Run(lab.path(seed)).bytes("metrics.jsonl"));
        assert!(together.weights(2, "tiny") == Run(lab.path(seed)).weights(2, "tiny"));
    }
    assert_eq!(fs::read_dir(lab.path("runs")).unwrap().count(), 1);
}

#[test]
fn a_seed_that_fails_on_one_rank_does_not_stop_the_next_seed_of_all() {
    let lab = lab();
    // Rank 0 alone creates directories, and this one is no run.
    fs::create_dir_all(lab.path("several/seed-0")).unwrap();
    lab.write("several/seed-0/notes.txt", "mine");
    let command = args(&["train", "run.toml", "--seeds", "0..2", "--out", "several"], &[]);
    let [first, second] = both(&lab, &command);
    assert_eq!([first.code, second.code], [Some(1); 2], "{first}{second}");
    assert_eq!(second.stdout + &second.stderr, "");
    assert!(first.stdout.contains("failed") && first.stdout.contains("mean (95 %)"), "{first}");
    first.says(&["error: ", "several/seed-0"]);
    assert_eq!(Run(lab.path("several/seed-1")).steps().len(), 2);
}

#[test]
fn a_rank_that_is_killed_in_a_seed_ends_the_command_of_all() {
    let lab = lab();
    let slow = ["environment.delay_ms=20", "rollout.max_episodes=4", "steps=200"];
    let command = args(&["train", "run.toml", "--seeds", "0..2", "--out", "several"], &slow);
    let mut launched = Launched::start(&lab, 2, &command, |_, _| ());
    let metrics = lab.path("several/seed-0/metrics.jsonl");
    wait_until("a step", || metrics.metadata().is_ok_and(|file| file.len() > 0));
    signal(&launched.children[1], "-KILL");
    wait_until("the end of rank 0", || launched.children[0].try_wait().unwrap().is_some());
    let [first, _]: [Ended; 2] = launched.end().try_into().unwrap();
    first.failed().says(&["rank 0: rank 1 (", "is lost"]);
    assert!(!lab.path("several/seed-1").exists());
}

#[test]
fn the_ranks_of_a_launcher_train_stages_by_its_variables_alone() {
    let lab = lab();
    lab.hybrid();
    let args = args(&["train", "hybrid.toml", "--out", "both"], &[]);
    let job = format!("job-{}", std::process::id());
    let start = |rank: &str| {
        let mut command: Command = lab.command(&args);
        command.env("MAVERL_RANK", rank).env("MAVERL_RANKS", "2").env("MAVERL_JOB", &job);
        command.env("MAVERL_LOCAL_RANK", rank).env("MAVERL_LOCAL_RANKS", "2");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    // Both stages meet at the port that follows from the name of the job.
    let children = ["0", "1"].map(start).into();
    for ended in (Launched { children, port: None }).end() {
        ended.succeeded();
    }
    assert_eq!(Run(lab.path("both/2-rl")).steps().len(), 2);
}
