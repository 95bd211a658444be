//! The episodes of a training step: those of its tasks, replacements of flat tasks, greedy episodes and branches.

use crate::algo::flat_tasks;
use crate::config::KnownBaseline;
use crate::data::SolveRates;
use crate::run_dir::RolloutWriter;
use crate::task::{Task, TaskList};
use crate::train::error::TrainError;
use crate::train::learner::batches::StepPlan;
use crate::train::step::players::{Players, Stage};
use crate::train::step::unscored;
use crate::trajectory::Episode;

impl Players {
    /// Runs the tasks of a training step, and writes the episodes as they end. Flat tasks are replaced by others, as often
    /// as the algorithm allows; greedy episodes or branches come last. `rates` are the solve rates of a curriculum.
    pub(crate) async fn collect(
        &self,
        &StepPlan { plan, step, .. }: &StepPlan<'_>,
        rates: &SolveRates,
        tasks: &TaskList,
        rollouts: &mut RolloutWriter,
    ) -> Result<Vec<Episode>, TrainError> {
        let (algorithm, group) = (&plan.algorithm, 0..plan.config.task.group_size.get());
        let (rollout, stage) = (self.rollout(plan), Stage { name: "train", step });
        let mut write = |episode: &Episode| Ok(rollouts.append(episode)?);
        let first = self.sampler.step_by_rates(step, rates);
        let first = first.ok_or(TrainError::NoTasks { step: step + 1 })?;
        let first: Vec<Task> = first.into_iter().map(|task| tasks.task(task)).collect();
        let mut episodes = self.play(&rollout, stage, &first, group.clone(), &mut write).await?;
        let mut compared = self.compare(&mut episodes).await?;
        let others = match algorithm.resample {
            0 => Vec::new(),
            _ => self.sampler.others_by_rates(step, rates),
        };
        let (mut others, mut seen) = (others.into_iter(), 0);
        for _ in 0..algorithm.resample {
            let flat = flat_tasks(&episodes[seen..]).len();
            let fresh = others.by_ref().take(flat).map(|task| tasks.task(task));
            let fresh: Vec<Task> = fresh.collect();
            if fresh.is_empty() {
                break;
            }
            seen = episodes.len();
            let mut again = self.play(&rollout, stage, &fresh, group.clone(), &mut write).await?;
            compared |= self.compare(&mut again).await?;
            episodes.extend(again);
        }
        if algorithm.advantage.baseline() == KnownBaseline::Greedy {
            let greedy = self.at_temperature(plan, 0.0);
            let first = episodes.iter().filter(|episode| episode.index == group.start);
            let asked: Vec<Task> = first.map(|episode| episode.task.clone()).collect();
            let index = group.end..group.end + 1;
            episodes.extend(self.play(&greedy, stage, &asked, index, &mut write).await?);
        }
        let branches = self.play_branches(plan, stage, &episodes, &mut write).await?;
        episodes.extend(branches);
        if compared {
            rollouts.replace(&episodes)?;
        }
        Ok(episodes)
    }

    /// Adds the parts of the reward that compare the episodes of a task. Returns true if there are such parts.
    async fn compare(&self, episodes: &mut [Episode]) -> Result<bool, TrainError> {
        let compared = self.rollout.runner().rewards.compare(episodes).await;
        if compared {
            unscored::check(episodes, self.max_unscored)?;
        }
        Ok(compared)
    }
}
