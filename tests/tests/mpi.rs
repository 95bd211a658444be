//! Runs of several processes over MPI on this machine, compared with the same over TCP.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use maverl_tests::lab::{Ended, Lab, Run, train_args, wait_until};
use serde_json::Value;

const SET: [&str; 6] = [
    "steps=3",
    "runtime.threads=1",
    "eval.samples=1",
    "record.tokens_every=1",
    "checkpoint.every=1",
    "dist.timeout_s=8",
];
const MPI: &str = "dist.transport=\"mpi\"";
const FULL: [&str; 4] = [
    "algorithm.loss.kl_coef=0.01",
    "algorithm.minibatches=2",
    "algorithm.whiten=true",
    "models.tiny.optim.grad_clip=0.1",
];
const CRITIC: [&str; 3] =
    ["algorithm.name=\"ppo\"", "algorithm.advantage.trunk=\"own\"", "dist.shard=\"optimizer\""];
const TWO_WORKERS: [&str; 3] = [
    "algorithm.name=\"drmas\"",
    "agents.\"duo/closer\".worker_group=\"own\"",
    "models.tiny.lora.rank=4",
];

fn lab() -> Lab {
    Lab::new(env!("CARGO_BIN_EXE_team"))
}

/// Processes that `mpirun` has started, which ends them when it ends.
struct Job(Child);

impl Job {
    fn start(lab: &Lab, ranks: usize, args: &[&str]) -> Self {
        let of_rank = lab.command(args);
        let mut command = Command::new("mpirun");
        command.arg("-n").arg(ranks.to_string()).arg(of_rank.get_program());
        command.args(of_rank.get_args()).current_dir(of_rank.get_current_dir().unwrap());
        for (name, value) in of_rank.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // Open MPI for root, with more ranks than there are cores.
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(name, "1");
        }
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn end(self) -> Ended {
        Ended::of(&self.0.wait_with_output().unwrap())
    }

    /// Returns the process of a rank.
    fn process(&self, rank: usize) -> u32 {
        let started = PathBuf::from(format!("/proc/{0}/task/{0}/children", self.0.id()));
        let children = std::fs::read_to_string(started).unwrap();
        let of_rank = |id: &u32| {
            let variables = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let own = format!("OMPI_COMM_WORLD_RANK={rank}");
            variables.split(|&byte| byte == 0).any(|variable| variable == own.as_bytes())
        };
        children.split_whitespace().filter_map(|id| id.parse().ok()).find(of_rank).unwrap()
    }
}

fn set<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SET[..], more].concat()
}

/// Trains on ranks, which succeed.
fn train(lab: &Lab, out: &str, ranks: usize, set: &[&str]) -> Run {
    Job::start(lab, ranks, &train_args(out, set)).end().succeeded();
    Run(lab.path(out))
}

/// Panics unless all files of two runs are equal, except for those with the transport or with times.
fn equal(one: &Run, other: &Run) {
    let lasting = |run: &Run| {
        let mut files = run.lasting();
        files.retain(|(name, _)| {
            !["plan.json", "trainer.json", "manifest.json"].iter().any(|end| name.ends_with(end))
        });
        files
    };
    let (ours, theirs) = (lasting(one), lasting(other));
    assert!(ours.iter().any(|(name, _)| name.ends_with("optimizer.safetensors")));
    assert_eq!(ours.len(), theirs.len());
    for ((name, ours), (other, theirs)) in ours.iter().zip(&theirs) {
        assert_eq!(name, other);
        assert!(ours == theirs, "{name} differs between the transports");
    }
}

#[test]
fn ranks_over_mpi_write_the_files_of_ranks_over_tcp() {
    let lab = lab();
    let cases: [(&str, &[&str], &[usize]); 3] =
        [("full", &FULL, &[1, 2, 4]), ("critic", &CRITIC, &[2]), ("workers", &TWO_WORKERS, &[2])];
    for (name, more, sizes) in cases {
        for &ranks in sizes {
            let tcp = train(&lab, &format!("{name}-{ranks}-tcp"), ranks, &set(more));
            let more = [more, &[MPI]].concat();
            let mpi = train(&lab, &format!("{name}-{ranks}-mpi"), ranks, &set(&more));
            equal(&mpi, &tcp);
            let written = mpi.json("provenance.json")["ranks"].as_u64();
            assert_eq!(written, (ranks > 1).then_some(ranks as u64));
        }
    }
}

/// Runs a command on two ranks over a transport, with short runs, and returns how it ended.
fn several(lab: &Lab, command: &[&str], over: &str) -> Ended {
    let over = format!("dist.transport=\"{over}\"");
    let mut args = command.to_vec();
    set(&["steps=2", over.as_str()]).into_iter().for_each(|set| args.extend(["--set", set]));
    Job::start(lab, 2, &args).end()
}

