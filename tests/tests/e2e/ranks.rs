//! Runs of several processes on this machine.

mod judged;
mod launching;
mod several;
mod stopping;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use maverl_tests::lab::{Ended, Lab, Run, train_args, wait_until};
use maverl_tests::port::PortLease;
use serde_json::Value;

use crate::lab;

/// Seconds within which the loss of a rank ends the others.
const TIMEOUT: f64 = 8.0;
const SET: [&str; 5] = [
    "steps=3",
    "runtime.threads=1",
    "eval.samples=1",
    "record.tokens_every=1",
    "checkpoint.every=1",
];
/// Both agents update one policy, with the terms of a loss that need the whole batch.
const FULL: [&str; 5] = [
    "algorithm.loss.kl_coef=0.01",
    "algorithm.minibatches=2",
    "algorithm.epochs=2",
    "algorithm.whiten=true",
    "models.tiny.optim.grad_clip=0.1",
];
const LORA: [&str; 3] = [
    "models.tiny.lora.rank=4",
    "models.tiny.lora.dropout=0.1",
    "algorithm.loss.correction.kind=\"truncate\"",
];
const CRITIC: [&str; 2] = ["algorithm.name=\"ppo\"", "algorithm.advantage.trunk=\"own\""];
const SHARED_TRUNK: [&str; 2] = ["algorithm.name=\"ppo\"", "algorithm.advantage.trunk=\"shared\""];
const TWO_WORKERS: [&str; 2] =
    ["algorithm.name=\"drmas\"", "agents.\"duo/closer\".worker_group=\"own\""];

/// Processes of one run.
struct Launched {
    children: Vec<Child>,
    /// Held until the processes have ended.
    port: Option<PortLease>,
}

impl Launched {
    /// Starts ranks with arguments. `change` changes the command of a rank.
    fn start(lab: &Lab, ranks: usize, args: &[&str], change: impl Fn(usize, &mut Command)) -> Self {
        let lease = PortLease::take();
        let address = format!("dist.address=\"127.0.0.1:{}\"", lease.port);
        let settings = [address, format!("dist.timeout_s={TIMEOUT}")];
        let start = |rank: usize| {
            let mut command = lab.command(args);
            for set in &settings {
                command.args(["--set", set]);
            }
            command.env("MAVERL_RANK", rank.to_string()).env("MAVERL_RANKS", ranks.to_string());
            change(rank, &mut command);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        Self { children: (0..ranks).map(start).collect(), port: Some(lease) }
    }

    /// Waits for all ranks.
    fn end(mut self) -> Vec<Ended> {
        let end = |child: Child| Ended::of(&child.wait_with_output().unwrap());
        std::mem::take(&mut self.children).into_iter().map(end).collect()
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.children.iter_mut().for_each(|child| drop(child.kill()));
    }
}

/// Trains on ranks, which succeed. Only rank 0 writes messages.
pub(crate) fn train(lab: &Lab, out: &str, ranks: usize, set: &[&str]) -> Run {
    let ended = Launched::start(lab, ranks, &train_args(out, set), |_, _| ()).end();
    for (rank, ended) in ended.into_iter().enumerate() {
        let ended = ended.succeeded();
        assert!(rank == 0 || (ended.stdout + &ended.stderr).is_empty(), "rank {rank}");
    }
    Run(lab.path(out))
}

fn set<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SET[..], more].concat()
}

/// Ends of the names of metrics that count what a rank computes. Two ranks may each compute what rows begin with.
const COMPUTED: [&str; 3] = ["/tokens_computed", "/share", "/recomputed"];

/// Panics unless the losses of two runs are equal to 1e-6, and all metrics but [`COMPUTED`] to 1e-5.
pub(crate) fn alike(one: &Run, other: &Run) {
    let (rows, others) = (one.rows(), other.rows());
    assert_eq!(rows.len(), others.len());
    for (row, other) in rows.iter().zip(&others) {
        let (row, other) = (row.as_object().unwrap(), other.as_object().unwrap());
        assert!(row.keys().eq(other.keys()), "{:?}\n{:?}", row.keys(), other.keys());
        for (name, value) in row {
            if COMPUTED.iter().any(|end| name.ends_with(end)) {
                continue;
            }
            let (Some(a), Some(b)) = (value.as_f64(), other[name].as_f64()) else { continue };
            let most = if name.ends_with("loss") { 1e-6 } else { 1e-5 };
            let near = (a - b).abs() <= most * a.abs().max(1.0);
            assert!(near, "`{name}` is {a} and {b} in step {}", row["step"]);
        }
    }
    assert!(rows.iter().any(|row| row["policy/tiny/grad_norm"].as_f64() > Some(0.0)));
}

