//! The episodes of a training step: those of its tasks, of the tasks that replace flat ones, and greedy ones.

use crate::algo::flat_tasks;
use crate::config::KnownBaseline;
use crate::run_dir::RolloutWriter;
use crate::task::Task;
use crate::train::batches::StepPlan;
use crate::train::error::TrainError;
use crate::train::players::{Players, Stage};
use crate::trajectory::Episode;

/// Runs the tasks of a step, and writes the episodes as they end. Flat tasks are replaced by others, as often as the
/// algorithm allows.
pub(super) async fn collect(
    StepPlan { plan, step, .. }: &StepPlan<'_>,
    players: &Players,
    tasks: &[Task],
    rollouts: &mut RolloutWriter,
) -> Result<Vec<Episode>, TrainError> {
    let (algorithm, group) = (&plan.algorithm, 0..plan.config.task.group_size.get());
    let (rollout, stage) = (players.rollout(plan), Stage { name: "train", step: *step });
    let mut write = |episode: &Episode| Ok(rollouts.append(episode)?);
    let first = players.sampler.step(*step).into_iter().map(|task| &tasks[task]);
    let mut episodes = players.play(&rollout, stage, first, group.clone(), &mut write).await?;
    let others = match algorithm.resample {
        0 => Vec::new(),
        _ => players.sampler.others(*step),
    };
    let (mut others, mut seen) = (others.into_iter(), 0);
    for _ in 0..algorithm.resample {
        let flat = flat_tasks(&episodes[seen..]).len();
        let fresh: Vec<&Task> = others.by_ref().take(flat).map(|task| &tasks[task]).collect();
        if fresh.is_empty() {
            break;
        }
        seen = episodes.len();
        let again = players.play(&rollout, stage, fresh, group.clone(), &mut write).await?;
        episodes.extend(again);
    }
    if algorithm.advantage.baseline() == KnownBaseline::Greedy {
        let greedy = players.at_temperature(plan, 0.0);
        let first = episodes.iter().filter(|episode| episode.index == group.start);
        let asked: Vec<Task> = first.map(|episode| episode.task.clone()).collect();
        let index = group.end..group.end + 1;
        episodes.extend(players.play(&greedy, stage, &asked, index, &mut write).await?);
    }
    Ok(episodes)
}
