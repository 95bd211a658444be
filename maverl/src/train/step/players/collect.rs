//! The episodes of a training step: those of its tasks, replacements of flat tasks, greedy episodes and branches.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::algo::flat_tasks;
use crate::config::KnownBaseline;
use crate::data::SolveRates;
use crate::run_dir::{TurnTime, WorkerSample};
use crate::task::{Task, TaskList};
use crate::train::error::TrainError;
use crate::train::learner::batches::StepPlan;
use crate::train::record::spans::Span;
use crate::train::step::players::{Players, Stage};
use crate::train::step::unscored;
use crate::trajectory::Episode;

/// Episodes of a training step, as they were played.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlayedEpisodes {
    pub(crate) episodes: Vec<Episode>,
    /// Times of the turns.
    pub(crate) clock: Vec<TurnTime>,
    /// Samples of the worker groups meanwhile, by policy.
    pub(crate) workers: BTreeMap<String, Vec<WorkerSample>>,
    /// True if the episodes have parts of the reward that compare them, which they lacked when they ended.
    pub(crate) compared: bool,
}

impl Players {
    /// Runs the tasks of a training step. Flat tasks are replaced by others, as often as the algorithm allows; greedy
    /// episodes or branches come last. `in_order` receives the episodes as in [`Players::play`]. `rates` are the solve rates
    /// of a curriculum.
    pub(crate) async fn collect(
        &self,
        &StepPlan { plan, step, .. }: &StepPlan<'_>,
        rates: &SolveRates,
        tasks: &TaskList,
        in_order: &mut impl FnMut(&Episode) -> Result<(), TrainError>,
    ) -> Result<PlayedEpisodes, TrainError> {
        let began = Instant::now();
        let (algorithm, group) = (&plan.algorithm, 0..plan.config.task.group_size.get());
        let (rollout, stage) = (self.rollout(plan), Stage { name: "train", step });
        let first = self.sampler.step_by_rates(step, rates);
        let first = first.ok_or(TrainError::NoTasks { step: step + 1 })?;
        let first: Vec<Task> = first.into_iter().map(|task| tasks.task(task)).collect();
        let mut episodes =
            self.play(&rollout, stage, &first, group.clone(), &mut *in_order).await?;
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
            let mut again =
                self.play(&rollout, stage, &fresh, group.clone(), &mut *in_order).await?;
            compared |= self.compare(&mut again).await?;
            episodes.extend(again);
        }
        if algorithm.advantage.baseline() == KnownBaseline::Greedy {
            let greedy = self.at_temperature(plan, 0.0);
            let first = episodes.iter().filter(|episode| episode.index == group.start);
            let asked: Vec<Task> = first.map(|episode| episode.task.clone()).collect();
            let index = group.end..group.end + 1;
            episodes.extend(self.play(&greedy, stage, &asked, index, &mut *in_order).await?);
        }
        let branches = self.play_branches(plan, stage, &episodes, &mut *in_order).await?;
        episodes.extend(branches);
        let clock = self.turn_times(&episodes, &Span::since("rollout", began));
        Ok(PlayedEpisodes { episodes, clock, workers: self.worker_samples(), compared })
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