#[test]
fn two_and_four_ranks_have_the_losses_of_one() {
    let lab = lab();
    let cases: [(&str, &[&str], usize); 5] = [
        ("full", &FULL, 4),
        ("lora", &LORA, 2),
        ("critic", &CRITIC, 2),
        ("trunk", &SHARED_TRUNK, 2),
        ("workers", &TWO_WORKERS, 2),
    ];
    for (name, more, most) in cases {
        // A sampled token of an evaluation may depend on the rounding of the last weights.
        let more = &[more, &["eval.before_and_after=false"]].concat();
        let one = lab.train(&format!("{name}-1"), &set(more));
        for ranks in [2, 4].into_iter().filter(|&ranks| ranks <= most) {
            let run = train(&lab, &format!("{name}-{ranks}"), ranks, &set(more));
            alike(&one, &run);
            let episodes = [&one, &run].map(|run| run.episodes(1));
            assert_eq!(episodes[0], episodes[1], "{name}: {ranks} ranks");
        }
    }
}

#[test]
fn equal_ranks_write_equal_files_once_and_resume_to_the_same_end() {
    let lab = lab();
    let settings = [&set(&FULL)[..], &["eval.before_and_after=false"]].concat();
    let whole = train(&lab, "whole", 2, &settings);
    assert_eq!(whole.json("provenance.json")["ranks"], 2);
    let two = [&settings[..], &["steps=2"]].concat();
    let parted = train(&lab, "parted", 2, &two);
    let resume = ["train", "--resume", "parted", "--steps", "3"];
    for ended in Launched::start(&lab, 2, &resume, |_, _| ()).end() {
        ended.succeeded();
    }
    parted.equals(&whole);
    assert!(parted.is_tidy());
}

#[test]
fn divided_moments_change_no_file_and_are_resumed_on_one_and_four_ranks() {
    const LAST: &str = "checkpoints/step-000003/policies/tiny";
    let lab = lab();
    let whole = [&set(&FULL)[..], &["eval.before_and_after=false"]].concat();
    let sharded = [&whole[..], &["dist.shard=\"optimizer\""]].concat();
    let runs = [train(&lab, "whole", 2, &whole), train(&lab, "sharded", 2, &sharded)];
    let files = ["metrics.jsonl".to_owned()]
        .into_iter()
        .chain(["model", "optimizer"].map(|file| format!("{LAST}/{file}.safetensors")));
    for file in files {
        assert!(runs[0].bytes(&file) == runs[1].bytes(&file), "{file}");
    }
    train(&lab, "parted", 2, &[&sharded[..], &["steps=2"]].concat());
    for ranks in [1, 4] {
        let out = format!("on-{ranks}");
        let mut copy = Command::new("cp");
        copy.arg("-r").args([lab.path("parted"), lab.path(&out)]);
        assert!(copy.status().unwrap().success());
        let resume = ["train", "--resume", &out, "--steps", "3"];
        for ended in Launched::start(&lab, ranks, &resume, |_, _| ()).end() {
            ended.succeeded();
        }
        alike(&runs[0], &Run(lab.path(&out)));
    }
}

#[test]
fn divided_weights_change_no_file_and_are_resumed_without_division() {
    const LAST: &str = "checkpoints/step-000003/policies/tiny";
    let lab = lab();
    let whole = [&set(&FULL)[..], &["models.tiny.gradient_checkpointing=true"]].concat();
    let full = [&whole[..], &["dist.shard=\"full\""]].concat();
    let runs = [train(&lab, "whole", 2, &whole), train(&lab, "full", 2, &full)];
    let files = ["metrics.jsonl".to_owned()]
        .into_iter()
        .chain(["model", "optimizer"].map(|file| format!("{LAST}/{file}.safetensors")));
    for file in files {
        assert!(runs[0].bytes(&file) == runs[1].bytes(&file), "{file}");
    }
    train(&lab, "parted", 2, &[&full[..], &["steps=2"]].concat());
    let resume = ["train", "--resume", "parted", "--steps", "3", "--set", "dist.shard=\"none\""];
    for ended in Launched::start(&lab, 2, &resume, |_, _| ()).end() {
        ended.succeeded();
    }
    let parted = Run(lab.path("parted"));
    assert!(parted.bytes("metrics.jsonl") == runs[0].bytes("metrics.jsonl"));
}

