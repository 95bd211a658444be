//! Interface between the loop of a run and the steps that it repeats.

use std::collections::BTreeMap;
use std::path::Path;

use crate::checkpoint::{Checkpoint, Draft};
use crate::eval::EvalSpec;
use crate::metrics::Metrics;
use crate::run_dir::{RolloutWriter, StepSamples, TokenRecord, TurnTime, WorkerSample};
use crate::train::error::TrainError;
use crate::train::record::spans::Span;
use crate::trajectory::Episode;

/// Writes what a checkpoint lacks, on another thread, while the run goes on.
pub(crate) type WriteRest = Box<dyn FnOnce() -> Result<(), TrainError> + Send>;

/// Training of one kind. The course of the run does not depend on it.
pub(crate) trait Trainable {
    /// Runs step `step`, counted from 0. Equal steps on equal weights give equal results. Episodes are written to
    /// `rollouts` as they end, and the file is complete before the update.
    async fn step(
        &mut self,
        step: u64,
        rollouts: &mut RolloutWriter,
    ) -> Result<Stepped, TrainError>;
    /// Evaluates on held-out tasks. Equal evaluations of equal weights give equal episodes.
    async fn evaluate(&self, spec: &EvalSpec) -> Result<Vec<Episode>, TrainError>;
    /// Returns true if an evaluation may be given up before its end: other ranks would wait for this one.
    fn may_give_up(&self) -> bool {
        true
    }
    /// Writes what belongs to the run into its directory from now on. The directory is locked, and has returned to its last
    /// checkpoint.
    fn open_in(&mut self, dir: &Path) -> Result<(), TrainError> {
        let _ = dir;
        Ok(())
    }
    /// Saves every policy. What is left to be written is what later steps do not change, such as copies.
    async fn save(&self, draft: &Draft) -> Result<WriteRest, TrainError>;
    /// Returns the number of steps after a step whose episodes are played while it is updated.
    fn staleness(&self) -> u64 {
        0
    }
    /// Returns the number of steps after a step whose weights its episodes in flight wait for.
    fn awaited_steps(&self) -> u64 {
        0
    }
    /// Saves the episodes that were played while a step was updated, which the checkpoint of the step needs. Waits for those
    /// that are still played.
    async fn save_in_flight(&mut self, step: u64, draft: &Draft) -> Result<(), TrainError> {
        let _ = (step, draft);
        Ok(())
    }
    /// Takes part in saving, which rank 0 does.
    async fn share(&self) -> Result<(), TrainError> {
        Ok(())
    }
    /// Loads every policy.
    async fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError>;
}

/// Result of a step.
#[derive(Debug, Default)]
pub(crate) struct Stepped {
    /// Episodes of the step.
    pub(crate) episodes: Vec<Episode>,
    /// Metrics of the step.
    pub(crate) metrics: Metrics,
    /// Times of the step.
    pub(crate) timing: Metrics,
    /// True if there is nothing to learn from, and no policy was updated.
    pub(crate) flat: bool,
    /// Warnings for the user.
    pub(crate) warnings: Vec<String>,
    /// Warnings that are given once a run, by name.
    pub(crate) warnings_once: Vec<(&'static str, String)>,
    /// Samples that were trained on, with the terms of their advantages; `None` in supervised training.
    pub(crate) samples: Option<StepSamples>,
    /// Quantities of the tokens of the samples, if they are recorded in this step.
    pub(crate) tokens: Option<TokenRecord>,
    /// Parts of the step with their times.
    pub(crate) spans: Vec<Span>,
    /// Times of the turns.
    pub(crate) clock: Vec<TurnTime>,
    /// Samples of the worker groups during the rollout, by policy.
    pub(crate) workers: BTreeMap<String, Vec<WorkerSample>>,
}
