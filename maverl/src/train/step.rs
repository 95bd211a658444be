//! One step of reinforcement learning; follows the figure in `ARCHITECTURE.md`.

pub(super) mod players;
pub(super) mod sink;
pub(super) mod unscored;

use crate::run_dir::RolloutWriter;
use crate::task::TaskList;
use crate::train::error::TrainError;
use crate::train::learner::batches::{StepPlan, batches};
use crate::train::learner::{Learner, estimator};
use crate::train::record::{self, measure::UpdateMeter};
use crate::train::run::trainable::Stepped;
use crate::train::step::{players::Players, unscored::left_out};
use crate::trajectory::Episode;

/// Runs a step: the team runs the step's tasks, and every trained policy is updated on its turns.
pub(super) async fn step(
    at: &StepPlan<'_>,
    players: &Players,
    learner: &mut Learner,
    tasks: &TaskList,
    rollouts: &mut RolloutWriter,
) -> Result<Stepped, TrainError> {
    learner.begin(at).await?;
    let mut meter = UpdateMeter::start(players.policies(), players.usage());
    let mut episodes = players.collect(at, learner.solve_rates(), tasks, rollouts).await?;
    let rollout = meter.end_rollout();
    let (clock, workers) = (players.turn_times(&episodes, &rollout), players.worker_samples());
    players.progress().work(&format!("step {}: learning", at.step + 1));
    if learner.penalize_kl(at.plan, &mut episodes).await? {
        rollouts.replace(&episodes)?;
    }
    rollouts.finish()?;
    let mut stepped = learn(at, learner, &episodes).await?;
    stepped.timing = meter.stop(&episodes, &players.usage());
    stepped.warnings.extend(left_out(at.step, &episodes));
    stepped.spans.push(rollout);
    Ok(Stepped { episodes, clock, workers, ..stepped })
}

/// Trains on the episodes of a step, which may be stored ones.
pub(super) async fn learn(
    at: &StepPlan<'_>,
    learner: &mut Learner,
    episodes: &[Episode],
) -> Result<Stepped, TrainError> {
    let samples = learner.samples(at, episodes)?;
    let values = learner.predict(at.plan, episodes, &samples.rows).await?;
    let mut advantages = learner.advantages(at, episodes, &samples.rows, &values).await?;
    let warnings = estimator::check((at.plan, at.step), episodes, &advantages.record)?;
    let batches = batches(at, episodes, &samples.rows, &advantages, &values);
    let updated = learner.update(at, &samples.rows, batches, &mut advantages.record).await?;
    let mut metrics = samples.metrics;
    metrics.extend(advantages.metrics);
    metrics.extend(updated.metrics);
    let tokens = record::tokens(&samples.rows, &updated.columns);
    let (flat, samples, spans) = (advantages.flat, Some(advantages.record), updated.spans);
    Ok(Stepped { metrics, flat, samples, tokens, spans, warnings, ..Stepped::default() })
}