#[test]
fn two_machines_of_two_ranks_write_the_files_of_four_ranks_without_machines() {
    let lab = lab();
    let args = set(&[&FULL[..], &["steps=2"]].concat());
    let whole = train(&lab, "whole", 4, &args);
    let change = |rank: usize, command: &mut Command| {
        let local = (rank % 2).to_string();
        command.env("MAVERL_LOCAL_RANK", local).env("MAVERL_LOCAL_RANKS", "2");
    };
    for ended in Launched::start(&lab, 4, &train_args("machines", &args), change).end() {
        ended.succeeded();
    }
    let machines = Run(lab.path("machines"));
    for file in ["metrics.jsonl", "checkpoints/step-000002/policies/tiny/model.safetensors"] {
        assert!(machines.bytes(file) == whole.bytes(file), "{file}");
    }
}

#[test]
fn supervised_runs_and_mixers_are_dealt_too() {
    let lab = lab();
    let line =
        |i: usize| format!("{{\"prompt\": \"question {i}?\", \"completion\": \"answer {i}\"}}\n");
    lab.write("shown.jsonl", &(0..8).map(line).collect::<String>());
    let sft = ["algorithm.name=\"sft\"", "task.data=\"shown.jsonl\""];
    let cases: [(&str, &[&str]); 2] = [("sft", &sft), ("qmix", &["algorithm.name=\"qmix\""])];
    for (name, more) in cases {
        let one = lab.train(&format!("{name}-1"), &set(more));
        alike(&one, &train(&lab, &format!("{name}-2"), 2, &set(more)));
    }
}

#[test]
fn a_rank_with_another_configuration_is_named_with_the_key() {
    let lab = lab();
    let args = train_args("run", &SET);
    let change = |rank: usize, command: &mut Command| {
        if rank == 1 {
            command.args(["--set", "algorithm.epochs=2"]);
        }
    };
    for ended in Launched::start(&lab, 2, &args, change).end() {
        ended.failed().says(&["rank 1", "`algorithm.epochs` is 2 there and 1 on rank 0"]);
    }
    assert!(!lab.path("run").exists());
}

#[test]
fn mpi_in_a_program_without_it_is_refused_with_the_way_to_build_it() {
    let set = [&SET[..], &["dist.transport=\"mpi\""]].concat();
    let ended = lab().fails("run", &set);
    ended.says(&["`dist.transport` is \"mpi\"", "--features mpi", "`dist.transport = \"tcp\"`"]);
}

/// Sends a signal to a process.
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Loses a rank of a run with a signal after a time, and checks that the others end with its name. Returns the seconds that they
/// took, or `None` if the run ended before the signal.
fn lose(
    lab: &Lab,
    set: &[&str],
    out: &str,
    (rank, ranks): (usize, usize),
    by: &str,
    after: Duration,
) -> Option<f64> {
    let mut launched = if lab.path(out).exists() {
        Launched::start(lab, ranks, &["train", "--resume", out], |_, _| ())
    } else {
        Launched::start(lab, ranks, &train_args(out, set), |_, _| ())
    };
    std::thread::sleep(after);
    if launched.children[rank].try_wait().unwrap().is_some() {
        return None;
    }
    signal(&launched.children[rank], by);
    let lost = Instant::now();
    for other in (0..ranks).filter(|&other| other != rank) {
        wait_until("the end of another rank", || {
            launched.children[other].try_wait().unwrap().is_some()
        });
    }
    let seconds = lost.elapsed().as_secs_f64();
    println!(
        "{by} of rank {rank} of {ranks} after {:.2} s: the others ended in {seconds:.2} s",
        after.as_secs_f64()
    );
    drop(launched.children[rank].kill());
    let ended = std::mem::take(&mut launched.children).into_iter();
    for (other, child) in ended.enumerate() {
        let ended = Ended::of(&child.wait_with_output().unwrap());
        if other == rank || ended.code == Some(0) {
            continue;
        }
        let name = format!("rank {rank} ");
        let joining =
            ended.stderr.contains("could not join") || ended.stderr.contains("rank 0 did");
        assert!(joining || ended.stderr.contains(&name), "rank {other} does not name it: {ended}");
        ended.failed();
    }
    Some(seconds)
}

/// Settings of a run that takes some seconds, in which a rank is lost.
fn slow() -> Vec<&'static str> {
    let mut set = set(&FULL);
    set.extend(["environment.delay_ms=20", "rollout.max_episodes=4", "dist.join_s=6"]);
    set
}

