//! One step of reinforcement learning; reads like the figure in `ARCHITECTURE.md`.

use std::time::Instant;

use crate::algo::{advantages, batches, flat_tasks, samples};
use crate::metrics::{Metrics, rollout};
use crate::plan::Plan;
use crate::runtime::Batch;
use crate::task::Task;
use crate::train::course::Stepped;
use crate::train::team::Team;
use crate::train::{TrainError, measure};
use crate::trajectory::Episode;

/// Does step `step`, from 0: the team plays the step's tasks, and every trained policy learns from its turns.
pub(super) async fn step(
    team: &Team<'_>,
    tasks: &[Task],
    step: u64,
) -> Result<Stepped, TrainError> {
    let (plan, start) = (team.plan, Instant::now());
    let before = (measure::work(&team.policies), team.rollout.bills());
    let episodes = play(team, tasks, step).await?;
    let played = start.elapsed();
    let Lesson { mut metrics, batches } = lesson(plan, &episodes, step)?;
    let flat = batches.is_empty();
    metrics.extend(measure::update(team, batches).await?);
    let mut timing = measure::timing(&episodes, played, start.elapsed());
    timing.extend(measure::engine(&team.policies, &before.0));
    timing.extend(measure::outsiders(&team.rollout.bills(), &before.1));
    Ok(Stepped { episodes, metrics, timing, flat, warnings: Vec::new() })
}

/// Plays the step's tasks, and, as often as the algorithm says, others in the place of those that teach nothing.
async fn play(team: &Team<'_>, tasks: &[Task], step: u64) -> Result<Vec<Episode>, TrainError> {
    let group_size = team.plan.task.group_size.get();
    let first = team.sampler.step(step).into_iter().map(|task| &tasks[task]);
    let mut episodes = team.play(&team.rollout, "train", step, first, group_size).await?;
    let mut others = match team.plan.algorithm.resample {
        0 => Vec::new(),
        _ => team.sampler.others(step),
    }
    .into_iter();
    let mut seen = 0;
    for _ in 0..team.plan.algorithm.resample {
        let flat = flat_tasks(&episodes[seen..]).len();
        let fresh: Vec<&Task> = others.by_ref().take(flat).map(|task| &tasks[task]).collect();
        if fresh.is_empty() {
            break;
        }
        seen = episodes.len();
        episodes.extend(team.play(&team.rollout, "train", step, fresh, group_size).await?);
    }
    Ok(episodes)
}

/// What the episodes of a step teach.
#[derive(Debug)]
pub(super) struct Lesson {
    /// The numbers of the episodes and of their groups.
    pub(super) metrics: Metrics,
    /// A batch for each trained policy; none where the step is flat.
    pub(super) batches: Vec<(usize, Batch)>,
}

/// What the episodes of step `step`, from 0, teach. Pure, so a stored step teaches the same again.
pub(super) fn lesson(plan: &Plan, episodes: &[Episode], step: u64) -> Result<Lesson, TrainError> {
    let mut samples = samples(episodes, plan);
    if samples.is_empty() {
        let scored = episodes.iter().filter(|episode| episode.score().is_some()).count();
        return Err(TrainError::NoSamples { step: step + 1, episodes: scored });
    }
    let mut metrics = rollout(episodes);
    if plan.algorithm.resample > 0 {
        let flat = flat_tasks(episodes);
        metrics.set("group/dropped", flat.len() as f64);
        samples.retain(|sample| !flat.contains(&sample.task));
    }
    let advantages = advantages(episodes, &samples, &plan.algorithm);
    metrics.extend(measure::groups(&advantages.groups));
    let batches = match advantages.groups.flat {
        true => Vec::new(),
        false => batches(plan, episodes, &samples, &advantages.values, step),
    };
    Ok(Lesson { metrics, batches })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{episode, plan, turn};

    fn played(rewards: [f64; 2]) -> [Episode; 2] {
        let one = |index, reward| episode("p", index, reward, vec![turn("t/a", 0)]);
        [one(0, rewards[0]), one(1, rewards[1])]
    }

    #[test]
    fn a_flat_step_has_numbers_and_no_batch() {
        let plan = plan(&[("t/a", true)]);
        let flat = lesson(&plan, &played([1.0, 1.0]), 0).unwrap();
        assert!(flat.batches.is_empty());
        assert_eq!(flat.metrics.get("group/zero_std_frac"), Some(1.0));
        assert_eq!(lesson(&plan, &played([1.0, 0.0]), 0).unwrap().batches[0].1.rows.len(), 2);
    }

    #[test]
    fn a_step_without_a_turn_to_train_on_is_an_error() {
        let plan = plan(&[("t/a", false)]);
        let error = lesson(&plan, &played([1.0, 0.0]), 4).unwrap_err().to_string();
        assert!(error.starts_with("step 5 has 2 scored episodes"), "{error}");
    }
}
