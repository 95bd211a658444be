//! Interrupted runs.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use maverl_tests::lab::{Ended, Run, train_args, wait_until};

use crate::lab;

const SET: [&str; 2] = ["steps=6", "environment.delay_ms=30"];

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &pid]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn sigint_and_sigterm_finish_the_step_and_the_run_can_go_on() {
    let lab = lab();
    let baseline = lab.train("baseline", &SET);
    for name in ["INT", "TERM"] {
        let mut command = lab.command(&train_args(name, &SET));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let run = Run(lab.path(name));
        wait_until("the first step", || {
            run.0.join("metrics.jsonl").exists() && run.steps().len() == 1
        });
        signal(&child, name);
        let ended = Ended::of(&child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(130), "{ended}");
        let go_on = format!("not complete; go on with `team train --resume {name}`");
        assert!(ended.stdout.contains(&go_on), "{ended}");
        ended.says(&["finishing step ", "; again to stop now"]);
        let summary = run.json("summary.json");
        let done = summary["steps"].as_u64().unwrap();
        assert!(summary["complete"] == false && (1..6).contains(&done), "{summary}");
        assert_eq!(run.steps().len() as u64, done);
        assert!(run.0.join(format!("checkpoints/step-{done:06}/manifest.json")).exists());
        assert!(run.is_tidy());
        lab.run(&["train", "--resume", name]).succeeded();
        // The interrupt wrote a checkpoint that the baseline lacks; weights and metrics are equal.
        assert_eq!(run.bytes("metrics.jsonl"), baseline.bytes("metrics.jsonl"));
        assert_eq!(run.weights(6, "tiny"), baseline.weights(6, "tiny"));
        assert_eq!(run.json("summary.json")["after"], baseline.json("summary.json")["after"]);
    }
}

#[test]
fn an_interrupt_in_the_first_evaluation_loses_nothing() {
    let lab = lab();
    let mut command = lab.command(&train_args("run", &["steps=2", "environment.delay_ms=400"]));
    let told = lab.path("told");
    let child =
        command.stdout(Stdio::piped()).stderr(File::create(&told).unwrap()).spawn().unwrap();
    let told = || std::fs::read_to_string(&told).unwrap();
    let run = Run(lab.path("run"));
    wait_until("the evaluation", || told().contains("evaluating on "));
    signal(&child, "INT");
    let mut ended = Ended::of(&child.wait_with_output().unwrap());
    ended.stderr = told();
    assert_eq!(ended.code, Some(130), "{ended}");
    assert_eq!(run.json("summary.json")["steps"], 0);
    let ended = ended.says(&["stopping the evaluation; again to stop now"]);
    assert!(ended.stdout.contains("0 steps in 0.0 s, not complete"), "{ended}");
    lab.run(&["train", "--resume", "run"]).succeeded();
    assert_eq!(run.json("summary.json")["complete"], true);
}

#[test]
fn a_second_signal_ends_the_run_at_once_and_damages_nothing() {
    let lab = lab();
    // Episodes one after another: a step takes longer than a busy machine takes to deliver two signals.
    let slow = ["environment.delay_ms=1500", "rollout.max_episodes=1"];
    let set = [&["steps=2", "eval.before_and_after=false"][..], &slow].concat();
    let mut command = lab.command(&train_args("run", &set));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let run = Run(lab.path("run"));
    let rollouts = run.0.join("rollouts");
    wait_until("the first step", || {
        rollouts.read_dir().is_ok_and(|mut files| files.next().is_some())
    });
    // Two signals of one kind are one to the system until the first is noticed.
    signal(&child, "TERM");
    signal(&child, "INT");
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended}");
    assert!(run.rows().is_empty() && !run.0.join("summary.json").exists());
    ended.says(&[
        "finishing step 1; again to stop now",
        "stopped; go on with `team train --resume run`",
    ]);
    let together = ["train", "--resume", "run", "--set", "rollout.max_episodes=64"];
    lab.run(&together).succeeded();
    assert_eq!(run.json("summary.json")["complete"], true);
}

#[test]
fn a_complete_run_is_left_as_it_is_and_goes_on_for_more_steps() {
    let lab = lab();
    let run = lab.train("run", &["steps=2"]);
    let before = run.lasting();
    lab.run(&["train", "--resume", "run"]).succeeded().says(&["the run is complete"]);
    assert!(run.lasting() == before);
    lab.run(&["train", "--resume", "run", "--steps", "4"]).succeeded();
    run.equals(&lab.train("longer", &["steps=4"]));
    let ended = lab.run(&["train", "--resume", "run", "--steps", "3"]).failed();
    ended.says(&["has gone to step 4 and `steps` is 3"]);
}