/// Loses ranks at moments of a sequence of random numbers; after two losses, a run may end.
fn lose_at_random(lab: &Lab, cases: usize, ranks: usize, by: &str) {
    let begun = Instant::now();
    let whole = train(lab, &format!("whole{by}"), ranks, &slow());
    let time = begun.elapsed().as_secs_f64();
    let (mut state, mut losses, mut runs) = (ranks as u64, 0, 0);
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1_u64 << 31) as f64
    };
    while losses < cases {
        let out = format!("run{by}-{runs}");
        runs += 1;
        for _ in 0..2 {
            let after = Duration::from_secs_f64(time * random());
            let rank = ((ranks as f64 * random()) as usize).min(ranks - 1);
            losses += usize::from(lose(lab, &slow(), &out, (rank, ranks), by, after).is_some());
        }
        let args = if lab.path(&out).exists() {
            vec!["train", "--resume", &out]
        } else {
            train_args(&out, &slow())
        };
        for ended in Launched::start(lab, ranks, &args, |_, _| ()).end() {
            ended.succeeded();
        }
        Run(lab.path(&out)).equals(&whole);
        std::fs::remove_dir_all(lab.path(&out)).unwrap();
    }
    println!("{losses} losses by {by} in {runs} runs, which all ended as the one without");
}

/// Returns the number of kills, of which a quarter are stops; overridden by `MAVERL_FUZZ_CASES`.
fn cases() -> usize {
    std::env::var("MAVERL_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

#[test]
fn killed_ranks_end_the_others_and_resumed_runs_are_as_without_the_loss() {
    lose_at_random(&lab(), cases(), 3, "-KILL");
}

#[test]
fn stopped_ranks_end_the_others_and_resumed_runs_are_as_without_the_loss() {
    lose_at_random(&lab(), cases().div_ceil(4), 2, "-STOP");
}

#[test]
#[ignore = "a guard of speed"]
fn a_lost_rank_ends_the_others_within_a_second_of_the_limit() {
    let lab = lab();
    let mut set = slow();
    set.push("steps=1000");
    for by in ["-KILL", "-STOP"] {
        let (out, after) = (format!("run{by}"), Duration::from_secs(1));
        let seconds = lose(&lab, &set, &out, (1, 3), by, after).expect("the run is longer");
        assert!(seconds < TIMEOUT + 1.0, "{by}: {seconds:.2} s");
    }
}

#[test]
fn a_rank_that_is_stopped_for_longer_than_the_limit_is_lost() {
    let lab = lab();
    let mut set = slow();
    set.push("steps=200");
    let mut launched = Launched::start(&lab, 2, &train_args("run", &set), |_, _| ());
    let metrics = lab.path("run").join("metrics.jsonl");
    wait_until("a step", || metrics.metadata().is_ok_and(|file| file.len() > 0));
    // Shorter than the limit: the run goes on.
    signal(&launched.children[1], "-STOP");
    std::thread::sleep(Duration::from_secs(1));
    signal(&launched.children[1], "-CONT");
    let before = metrics.metadata().unwrap().len();
    wait_until("a step after the pause", || metrics.metadata().unwrap().len() > before);
    signal(&launched.children[1], "-STOP");
    wait_until("the end of rank 0", || launched.children[0].try_wait().unwrap().is_some());
    signal(&launched.children[1], "-CONT");
    let [first, second]: [Ended; 2] = launched.end().try_into().unwrap();
    first.failed().says(&["rank 0: rank 1 (", "no sign of life for"]);
    second.failed().says(&["rank 1: rank "]);
}

/// Tokens per second of two ranks with one thread each, and of one rank with one thread.
#[test]
#[ignore = "a measurement"]
fn the_speeds_of_two_ranks_and_of_one_are_printed() {
    let lab = lab();
    let set = ["steps=3", "runtime.threads=1", "eval.before_and_after=false", "task.group_size=32"];
    let speed = |run: &Run| {
        let timing = String::from_utf8(run.bytes("timing.jsonl")).unwrap();
        let seconds: f64 = timing
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["time/step_s"].as_f64())
            .sum();
        let tokens: f64 =
            run.steps().iter().filter_map(|row| row["policy/tiny/tokens"].as_f64()).sum();
        tokens / seconds
    };
    let one = speed(&lab.train("one", &set));
    let two = speed(&train(&lab, "two", 2, &set));
    println!("{one:.0} and {two:.0} tokens/s, {:.2} times", two / one);
}
