//! Runs whose reward is partly that of a server, which is killed in their middle.

use std::process::{Child, Command, Stdio};

use maverl::trajectory::Outcome;
use maverl_tests::lab::{Ended, Lab, Run, wait_until};

use super::{KEY, LOOKS_UP, Server, lab, without_key};

/// A part of the reward that a server gives to episodes with an answer.
const JUDGED: &str = r#"
[rewards.judged]
weight = 0.5
[rewards.judged.server]
of = "answer"
send = ["answers"]
retries = 0
key_env = "TEST_KEY"
"#;

/// Returns the command that trains `judged.toml` with the rewards of a server.
fn trains_with(lab: &Lab, server: &Server, out: &str, set: &[&str]) -> Command {
    let url = format!("rewards.judged.server.url=\"http://{}/v1/score\"", server.address);
    let mut args = vec!["train", "judged.toml", "--out", out];
    args.extend([url.as_str()].iter().chain(set).flat_map(|set| ["--set", set]));
    let mut command = lab.command(&args);
    command.env("TEST_KEY", KEY).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Kills the server once a run has completed a step.
fn kill_after_a_step(run: &Run, server: &mut Server) {
    let metrics = run.0.join("metrics.jsonl");
    wait_until("a step", || std::fs::read_to_string(&metrics).is_ok_and(|rows| !rows.is_empty()));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
}

fn ended(run: Child) -> Ended {
    Ended::of(&run.wait_with_output().unwrap())
}

fn prepared() -> (Lab, Server) {
    let lab = lab();
    lab.write("judged.toml", &format!("{LOOKS_UP}{JUDGED}"));
    let server = Server::start(&lab, &["reward", "--judge", "em"]);
    (lab, server)
}

#[test]
fn a_run_whose_reward_server_is_killed_ends_with_its_address_and_resumes_to_equal_files() {
    let (lab, mut server) = prepared();
    let set = ["steps=6", "checkpoint.every=1", "rollout.max_unscored=0"];
    let whole = trains_with(&lab, &server, "whole", &set).spawn().unwrap();
    ended(whole).succeeded();
    let (run, whole) = (Run(lab.path("cut")), Run(lab.path("whole")));
    let judged: f64 =
        whole.steps().iter().filter_map(|row| row["rollout/reward/judged"].as_f64()).sum();
    assert!(judged > 0.0, "the server rewards some answers");
    let cut = trains_with(&lab, &server, "cut", &set).spawn().unwrap();
    kill_after_a_step(&run, &mut server);
    let address = server.address.clone();
    let named = format!("http://{address}/v1/score: ");
    ended(cut).failed().says(&["episodes could not be scored", "`rollout.max_unscored`", &named]);
    let steps = run.steps();
    assert!(!steps.is_empty() && steps.len() < 6, "{} steps", steps.len());
    assert_eq!(steps[..], whole.steps()[..steps.len()]);
    let resume = || {
        let mut command = lab.command(&["train", "--resume", "cut"]);
        Ended::of(&command.env("TEST_KEY", KEY).output().unwrap())
    };
    resume().failed().says(&[&named]);
    assert_eq!(run.steps(), steps, "nothing was learned without the server");
    let server = Server::start_at(&lab, &address, &["reward", "--judge", "em"]);
    resume().succeeded();
    run.equals(&whole);
    assert_eq!(server.stop(), Some(0));
    without_key(&lab.path(""));
}

#[test]
fn episodes_that_a_lost_reward_server_did_not_score_are_unscored_or_skipped_and_the_run_goes_on() {
    let (lab, mut server) = prepared();
    // Half of the episodes have no answer, and need no server.
    let set = [
        "steps=5",
        "task.tasks_per_step=4",
        "sampling.temperature=1.3",
        "rollout.max_unscored=1.0",
    ];
    let lost = trains_with(&lab, &server, "lost", &set).spawn().unwrap();
    let run = Run(lab.path("lost"));
    kill_after_a_step(&run, &mut server);
    let address = server.address.clone();
    let named = format!("http://{address}/v1/score: ");
    let warned = "episodes could not be scored and teach nothing: environment: ";
    ended(lost).succeeded().says(&[warned, &named]);
    let rows = run.steps();
    assert_eq!((rows.len(), &rows[0]["rollout/unscored"]), (5, &0.0.into()));
    let mut unscored = 0;
    for episode in run.episodes(5) {
        match &episode.outcome {
            Outcome::Unscored(fault) => {
                assert!(fault.message.contains(&named), "{fault}");
                unscored += 1;
            }
            Outcome::Scored(_) => assert_eq!(episode.answer, None),
        }
    }
    assert_eq!(rows[4]["rollout/unscored/environment"], f64::from(unscored));
    assert!(unscored > 0);
    println!("{unscored} of 16 episodes of the last step are unscored");

    let mut server = Server::start_at(&lab, &address, &["reward", "--judge", "em"]);
    let skip = ["steps=5", "rewards.judged.server.on_error=\"skip\""];
    let skipped = trains_with(&lab, &server, "skipped", &skip).spawn().unwrap();
    let run = Run(lab.path("skipped"));
    kill_after_a_step(&run, &mut server);
    ended(skipped).succeeded();
    let rows = run.steps();
    assert!(rows.iter().all(|row| row["rollout/unscored"] == 0.0));
    let skipped = |row: usize| rows[row]["rollout/score/skipped/judged"].as_f64().unwrap();
    assert!(skipped(0) == 0.0 && skipped(4) > 0.5, "{} {}", skipped(0), skipped(4));
    assert!(rows[4].get("rollout/reward/judged").is_none(), "{}", rows[4]);
    without_key(&lab.path(""));
}
