//! One step of reinforcement learning; reads like the figure in `ARCHITECTURE.md`.

use std::time::Instant;

use crate::algo::{advantages, batches, samples};
use crate::metrics::rollout;
use crate::task::Task;
use crate::train::course::Stepped;
use crate::train::team::Team;
use crate::train::{TrainError, measure};

/// Does step `step`, from 0: the team plays the step's tasks, and every trained policy learns from its turns.
pub(super) async fn step(
    team: &Team<'_>,
    tasks: &[Task],
    step: u64,
) -> Result<Stepped, TrainError> {
    let (plan, start) = (team.plan, Instant::now());
    let tasks = team.sampler.step(step).into_iter().map(|task| &tasks[task]);
    let group_size = plan.task.group_size.get();
    let episodes = team.play(&team.rollout, "train", step, tasks, group_size).await?;
    let played = start.elapsed();
    let samples = samples(&episodes, plan);
    if samples.is_empty() {
        let scored = episodes.iter().filter(|episode| episode.score().is_some()).count();
        return Err(TrainError::NoSamples { step: step + 1, episodes: scored });
    }
    let advantages = advantages(&samples, &plan.algorithm);
    let mut metrics = rollout(&episodes);
    metrics.extend(measure::groups(&advantages.groups));
    let flat = advantages.groups.flat;
    if !flat {
        let batches = batches(plan, &episodes, &samples, &advantages.values, step);
        metrics.extend(measure::update(team, batches).await?);
    }
    let timing = measure::timing(&episodes, played, start.elapsed());
    Ok(Stepped { episodes, metrics, timing, flat, warnings: Vec::new() })
}
