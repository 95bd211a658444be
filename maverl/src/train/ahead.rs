//! Batches of episodes that are played ahead of the updates (`rollout.staleness`).
//!
//! The batch of a step is issued when the version of the weights exists that plays it, and trained on at its step. All its
//! episodes are played by that version: replacements of flat tasks, greedy episodes and branches too. So the episodes of a
//! step depend on its number, and not on time. A checkpoint has the batches that were in flight at its step, and no older
//! weights.
//!
//! With `rollout.advance_turns`, that version plays the first turns of a batch, and later versions the others, up to the one
//! that its step trains (`rollout/versions.rs`). A turn waits for its version.

mod ages;
mod batch;
mod schedule;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::checkpoint::{Checkpoint, Draft};
use crate::data::SolveRates;
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::rollout::{Clock, PolicyVersions, TurnSchedule, TurnVersions};
use crate::runtime::Policy;
use crate::task::TaskList;
use crate::train::ahead::ages::Ages;
use crate::train::ahead::batch::{PlayedBatch, read_batches, write_batch};
use crate::train::ahead::schedule::Schedule;
use crate::train::error::TrainError;
use crate::train::learner::batches::StepPlan;
use crate::train::step::players::Players;
use crate::trajectory::Episode;

/// A batch that was issued, and the version of the weights that play it, or its first turns.
struct IssuedBatch {
    version: u64,
    state: BatchState,
}

enum BatchState {
    /// One task plays it. Dropping it ends the episodes.
    Playing(JoinSet<Result<PlayedBatch, TrainError>>),
    Played(Arc<PlayedBatch>),
}

/// Batches that are played ahead of the updates. Steps are counted from 1.
pub(crate) struct BatchesAhead {
    schedule: Schedule,
    plan: Arc<Plan>,
    tasks: Arc<TaskList>,
    /// Batches that were issued and not trained on, by step.
    issued: BTreeMap<u64, IssuedBatch>,
    /// Last batches that were trained on, by step: checkpoints that are not complete lack them.
    trained: BTreeMap<u64, Arc<PlayedBatch>>,
    /// Snapshots of the policies by version.
    existing: watch::Sender<PolicyVersions>,
}

impl BatchesAhead {
    /// Returns the batches of a run with staleness, none of which is issued; `None` without staleness.
    pub(crate) fn new(plan: &Plan, tasks: &Arc<TaskList>) -> Option<Self> {
        let (staleness, steps) = (plan.config.rollout.staleness, plan.config.steps);
        let schedule = Schedule { staleness, steps, turns: plan.config.rollout.advance_turns };
        (staleness > 0).then(|| Self {
            schedule,
            plan: Arc::new(plan.clone()),
            tasks: Arc::clone(tasks),
            issued: BTreeMap::new(),
            trained: BTreeMap::new(),
            existing: watch::Sender::default(),
        })
    }

