//! Episodes reach the disk and the sinks as they end.

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use maverl::registry::Registry;
use maverl::run_dir::{RunLocation, read_ended_rollouts};
use maverl::train::{EndedEpisode, EpisodeSink, ErrorKind, Options, Report, SinkError, TrainError};
use maverl::trajectory::Episode;
use maverl::{Purpose, Sources, check};
use maverl_tests::lab::{Lab, Run, train_args, wait_until};

use crate::lab;

/// Kills a run as soon as a condition holds.
fn kill_when(lab: &Lab, set: &[&str], what: &str, so: impl FnMut() -> bool) {
    let mut command = lab.command(&train_args("killed", set));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until(what, so);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn rollouts_are_complete_on_disk_while_the_update_of_their_step_runs() {
    let lab = lab();
    let run = Run(lab.path("killed"));
    // A long update.
    let set = ["steps=1", "eval.before_and_after=false", "algorithm.epochs=100000"];
    let rollouts = run.0.join("rollouts/step-000001.jsonl.zst");
    kill_when(&lab, &set, "the rollouts", || rollouts.exists());
    assert!(run.steps().is_empty(), "the step has no row: it was being learned");
    let episodes = run.episodes(1);
    assert_eq!(episodes.len(), 8);
    assert!(episodes.iter().all(|episode| !episode.turns.is_empty()));
}

#[test]
fn a_killed_rollout_leaves_the_episodes_that_had_ended_and_is_repeated() {
    let lab = lab();
    let set = ["steps=2", "environment.delay_ms=30", "rollout.max_episodes=1"];
    let whole = lab.train("whole", &set);
    let run = Run(lab.path("killed"));
    let growing = run.0.join("rollouts/step-000002.part.jsonl.zst");
    let ended = || read_ended_rollouts(&growing).unwrap_or_default();
    kill_when(&lab, &set, "three episodes", || ended().len() >= 3);
    let left = ended();
    assert!((3..8).contains(&left.len()), "{}", left.len());
    assert_eq!(left, whole.episodes(2)[..left.len()]);
    lab.run(&["train", "--resume", "killed"]).succeeded();
    run.equals(&whole);
    assert!(run.is_tidy());
}

/// Collects episodes; fails at one of them.
#[derive(Default)]
struct Collected {
    episodes: Mutex<Vec<(String, u64, Episode)>>,
    fails_at: Option<usize>,
}

impl EpisodeSink for Collected {
    fn on_episode(&self, ended: &EndedEpisode<'_>) -> Result<(), SinkError> {
        let mut episodes = self.episodes.lock().unwrap();
        if self.fails_at == Some(episodes.len()) {
            return Err(io::Error::other("the receiver is gone").into());
        }
        episodes.push((ended.stage.to_owned(), ended.step, ended.episode.clone()));
        Ok(())
    }
}

/// Trains in this process with a sink.
fn train(lab: &Lab, out: &str, set: &[&str], sink: &Arc<Collected>) -> Result<Report, TrainError> {
    let registry = Registry::collect().unwrap();
    let text = std::fs::read_to_string(lab.path("run.toml")).unwrap();
    let sources = Sources::default().text("run.toml", text, lab.path(""));
    let sources = set.iter().fold(sources, |all, set| all.with(*set));
    let plan = check(&sources, &registry, Purpose::Train).unwrap();
    let options = Options::new(RunLocation::New(lab.path(out))).sink(Arc::clone(sink));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(maverl::train(&plan, &registry, options))
}

#[test]
fn a_sink_receives_every_episode_once_and_changes_no_number() {
    let lab = lab();
    let set = ["steps=2", "eval.every=1"];
    let plain = lab.train("plain", &set);
    let sink = Arc::new(Collected::default());
    train(&lab, "streamed", &set, &sink).unwrap();
    let run = Run(lab.path("streamed"));
    assert_eq!(run.bytes("metrics.jsonl"), plain.bytes("metrics.jsonl"));
    let mut received: BTreeMap<(String, u64), Vec<Episode>> = BTreeMap::new();
    for (stage, step, episode) in sink.episodes.lock().unwrap().drain(..) {
        received.entry((stage, step)).or_default().push(episode);
    }
    let stages: Vec<(&str, u64)> =
        received.keys().map(|(stage, step)| (stage.as_str(), *step)).collect();
    assert_eq!(stages, [("eval/test", 0), ("eval/validation", 0), ("train", 1), ("train", 2)]);
    for step in [1, 2] {
        let key = |episode: &Episode| (episode.task.id.clone(), episode.index);
        let mut received = received[&("train".to_owned(), step)].clone();
        let mut stored = run.episodes(step);
        received.sort_by_key(key);
        stored.sort_by_key(key);
        assert_eq!(received, stored);
    }
}

#[test]
fn an_error_of_a_sink_ends_the_run_with_its_source_and_keeps_the_episodes() {
    let lab = lab();
    let set = ["steps=2", "eval.before_and_after=false", "rollout.max_episodes=1"];
    let sink = Arc::new(Collected { fails_at: Some(5), ..Collected::default() });
    let error = train(&lab, "failed", &set, &sink).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Sink);
    let text = "a sink of episodes failed at step 1: the receiver is gone";
    assert_eq!(error.to_string(), text);
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "the receiver is gone");
    let growing = lab.path("failed/rollouts/step-000001.part.jsonl.zst");
    assert_eq!(read_ended_rollouts(&growing).unwrap().len(), 5);
    let resumed = lab.run(&["train", "--resume", "failed"]).succeeded();
    assert!(resumed.stderr.contains("step 2/2"), "{resumed}");
}
