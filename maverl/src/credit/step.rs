//! A step as estimators see it: plain data.

use maverl_kernels::advantage::Grouping;

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
    /// Dense ids of units, as `algorithm.group_by` says: rows of one unit count once, with their mean.
    pub units: &'a [usize],
    /// Dense ids of groups, as `algorithm.group_by` says. A unit lies in one group.
    pub groups: &'a [usize],
}

impl Rewarded<'_> {
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

    /// Units and groups, as [`relative`](super::relative()) takes them.
    pub fn grouping(&self) -> Grouping {
        Grouping::units(self.units, self.groups)
    }
}

/// The data of [`Rewarded`], owned; field by field the same.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RewardedStep {
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
}

impl RewardedStep {
    /// The step as an estimator takes it.
    pub fn view(&self) -> Rewarded<'_> {
        Rewarded {
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
        }
    }

    /// Advantages of the step: one for each row, or for each token if the estimator gives those.
    pub fn estimate(&self, estimator: &dyn super::Advantage) -> Vec<f64> {
        let step = self.view();
        let places = if estimator.by_token() { step.tokens() } else { step.len() };
        let mut out = vec![0.0; places];
        estimator.estimate(&step, &mut out);
        out
    }
}