    /// Issues the batches that the current weights play: before step `step`, those of this step and of the `staleness` after it
    /// that were not issued. That is one batch, but for the first step of a run, and for a run that was extended.
    pub(crate) async fn issue(
        &mut self,
        step: u64,
        players: &Players,
        rates: &SolveRates,
    ) -> Result<(), TrainError> {
        let wanted = self.schedule.issued(step);
        let missing: Vec<u64> = wanted.filter(|batch| !self.issued.contains_key(batch)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let version = step - 1;
        let policies = self.snapshots(version, players).await?;
        for batch in missing {
            let place = self.schedule.place(batch);
            let of_turns = self.schedule.turns_of(batch, version);
            let versions = of_turns.map(|schedule| {
                let existing = self.existing.subscribe();
                TurnVersions::new(&self.plan, schedule, existing, wait_clock())
            });
            let players = players.for_batch((batch, place), &policies, versions);
            let playing = self.play(batch, version, players, rates);
            let state = BatchState::Playing(playing);
            self.issued.insert(batch, IssuedBatch { version, state });
        }
        Ok(())
    }

    /// Lets turns go on that wait for the weights after `version` steps, which the policies have now.
    pub(crate) async fn advance(
        &mut self,
        version: u64,
        players: &Players,
    ) -> Result<(), TrainError> {
        let playing = |batch: &IssuedBatch| matches!(batch.state, BatchState::Playing(_));
        if self.schedule.turns > 0 && self.issued.values().any(playing) {
            self.snapshots(version, players).await?;
        }
        Ok(())
    }

    /// Returns the snapshots of the version that the policies have now. They replace those of the oldest version, which no
    /// batch needs any longer.
    async fn snapshots(
        &mut self,
        version: u64,
        players: &Players,
    ) -> Result<Vec<Policy>, TrainError> {
        let existing = self.existing.borrow().get(&version).cloned();
        if let Some(policies) = existing {
            return Ok(policies);
        }
        let policies = players.snapshots(self.schedule.place(version)).await?;
        let kept = self.schedule.staleness;
        self.existing.send_modify(|existing| {
            existing.retain(|older, _| older + kept >= version);
            existing.insert(version, policies.clone());
        });
        Ok(policies)
    }

    /// Starts the task that plays a batch.
    fn play(
        &self,
        batch: u64,
        version: u64,
        players: Players,
        rates: &SolveRates,
    ) -> JoinSet<Result<PlayedBatch, TrainError>> {
        let (plan, tasks, rates) = (Arc::clone(&self.plan), Arc::clone(&self.tasks), rates.clone());
        let mut playing = JoinSet::new();
        playing.spawn(async move {
            let at = StepPlan { plan: &plan, step: batch - 1, rates: None };
            let played = players.collect(&at, &rates, &tasks, &mut |_: &Episode| Ok(())).await?;
            Ok(PlayedBatch { version, played })
        });
        playing
    }

    /// Waits until the batch of a step was played, and takes it.
    pub(crate) async fn take(&mut self, step: u64) -> Result<Arc<PlayedBatch>, TrainError> {
        let batch = self.wait_for(step).await?;
        self.issued.remove(&step);
        self.trained.insert(step, Arc::clone(&batch));
        let staleness = self.schedule.staleness;
        self.trained.retain(|trained, _| trained + staleness > step);
        Ok(batch)
    }

    /// Waits until every batch that was issued was played.
    pub(crate) async fn settle(&mut self) -> Result<(), TrainError> {
        let steps: Vec<u64> = self.issued.keys().copied().collect();
        for step in steps {
            self.wait_for(step).await?;
        }
        Ok(())
    }

    async fn wait_for(&mut self, step: u64) -> Result<Arc<PlayedBatch>, TrainError> {
        let batch = self.issued.get_mut(&step).expect("a batch is issued before its step");
        let played = match &mut batch.state {
            BatchState::Played(played) => return Ok(Arc::clone(played)),
            BatchState::Playing(playing) => {
                playing.join_next().await.expect("an error of the task ends the run")
            }
        };
        let played = Arc::new(played.unwrap_or_else(|error| resume_unwind(error.into_panic()))?);
        batch.state = BatchState::Played(Arc::clone(&played));
        Ok(played)
    }

    /// Returns the metrics of a step whose batch was taken.
    pub(crate) fn metrics(&self, step: u64) -> Metrics {
        let version =
            |batch: u64| self.issued.get(&batch).map_or(step - 1, |issued| issued.version);
        let batch = self.trained.get(&step);
        let played = batch.map_or(step - 1, |batch| batch.version);
        let staleness = (step - 1 - played) as f64;
        let values = [
            (STALENESS, staleness),
            ("async/staleness_mean", staleness),
            ("async/versions", self.schedule.live(step, version).len() as f64),
        ];
        let mut metrics: Metrics = values.into_iter().collect();
        if let Some((schedule, batch)) = self.schedule.turns_of(step, played).zip(batch) {
            metrics.extend(Ages::of(&self.plan, schedule, &batch.played.episodes).metrics());
        }
        metrics
    }

    /// Writes the batches that were in flight at a step into the checkpoint of the step. Waits for those that are still played.
    pub(crate) async fn save(&mut self, step: u64, draft: &Draft) -> Result<(), TrainError> {
        for batch in self.schedule.in_flight(step) {
            let played = match self.trained.get(&batch) {
                Some(played) => Arc::clone(played),
                None => self.wait_for(batch).await?,
            };
            write_batch(draft, batch, &played)?;
        }
        Ok(())
    }

    /// Returns to the batches of a checkpoint.
    pub(crate) fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        self.trained.clear();
        self.issued.clear();
        self.existing.send_replace(PolicyVersions::new());
        for (step, played) in read_batches(checkpoint)? {
            let version = played.version;
            let state = BatchState::Played(Arc::new(played));
            self.issued.insert(step, IssuedBatch { version, state });
        }
        Ok(())
    }
}

/// Returns the share of the time of a step in which the trainer waited for episodes.
pub(crate) fn idle_share(timing: &Metrics) -> Metrics {
    let [waited, learned] =
        ["time/rollout_s", "time/update_s"].map(|name| timing.get(name).unwrap_or(0.0));
    let share = waited / (waited + learned).max(f64::MIN_POSITIVE);
    [("async/idle_share", share)].into_iter().collect()
}

/// Name of the metric of the staleness of a step.
const STALENESS: &str = "async/staleness_max";

/// Returns the versions that played the turns of the episodes of a step, from the row of the step.
pub(crate) fn played_versions(plan: &Plan, step: u64, row: Option<&Metrics>) -> TurnSchedule {
    let staleness = row.and_then(|row| row.get(STALENESS)).unwrap_or(0.0);
    let (last, turns) = (step.saturating_sub(1), plan.config.rollout.advance_turns);
    TurnSchedule { first: last.saturating_sub(staleness as u64), last, turns }
}

/// Returns a clock of waits for weights.
pub(in crate::train) fn wait_clock() -> Clock {
    let began = Instant::now();
    Arc::new(move || began.elapsed())
}
