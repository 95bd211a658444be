#![allow(clippy::unwrap_used)]
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::run_dir::disk::{entries, name};
use crate::run_dir::tests::{episode, origin};
use crate::train::Silent;

/// A learner whose weights are one number that every step stirs. It fails when its fuse has burnt down.
struct Stirring {
    weights: u64,
    fuse: Rc<Cell<u32>>,
    /// Steps from which on there is nothing to learn.
    flat_from: u64,
    interrupt: (u64, Interrupt),
}

impl Stirring {
    fn new(fuse: u32) -> Self {
        let interrupt = (u64::MAX, Interrupt::default());
        Self { weights: 7, fuse: Rc::new(Cell::new(fuse)), flat_from: u64::MAX, interrupt }
    }

    /// One moment at which the process may end.
    fn moment(&self) -> Result<(), TrainError> {
        match self.fuse.get().checked_sub(1) {
            Some(left) => {
                self.fuse.set(left);
                Ok(())
            }
            None => Err(TrainError::Flat { steps: 0 }),
        }
    }
}

impl Work for Stirring {
    async fn step(&mut self, step: u64) -> Result<Stepped, TrainError> {
        self.moment()?;
        self.weights = (self.weights ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        self.moment()?;
        if step + 1 == self.interrupt.0 {
            self.interrupt.1.raise();
        }
        let solved = self.weights.is_multiple_of(2);
        Ok(Stepped {
            episodes: vec![episode("a", 0, solved, 2)],
            metrics: [("policy/small/loss", (self.weights % 1000) as f64)].into_iter().collect(),
            flat: step >= self.flat_from,
            ..Stepped::default()
        })
    }

    async fn evaluate(&self, spec: &EvalSpec) -> Result<EvalReport, TrainError> {
        self.moment()?;
        let solved =
            (0..8).map(|bit| episode(&bit.to_string(), 0, self.weights >> bit & 1 == 1, 1));
        Ok(EvalReport::of(spec, &solved.collect::<Vec<_>>()).unwrap())
    }

    async fn save(&self, draft: &Draft) -> Result<(), TrainError> {
        self.moment()?;
        let dir = draft.policy("small")?;
        fs::write(dir.join("model"), self.weights.to_string()).unwrap();
        self.moment()
    }

    async fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let text = fs::read_to_string(checkpoint.policy("small")?.join("model")).unwrap();
        self.weights = text.parse().unwrap();
        Ok(())
    }
}

fn settings(steps: u64) -> (Origin, Settings) {
    let mut origin = origin();
    origin.config.steps = steps;
    origin.config.eval.every = 2;
    origin.config.checkpoint.every = 3;
    let config = &origin.config;
    let settings = Settings {
        seed: 7,
        steps,
        max_flat_steps: 3,
        eval: config.eval.clone(),
        checkpoint: config.checkpoint.clone(),
    };
    (origin, settings)
}

async fn train(place: Place, steps: u64, work: Stirring) -> Result<Report, TrainError> {
    let (origin, settings) = settings(steps);
    let interrupt = work.interrupt.1.clone();
    match Course::open(&place, &origin, settings, work, Arc::new(Silent), interrupt).await? {
        Opened::Ready(course) => course.run().await,
        Opened::Complete(report) => Ok(report),
    }
}

/// In memory where that is possible: these tests sync thousands of files.
fn home() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Everything that must be the same in a run that was cut off: metrics, rollouts, the last checkpoint's weights.
fn outcome(dir: &Path) -> (String, Vec<String>, String) {
    let metrics = fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    let rollouts = entries(&dir.join("rollouts")).unwrap().iter().map(|path| name(path)).collect();
    let weights =
        Checkpoints::of(dir).open(Which::Last).unwrap().policy("small").unwrap().join("model");
    (metrics, rollouts, fs::read_to_string(weights).unwrap())
}

#[tokio::test]
async fn a_run_writes_what_it_did() {
    let home = home();
    let report =
        train(Place::New(home.path().join("a")), 7, Stirring::new(u32::MAX)).await.unwrap();
    assert_eq!((report.exit_code(), report.summary.complete, report.summary.steps), (0, true, 7));
    assert!(report.summary.before.is_some() && report.summary.after.is_some());
    let (metrics, rollouts, _) = outcome(&report.dir);
    assert_eq!((metrics.lines().count(), rollouts.len()), (9, 7));
    assert!(metrics.lines().next().unwrap().contains("\"step\":0,\"eval/test/exact_match\""));
    let calls: Vec<u64> = report.summary.agents.values().map(|agent| agent.calls).collect();
    assert_eq!(calls, [14]);
    let manifest = crate::run_dir::Manifest::read(&report.dir).unwrap();
    manifest.verify(&report.dir, |_| true).unwrap();
    assert!(
        manifest.files.contains_key("summary.json") && manifest.files.contains_key("metrics.jsonl")
    );
}

