//! A step as estimators see it: plain data.
//!
//! A new value of `by` is a variant of [`GroupBy`] with its ids in `Rewarded::ids`, and its name in `train/record.rs`.

use std::collections::BTreeMap;

use maverl_kernels::advantage::{GaeSteps, Grouping, Moments, RaggedRows, Relative, Segments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backend::{CPU, Estimators};

/// Rows that are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// Episodes of a task (GRPO): unit = episode, group = task.
    Task,
    /// Turns on a task, whoever speaks: unit = row, group = task.
    TaskTurn,
    /// Turns of a seat on a task (Dr. MAS): unit = row, group = (task, seat).
    #[default]
    TaskSeat,
    /// Turns of a seat with the same number among its turns of the episode (AT-GRPO): unit = row, group = (task, seat, number).
    TaskSeatTurn,
    /// Turns of a seat in an episode: unit = row, group = (episode, seat).
    EpisodeSeat,
    /// Replies at a branch, which have one prompt (C3): unit = row, group = branch. Rows without another reply: group =
    /// (task, seat).
    Branch,
}

/// A part of the rewards of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct RewardColumn {
    /// `score`, the name of a reward function or penalty, or `other`.
    pub name: String,
    /// Values, 0 for rows that have none. `[N]`
    pub values: Vec<f64>,
}

/// The rows of a step: the turns that are trained on, sorted by task, episode and turn. All `[N]`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Rewarded<'a> {
    /// Rewards, less the baseline that is known before the step (`greedy`, `moving_average`).
    pub rewards: &'a [f64],
    /// Parts of the rewards; the columns add up to them, up to rounding.
    ///
    /// `score` is the environment's, parts of `[rewards]` and penalties have their names, weights applied, and whatever
    /// else changed a reward, such as shaping or a baseline, is `other`.
    pub parts: &'a [RewardColumn],
    /// Values of a critic for each row: one for each token, or one for the turn; none without a critic.
    pub values: Option<&'a [Vec<f64>]>,
    /// Dense ids of seats.
    pub seats: &'a [usize],
    /// Indices of turns in their episodes.
    pub turns: &'a [usize],
    /// Dense ids of tasks.
    pub tasks: &'a [usize],
    /// Dense ids of episodes.
    pub episodes: &'a [usize],
    /// Numbers of tokens, at least 1.
    pub lengths: &'a [usize],
    /// Dense ids of units, as [`Advantage::group_by`](super::Advantage::group_by) says: rows of one unit count once, with
    /// their mean.
    pub units: &'a [usize],
    /// Dense ids of groups, as [`Advantage::group_by`](super::Advantage::group_by) says. A unit lies in one group.
    pub groups: &'a [usize],
    /// Prompts, token by token.
    pub prompts: &'a [&'a [u32]],
    /// Rewards before the baseline is taken off.
    pub earned: &'a [f64],
    /// Rewards as the episodes record them, before shaping and later rewards.
    pub recorded: &'a [f64],
    /// Sums of the parts of rewards that are for the seat of the row.
    pub seat_parts: &'a [f64],
    /// Sums of the parts of rewards that are for a turn, of every turn of each episode by its id, also of turns that are no
    /// rows.
    pub turn_parts: &'a [Vec<f64>],
    /// Dense ids of branches; `None` for a row that is the only reply to its turn. It may be shorter than the other lists: rows
    /// without a place have no branch.
    pub branches: &'a [Option<usize>],
    /// Place of the functions below.
    estimators: &'a Estimators,
}

impl<'a> Rewarded<'a> {
    /// Rows.
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// Tokens of all rows.
    pub fn tokens(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Units and groups, as [`relative_advantages`](super::relative_advantages()) takes them.
    pub fn grouping(&self) -> Grouping {
        Grouping::from_units(self.units, self.groups)
    }

    /// [`relative_advantages`](super::relative_advantages()) where the run computes advantages: on the CPU the
    /// function, in f64; on a device (`runtime.device`) its kernel, with inputs and results in f32.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn relative(
        &self,
        values: &[f64],
        by: &Grouping,
        deviation: Option<&Grouping>,
        options: &Relative,
    ) -> (Vec<f64>, Vec<Moments>) {
        self.estimators.relative(values, by, deviation, options)
    }