#[test]
fn stages_and_seeds_over_mpi_write_the_files_of_those_over_tcp() {
    let lab = lab();
    lab.hybrid();
    for (name, command, runs) in [
        ("stages", &["train", "hybrid.toml"][..], ["1-sft", "2-rl"]),
        ("seeds", &["train", "run.toml", "--seeds", "0..2"], ["seed-0", "seed-1"]),
    ] {
        let [tcp, mpi] = ["tcp", "mpi"].map(|over| {
            let out = format!("{name}-{over}");
            several(&lab, &[command, &["--out", &out]].concat(), over).succeeded();
            out
        });
        for run in runs {
            let [tcp, mpi] = [&tcp, &mpi].map(|out| Run(lab.path(out).join(run)));
            assert_eq!(mpi.bytes("metrics.jsonl"), tcp.bytes("metrics.jsonl"));
            assert!(mpi.weights(2, "tiny") == tcp.weights(2, "tiny"), "{run}");
        }
    }
}

#[test]
fn a_failed_seed_over_mpi_ends_the_job_with_its_reason() {
    let lab = lab();
    std::fs::create_dir_all(lab.path("several/seed-0")).unwrap();
    lab.write("several/seed-0/notes.txt", "mine");
    let ended = several(&lab, &["train", "run.toml", "--seeds", "0..2", "--out", "several"], "mpi");
    assert_ne!(ended.code, Some(0), "{ended}");
    ended.says(&["several/seed-0"]);
    assert!(!lab.path("several/seed-1").exists());
}

/// Returns true if a process has not ended.
fn lives(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("Z (zombie)"))
}

/// Loses rank 1 of three by a signal, in a run over MPI that is resumed then. Returns what the job printed.
fn lose(by: &str) -> Ended {
    let lab = lab();
    let slow = ["environment.delay_ms=20", "rollout.max_episodes=4", "steps=4", MPI];
    let set = set(&[&FULL[..], &slow].concat());
    let whole = train(&lab, "whole", 3, &set);
    let mut job = Job::start(&lab, 3, &train_args("run", &set));
    let metrics = lab.path("run").join("metrics.jsonl");
    wait_until("a step", || metrics.metadata().is_ok_and(|file| file.len() > 0));
    let process = job.process(1).to_string();
    assert!(Command::new("kill").args([by, &process]).status().unwrap().success());
    let lost = Instant::now();
    wait_until("the end of the job", || job.0.try_wait().unwrap().is_some());
    println!("{by} of rank 1 of 3: the job ended in {:.2} s", lost.elapsed().as_secs_f64());
    wait_until("the end of rank 1", || !lives(&process));
    let ended = job.end();
    assert_ne!(ended.code, Some(0), "{ended}");
    Job::start(&lab, 3, &["train", "--resume", "run"]).end().succeeded();
    Run(lab.path("run")).equals(&whole);
    ended
}

#[test]
fn a_killed_rank_ends_a_run_over_mpi_which_resumes_as_without_the_loss() {
    lose("-KILL").says(&["rank 1 "]);
}

#[test]
fn a_stopped_rank_ends_a_run_over_mpi_with_its_name() {
    lose("-STOP").says(&["rank 1 (", "is lost: no sign of life for"]);
}

#[test]
fn the_first_signal_of_a_rank_ends_the_step_of_all_over_mpi() {
    let lab = lab();
    let slow = ["environment.delay_ms=20", "rollout.max_episodes=4", "steps=4", MPI];
    let set = set(&slow);
    let whole = train(&lab, "whole", 3, &set);
    let mut job = Job::start(&lab, 3, &train_args("run", &set));
    let metrics = lab.path("run").join("metrics.jsonl");
    wait_until("a step", || metrics.metadata().is_ok_and(|file| file.len() > 0));
    let process = job.process(1).to_string();
    assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
    wait_until("the end of the job", || job.0.try_wait().unwrap().is_some());
    job.end().says(&["rank 1 was asked to stop: finishing step "]);
    Job::start(&lab, 3, &["train", "--resume", "run"]).end().succeeded();
    Run(lab.path("run")).equals(&whole);
}

#[test]
fn ranks_that_are_started_by_hand_have_no_mpi() {
    let lab = lab();
    let mut command = lab.command(&train_args("run", &set(&[MPI])));
    let ended = command.env("MAVERL_RANK", "0").env("MAVERL_RANKS", "2").output().unwrap();
    Ended::of(&ended).failed().says(&["rank 0 of 2 could not join", "start all with `mpirun`"]);
    assert!(!lab.path("run").exists());
}

/// Seconds of a step of two ranks over TCP and over MPI, in turn.
#[test]
#[ignore = "a measurement"]
fn the_times_of_steps_over_both_transports_are_printed() {
    let lab = lab();
    let set = ["steps=6", "runtime.threads=1", "eval.before_and_after=false", "task.group_size=32"];
    for (turn, transport) in (0..3).flat_map(|turn| [(turn, "tcp"), (turn, "mpi")]) {
        let over = format!("dist.transport=\"{transport}\"");
        let run =
            train(&lab, &format!("{transport}-{turn}"), 2, &[&set[..], &[over.as_str()]].concat());
        let timing = String::from_utf8(run.bytes("timing.jsonl")).unwrap();
        let rows = timing.lines().filter_map(|row| serde_json::from_str::<Value>(row).ok());
        let steps: Vec<f64> = rows.filter_map(|row| row["time/step_s"].as_f64()).collect();
        let mean = steps.iter().sum::<f64>() / steps.len() as f64;
        println!("{transport}: {mean:.3} s a step, mean of {}", steps.len());
    }
}