#[tokio::test]
async fn a_run_killed_at_any_moment_ends_as_if_it_had_not_been() {
    let home = home();
    let whole =
        train(Place::New(home.path().join("whole")), 7, Stirring::new(u32::MAX)).await.unwrap();
    let expected = outcome(&whole.dir);
    for fuse in 0.. {
        let dir = home.path().join(format!("killed-{fuse}"));
        let first = train(Place::New(dir.clone()), 7, Stirring::new(fuse)).await;
        if first.is_ok() {
            assert!(fuse > 20, "the run has {fuse} moments");
            break;
        }
        let second = train(Place::Resume(dir.clone()), 7, Stirring::new(fuse / 2 + 2)).await;
        if second.is_err() {
            train(Place::Resume(dir.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
        }
        assert_eq!(outcome(&dir), expected, "killed at moment {fuse}");
        let summary: Summary = read_json(&dir.join("summary.json")).unwrap();
        let expected = Summary { train_seconds: summary.train_seconds, ..whole.summary.clone() };
        assert_eq!(summary, expected, "killed at moment {fuse}");
    }
}

#[tokio::test]
async fn n_steps_and_then_n_more_are_2n_steps() {
    let home = home();
    let (whole, halves) = (home.path().join("whole"), home.path().join("halves"));
    train(Place::New(whole.clone()), 8, Stirring::new(u32::MAX)).await.unwrap();
    train(Place::New(halves.clone()), 4, Stirring::new(u32::MAX)).await.unwrap();
    train(Place::Resume(halves.clone()), 8, Stirring::new(u32::MAX)).await.unwrap();
    assert_eq!(outcome(&halves), outcome(&whole));
    let error = train(Place::Resume(halves), 5, Stirring::new(0)).await.unwrap_err().to_string();
    assert!(error.contains("has gone to step 8 and `steps` is 5"), "{error}");
}

#[tokio::test]
async fn a_complete_run_is_not_touched() {
    let home = home();
    let dir = home.path().join("a");
    let first = train(Place::New(dir.clone()), 3, Stirring::new(u32::MAX)).await.unwrap();
    let second = train(Place::Resume(dir), 3, Stirring::new(0)).await.unwrap();
    assert_eq!(second, first);
}

#[tokio::test]
async fn an_interrupted_run_finishes_its_step_and_can_go_on() {
    let home = home();
    let whole =
        train(Place::New(home.path().join("whole")), 7, Stirring::new(u32::MAX)).await.unwrap();
    let dir = home.path().join("a");
    let mut work = Stirring::new(u32::MAX);
    work.interrupt.0 = 5;
    let report = train(Place::New(dir.clone()), 7, work).await.unwrap();
    assert_eq!(
        (report.exit_code(), report.summary.steps, report.summary.complete),
        (130, 5, false)
    );
    assert_eq!(Checkpoints::of(&dir).open(Which::Last).unwrap().state.step, 5);
    let report = train(Place::Resume(dir.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
    assert_eq!(report.exit_code(), 0);
    assert_eq!(outcome(&dir), outcome(&whole.dir));
}

#[tokio::test]
async fn too_many_flat_steps_in_a_row_end_the_run_with_what_would_help() {
    let home = home();
    let dir = home.path().join("a");
    let mut work = Stirring::new(u32::MAX);
    work.flat_from = 2;
    let error = train(Place::New(dir.clone()), 9, work).await.unwrap_err().to_string();
    assert!(error.contains("3 steps in a row") && error.contains("group_size"), "{error}");
    let metrics = fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    assert!(metrics.lines().last().unwrap().contains("\"step\":5"));
}

#[tokio::test]
async fn a_run_without_checkpoints_but_with_rows_is_not_started_over() {
    let home = home();
    let dir = home.path().join("a");
    train(Place::New(dir.clone()), 3, Stirring::new(5)).await.unwrap_err();
    for checkpoint in entries(&dir.join("checkpoints")).unwrap() {
        fs::remove_dir_all(checkpoint).unwrap();
    }
    let error =
        train(Place::Resume(dir), 3, Stirring::new(u32::MAX)).await.unwrap_err().to_string();
    assert!(error.contains("has no checkpoint"), "{error}");
}