    /// [`group_moments`](super::group_moments()) where the run computes advantages, as [`relative`](Self::relative).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn moments(&self, values: &[f64], by: &Segments) -> Vec<Moments> {
        self.estimators.moments(values, by)
    }

    /// [`gae_advantages`](super::gae_advantages()) where the run computes advantages, as [`relative`](Self::relative).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn gae(
        &self,
        rewards: &[f64],
        values: &[f64],
        after: &[f64],
        places: &RaggedRows,
        steps: GaeSteps,
    ) -> (Vec<f64>, Vec<f64>) {
        self.estimators.gae(rewards, values, after, places, steps)
    }

    /// [`discounted_returns`](super::discounted_returns()) where the run computes advantages, as [`relative`](Self::relative).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn returns(&self, rewards: &[f64], places: &RaggedRows, gamma: f64) -> Vec<f64> {
        self.estimators.returns(rewards, places, gamma)
    }

    /// [`whiten_groups`](super::whiten_groups()) where the run computes advantages, as [`relative`](Self::relative).
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn whiten(&self, values: &[f64], tokens: &[u32], by: &Segments) -> Vec<f64> {
        self.estimators.whiten(values, tokens, by)
    }

    /// Place where the run computes advantages.
    pub(crate) fn estimators(&self) -> &'a Estimators {
        self.estimators
    }

    /// Dense ids of units and of groups by a choice of rows.
    pub fn ids(&self, by: GroupBy) -> (Vec<usize>, Vec<usize>) {
        match by {
            GroupBy::Task => (dense(self.episodes.iter()), dense(self.tasks.iter())),
            GroupBy::TaskTurn => ((0..self.len()).collect(), dense(self.tasks.iter())),
            GroupBy::TaskSeat => {
                ((0..self.len()).collect(), dense(self.tasks.iter().zip(self.seats)))
            }
            GroupBy::TaskSeatTurn => {
                let numbers = seat_turns(self.episodes, self.seats);
                let keys = self.tasks.iter().zip(self.seats).zip(numbers);
                ((0..self.len()).collect(), dense(keys))
            }
            GroupBy::EpisodeSeat => {
                ((0..self.len()).collect(), dense(self.episodes.iter().zip(self.seats)))
            }
            GroupBy::Branch => {
                let keys = (0..self.len()).map(|row| match self.branches.get(row) {
                    Some(Some(branch)) => (Some(branch), None),
                    _ => (None, Some((self.tasks[row], self.seats[row]))),
                });
                ((0..self.len()).collect(), dense(keys))
            }
        }
    }

    /// Dense ids of units and of groups by a choice for each row. Rows of different choices are in different groups.
    ///
    /// # Panics
    ///
    /// If there is no choice for a row.
    pub fn ids_by_row(&self, by: &[GroupBy]) -> (Vec<usize>, Vec<usize>) {
        assert_eq!(by.len(), self.len(), "ids_by_row: a choice for each row");
        let choices = dense(by.iter().map(|by| *by as usize));
        let mut ids = vec![(0, 0); self.len()];
        for choice in 0..choices.iter().max().map_or(0, |last| last + 1) {
            let rows: Vec<usize> = (0..self.len()).filter(|&row| choices[row] == choice).collect();
            let (units, groups) = self.ids(by[rows[0]]);
            rows.into_iter().for_each(|row| ids[row] = (units[row], groups[row]));
        }
        let units = dense(choices.iter().zip(ids.iter().map(|ids| ids.0)));
        (units, dense(choices.iter().zip(ids.iter().map(|ids| ids.1))))
    }

    /// The step for an estimator of groups by another choice of rows.
    #[must_use]
    pub fn regrouped(self, (units, groups): &'a (Vec<usize>, Vec<usize>)) -> Self {
        Self { units, groups, ..self }
    }
}

/// Returns the number of each row among those of its seat in its episode.
fn seat_turns(episodes: &[usize], seats: &[usize]) -> Vec<usize> {
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let rows = episodes.iter().zip(seats).map(|(&episode, &seat)| {
        let count = counts.entry((episode, seat)).or_default();
        std::mem::replace(count, *count + 1)
    });
    rows.collect()
}

/// Numbers keys from 0 in the order in which they first appear.
pub(crate) fn dense<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<usize> {
    let mut ids = BTreeMap::new();
    keys.map(|key| {
        let next = ids.len();
        *ids.entry(key).or_insert(next)
    })
    .collect()
}

/// The data of [`Rewarded`], owned but for the prompts; field by field the same.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RewardedStep<'p> {
    /// See [`Rewarded::rewards`].
    pub rewards: Vec<f64>,
    /// See [`Rewarded::parts`].
    pub parts: Vec<RewardColumn>,
    /// See [`Rewarded::values`].
    pub values: Option<Vec<Vec<f64>>>,
    /// See [`Rewarded::seats`].
    pub seats: Vec<usize>,
    /// See [`Rewarded::turns`].
    pub turns: Vec<usize>,
    /// See [`Rewarded::tasks`].
    pub tasks: Vec<usize>,
    /// See [`Rewarded::episodes`].
    pub episodes: Vec<usize>,
    /// See [`Rewarded::lengths`].
    pub lengths: Vec<usize>,
    /// See [`Rewarded::units`].
    pub units: Vec<usize>,
    /// See [`Rewarded::groups`].
    pub groups: Vec<usize>,
    /// See [`Rewarded::prompts`].
    pub prompts: Vec<&'p [u32]>,
    /// See [`Rewarded::earned`].
    pub earned: Vec<f64>,
    /// See [`Rewarded::recorded`].
    pub recorded: Vec<f64>,
    /// See [`Rewarded::seat_parts`].
    pub seat_parts: Vec<f64>,
    /// See [`Rewarded::turn_parts`].
    pub turn_parts: Vec<Vec<f64>>,
    /// See [`Rewarded::branches`].
    pub branches: Vec<Option<usize>>,
}

impl RewardedStep<'_> {
    /// The step as an estimator takes it on the CPU.
    pub fn view(&self) -> Rewarded<'_> {
        self.view_on(&CPU)
    }

    /// The step as an estimator takes it.
    pub(crate) fn view_on<'s>(&'s self, estimators: &'s Estimators) -> Rewarded<'s> {
        Rewarded {
            estimators,
            rewards: &self.rewards,
            parts: &self.parts,
            values: self.values.as_deref(),
            seats: &self.seats,
            turns: &self.turns,
            tasks: &self.tasks,
            episodes: &self.episodes,
            lengths: &self.lengths,
            units: &self.units,
            groups: &self.groups,
            prompts: &self.prompts,
            earned: &self.earned,
            recorded: &self.recorded,
            seat_parts: &self.seat_parts,
            turn_parts: &self.turn_parts,
            branches: &self.branches,
        }
    }

    /// Advantages of the step on the CPU: one for each row, or for each token if the estimator gives those.
    pub fn estimate(&self, estimator: &dyn super::Advantage) -> Vec<f64> {
        CPU.estimate(self, estimator)
    }
}
