//! Signals to the ranks of a run.

use std::net::TcpStream;
use std::process::Stdio;

use maverl_tests::lab::{Ended, Lab, Run, stride, train_args, wait_until};
use maverl_tests::port::PortLease;

use super::{Launched, signal, slow, train};
use crate::lab;

#[test]
fn the_first_signal_of_any_rank_ends_the_step_on_all_and_the_run_goes_on_as_without_it() {
    let lab = lab();
    let mut set = slow();
    set.extend(["steps=4", "checkpoint.every=100"]);
    let whole = train(&lab, "whole", 3, &set);
    let all = [(1, "-TERM"), (2, "-INT"), (0, "-TERM"), (1, "-INT"), (2, "-TERM"), (0, "-INT")];
    for (rank, by) in all.into_iter().step_by(stride(2)) {
        let out = format!("run-{rank}{by}");
        let launched = Launched::start(&lab, 3, &train_args(&out, &set), |_, _| ());
        let metrics = lab.path(&out).join("metrics.jsonl");
        wait_until("a step", || metrics.metadata().is_ok_and(|file| file.len() > 0));
        signal(&launched.children[rank], by);
        let ended: [Ended; 3] = launched.end().try_into().unwrap();
        assert_eq!(ended.each_ref().map(|ended| ended.code), [Some(130); 3], "{by} of {rank}");
        let [first, ..] = ended;
        if rank > 0 {
            first.says(&[&format!("rank {rank} was asked to stop: finishing step ")]);
        }
        let run = Run(lab.path(&out));
        let last = format!("checkpoints/step-{:06}", run.steps().len());
        assert!(run.0.join(&last).exists(), "{last}");
        let resume = ["train", "--resume", &out];
        for ended in Launched::start(&lab, 3, &resume, |_, _| ()).end() {
            ended.succeeded();
        }
        assert_eq!(run.bytes("metrics.jsonl"), whole.bytes("metrics.jsonl"));
        assert!(run.weights(4, "tiny") == whole.weights(4, "tiny"));
    }
}

#[test]
fn a_signal_during_an_evaluation_ends_all_ranks_after_it() {
    let lab = lab();
    let mut set = slow();
    set.extend(["eval.before_and_after=true", "eval.tasks=6"]);
    let all = [(0, "-TERM"), (1, "-INT"), (1, "-TERM"), (0, "-INT")];
    for (rank, by) in all.into_iter().step_by(stride(2)) {
        let out = format!("run-{rank}{by}");
        let launched = Launched::start(&lab, 2, &train_args(&out, &set), |_, _| ());
        let begun = lab.path(&out).join("checkpoints/step-000000");
        wait_until("the first checkpoint", || begun.exists());
        signal(&launched.children[rank], by);
        let ended: [Ended; 2] = launched.end().try_into().unwrap();
        assert_eq!(ended.each_ref().map(|ended| ended.code), [Some(130); 2], "{ended:?}");
    }
}

#[test]
fn signals_to_several_ranks_or_to_all_end_the_step_as_one_does() {
    let lab = lab();
    let mut set = slow();
    set.extend(["steps=200", "checkpoint.every=100"]);
    let all: [&[usize]; 4] = [&[0, 1, 2], &[1, 2], &[2, 0], &[1, 0]];
    for (number, ranks) in all.into_iter().enumerate().step_by(stride(4)) {
        let out = format!("run-{number}");
        let launched = Launched::start(&lab, 3, &train_args(&out, &set), |_, _| ());
        let metrics = lab.path(&out).join("metrics.jsonl");
        wait_until("a step", || metrics.metadata().is_ok_and(|file| file.len() > 0));
        for rank in ranks {
            signal(&launched.children[*rank], "-TERM");
        }
        let ended: [Ended; 3] = launched.end().try_into().unwrap();
        assert_eq!(ended.each_ref().map(|ended| ended.code), [Some(130); 3], "{ended:?}");
        let run = Run(lab.path(&out));
        let last = format!("checkpoints/step-{:06}", run.steps().len());
        assert!(run.0.join(&last).exists(), "{last}");
    }
}

#[test]
fn the_second_signal_of_a_rank_ends_it_at_once_and_the_others_name_it() {
    let lab = lab();
    let mut set = slow();
    set.extend(["steps=200", "environment.delay_ms=1000"]);
    let mut launched = Launched::start(&lab, 2, &train_args("run", &set), |_, _| ());
    let begun = lab.path("run/checkpoints/step-000000");
    wait_until("the first checkpoint", || begun.exists());
    signal(&launched.children[1], "-TERM");
    signal(&launched.children[1], "-INT");
    wait_until("the end of rank 1", || launched.children[1].try_wait().unwrap().is_some());
    let [first, second]: [Ended; 2] = launched.end().try_into().unwrap();
    assert_eq!(second.code, Some(130), "{second}");
    first.failed().says(&["rank 0: rank 1 (", "is lost"]);
}

/// Starts the first two of three ranks, and waits until rank 0 listens.
fn two_of_three(lab: &Lab) -> Launched {
    let args = train_args("run", &slow());
    let launched = Launched::start(lab, 2, &args, |_, command| {
        command.env("MAVERL_RANKS", "3");
    });
    let port = launched.port.as_ref().unwrap().port;
    wait_until("the port of rank 0", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    launched
}

/// Message of a rank that is asked to stop before all have joined.
fn stopped_joining(rank: usize, size: usize) -> String {
    format!("rank {rank} was asked to stop before all {size} ranks had joined")
}

#[test]
fn a_signal_while_ranks_join_ends_them_at_once() {
    for by in ["-TERM", "-INT"].into_iter().step_by(stride(2)) {
        let lab = lab();
        let launched = two_of_three(&lab);
        // Rank 1 may not handle signals yet, and then just ends.
        signal(&launched.children[0], by);
        let [first, second]: [Ended; 2] = launched.end().try_into().unwrap();
        assert_eq!(first.code, Some(130), "{first}");
        first.says(&[&stopped_joining(0, 3)]);
        second.failed();
        assert!(!lab.path("run").exists());
    }
}

#[test]
fn a_signal_to_the_command_ends_ranks_that_wait_for_other_machines() {
    let lab = lab();
    let lease = PortLease::take();
    let address = format!("dist.address=\"127.0.0.1:{}\"", lease.port);
    let mut set = slow();
    set.push(&address);
    let mut command = lab.command(&train_args("run", &set));
    command.args(["--ranks-per-node", "2"]).env("MAVERL_RANK", "0").env("MAVERL_RANKS", "2");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the port of rank 0", || TcpStream::connect(("127.0.0.1", lease.port)).is_ok());
    signal(&child, "-TERM");
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended}");
    ended.says(&[&stopped_joining(0, 4)]);
}
