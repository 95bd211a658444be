//! A run that is sent to a tracker while it goes on, by a command that does not follow it.

use std::fs;
use std::process::Stdio;

use maverl_tests::lab::{Ended, Lab, train_args, wait_until};
use maverl_tests::trackers::{Manner, TrackerServer};

use crate::lab;

/// Settings of a run that does not end by itself.
const ENDLESS: [&str; 4] = [
    "steps=100000",
    "algorithm.max_flat_steps=100000",
    "checkpoint.every=100000",
    "eval.before_and_after=false",
];

fn rows(lab: &Lab) -> usize {
    fs::read_to_string(lab.path("run/metrics.jsonl")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_run_that_goes_on_is_sent_as_far_as_it_is_and_has_not_failed() {
    let (lab, server) = (lab(), TrackerServer::start(Manner::Fine));
    let to = format!("mlflow={}", server.address());
    let mut trainer = lab.command(&train_args("run", &ENDLESS));
    let mut trainer = trainer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("two rows", || rows(&lab) >= 2);
    let track = || {
        let mut track = lab.command(&["track", "run", "--to", &to]);
        Ended::of(&track.env_remove("MLFLOW_RUN_ID").env_remove("http_proxy").output().unwrap())
    };
    let ended = track().succeeded();
    trainer.kill().unwrap();
    trainer.wait().unwrap();
    assert!(ended.unwrapped().contains("mlflow: the run goes on; what it has written"), "{ended}");
    let got = server.received();
    assert_eq!(got.runs.values().collect::<Vec<_>>(), ["RUNNING"]);
    assert!(got.points.iter().any(|(_, name, step, ..)| name == "time/step_s" && *step == 2));
    track().succeeded();
    assert_eq!(server.received().runs.values().collect::<Vec<_>>(), ["FAILED"]);
}
