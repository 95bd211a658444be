//! Advantages: typed keys become dense ids; the arithmetic is that of `maverl_kernels::advantage`.

mod anchor;
mod baseline;
mod compound;
mod declared;
mod ema;
mod rounds;
mod shaping;
mod valued;
mod whiten;

pub use anchor::similarity;
pub use baseline::baselines;
pub(crate) use baseline::is_greedy;
pub use compound::Compound;
pub use declared::declared;
pub use ema::EmaBaseline;
pub use rounds::apply_future_rewards;
pub use shaping::{
    ScoreShare, difference_rewards, discounted_scores, influence_bonus, margin, quality,
    shaped_rewards, weighted_rewards,
};
pub use valued::{Valued, valued};
pub use whiten::whiten_tokens;

use std::collections::BTreeMap;

use maverl_kernels::advantage::{
    self as kernels, Grouping, Moments, ROUNDING, Relative, Segments, relative,
};
use serde::{Deserialize, Serialize};

use crate::algo::Sample;
use crate::config::{Baseline, GroupBy, Singleton};
use crate::plan::{AlgorithmPlan, CriticPlan};
use crate::trajectory::Episode;

/// The advantage of each sample, and what the groups they were taken over look like.
#[derive(Debug, Clone, PartialEq)]
pub struct Advantages {
    /// One per sample. `[N]`
    pub values: Vec<f64>,
    /// The groups.
    pub groups: GroupSummary,
    /// The terms that they are made of.
    pub terms: Terms,
}

/// Terms of the advantages of a step, for its record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Terms {
    /// Value of each sample's unit: the mean over the samples of the unit. `[N]`
    pub units: Vec<f64>,
    /// Group of each sample. `[N]`
    pub groups: Vec<usize>,
    /// Moments of each group over its units.
    pub moments: Vec<Moments>,
    /// The same two of the deviation, if its groups are others.
    pub deviation: Option<(Vec<usize>, Vec<Moments>)>,
    /// Advantage of each sample among equal prompts, before its weight. `[N]`
    pub anchors: Option<Vec<f64>>,
    /// Advantage of each sample before whitening. `[N]`
    pub unwhitened: Vec<f64>,
}

/// Statistics of the groups of a step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct GroupSummary {
    /// Number of groups.
    pub count: usize,
    /// Units (episodes or turns) of the smallest group.
    pub size_min: usize,
    /// Groups of one unit, which has nothing to be compared with.
    pub singletons: usize,
    /// Share of the groups in which every unit has the same reward.
    pub zero_std_frac: f64,
    /// Share of the groups all of whose episodes solved the task.
    pub all_good_frac: f64,
    /// Share of the groups none of whose episodes solved the task.
    pub all_bad_frac: f64,
    /// There is nothing to learn from: every advantage is 0, up to rounding.
    pub flat: bool,
}

/// The advantage of each sample, from the parts that the algorithm names.
///
/// ```text
/// A = (u − b) / (σ + ε)                    u, b: see [`maverl_kernels::advantage::relative()`]
/// A = A + w · (R − μ_anchor) / (σ_anchor + ε)     R: discounted rewards from the turn on (GiGPO)
/// A = (A − mean) / deviation               over the tokens of the step, if whitened
///
/// group_by task        unit = episode, group = task            (GRPO)
/// group_by task_turn   unit = row,     group = task            (the shared baseline Dr. MAS is compared with)
/// group_by task_seat   unit = row,     group = (task, seat)    (Dr. MAS)
/// ```
///
/// - `σ` is the sample deviation (n − 1), over units; `normalize_std = false` leaves the division out.
/// - Only samples count: the rows of a frozen seat are in no statistic.
/// - A group of one has advantage 0, or its raw reward with `singleton = "raw"`.
/// - An anchor is a prompt of one seat on one task, token by token or similar; alone it adds nothing.
/// - What is known of a reward before the step ([`baselines`]) is taken off first.
pub fn advantages(
    episodes: &[Episode],
    samples: &[Sample],
    algorithm: &AlgorithmPlan,
) -> Advantages {
    let rewards: Vec<f64> = samples.iter().map(|sample| sample.reward - sample.baseline).collect();
    let mean = grouping(samples, algorithm.group_by);
    let deviation = grouping(samples, algorithm.deviation_by);
    let options = Relative {
        baseline: algorithm.baseline.kernel(),
        singleton: algorithm.singleton.kernel(),
        normalize_std: algorithm.normalize_std,
        eps: algorithm.advantage_eps,
    };
    let apart = (mean != deviation).then(|| deviation.grouping());
    let (mut values, stats) = relative(&rewards, &mean.grouping(), apart.as_ref(), &options);
    let mut terms = terms(&rewards, mean, &stats, apart.as_ref().map(|by| (deviation, by)));
    if algorithm.anchor_weight != 0.0 {
        let returns = anchor::returns(episodes, samples, algorithm.discount);
        let anchors = anchor::groups(episodes, samples, algorithm.anchor_similarity);
        let (baseline, singleton) = (kernels::Baseline::Mean, kernels::Singleton::Zero);
        let options = Relative { baseline, singleton, ..options };
        let (among, _) = relative(&returns, &anchors.grouping(), None, &options);
        terms.anchors = Some(among.clone());
        for (value, among) in values.iter_mut().zip(among) {
            *value += algorithm.anchor_weight * among;
        }
    }
    terms.unwhitened.clone_from(&values);
    let mut groups = summary(samples, &terms.groups, &stats, algorithm.singleton);
    if !algorithm.baseline.of_group() {
        groups.flat = flat(&rewards, algorithm.whiten);
    }
    if algorithm.whiten {
        let tokens: Vec<u32> = samples.iter().map(|sample| sample.tokens as u32).collect();
        values = kernels::whiten(&values, &tokens, &Segments::one(values.len()));
    }
    Advantages { values, groups, terms }
}

/// The terms of values that are relative to groups; further terms are added by the caller.
fn terms(
    rewards: &[f64],
    mean: RowIds,
    stats: &[Moments],
    deviation: Option<(RowIds, &Grouping)>,
) -> Terms {
    // Compared with nothing and divided by nothing, the value of a row is that of its unit.
    let options = Relative {
        baseline: kernels::Baseline::None,
        singleton: kernels::Singleton::Raw,
        normalize_std: false,
        eps: 0.0,
    };
    let (units, _) = relative(rewards, &mean.grouping(), None, &options);
    let moments = |by: &Grouping| relative(rewards, by, None, &options).1;
    Terms {
        units,
        groups: mean.group,
        moments: stats.to_vec(),
        deviation: deviation.map(|(ids, by)| (ids.group, moments(by))),
        ..Terms::default()
    }
}

impl Advantages {
    /// The advantage of each token of each sample: that of its sample. `[N][T]`
    pub fn by_token(&self, samples: &[Sample]) -> Vec<Vec<f64>> {
        self.values.iter().zip(samples).map(|(&value, s)| vec![value; s.tokens]).collect()
    }
}

/// Without a baseline there is something to learn wherever a reward is not 0, or, whitened, not the same as another.
fn flat(rewards: &[f64], whiten: bool) -> bool {
    let first = if whiten { rewards.first().copied().unwrap_or(0.0) } else { 0.0 };
    rewards.iter().all(|reward| (reward - first).abs() <= ROUNDING * first.abs().max(1.0))
}

impl From<&CriticPlan> for kernels::GaeParams {
    fn from(plan: &CriticPlan) -> Self {
        Self { gamma: plan.gamma, lambda: plan.lambda }
    }
}

/// Dense ids of the unit and of the group of each row, both `[N]`. Rows of one unit count once, with their mean.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RowIds {
    unit: Vec<usize>,
    /// A unit lies in one group.
    group: Vec<usize>,
}

impl RowIds {
    fn grouping(&self) -> Grouping {
        Grouping::units(&self.unit, &self.group)
    }
}

impl Baseline {
    /// The same for the arithmetic. What is known before the step is taken off the rewards already, see [`baselines`].
    const fn kernel(self) -> kernels::Baseline {
        match self {
            Self::Mean => kernels::Baseline::Mean,
            Self::LeaveOneOut => kernels::Baseline::LeaveOneOut,
            Self::SecondBest => kernels::Baseline::SecondBest,
            Self::None | Self::Greedy | Self::MovingAverage => kernels::Baseline::None,
        }
    }
}

impl Singleton {
    /// The same for the arithmetic.
    const fn kernel(self) -> kernels::Singleton {
        match self {
            Self::Zero => kernels::Singleton::Zero,
            Self::Raw => kernels::Singleton::Raw,
        }
    }
}

fn grouping(samples: &[Sample], by: GroupBy) -> RowIds {
    match by {
        GroupBy::Task => RowIds {
            unit: dense(samples.iter().map(|s| s.episode)),
            group: dense(samples.iter().map(|s| &s.task)),
        },
        GroupBy::TaskTurn => RowIds {
            unit: (0..samples.len()).collect(),
            group: dense(samples.iter().map(|s| &s.task)),
        },
        GroupBy::TaskSeat => RowIds {
            unit: (0..samples.len()).collect(),
            group: dense(samples.iter().map(|s| (&s.task, s.seat))),
        },
    }
}

/// Numbers keys from 0 in the order in which they first appear.
fn dense<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<usize> {
    let mut ids = BTreeMap::new();
    keys.map(|key| {
        let next = ids.len();
        *ids.entry(key).or_insert(next)
    })
    .collect()
}

fn summary(
    samples: &[Sample],
    group: &[usize],
    stats: &[Moments],
    singleton: Singleton,
) -> GroupSummary {
    let mut solved = vec![(false, false); stats.len()]; // (some are, some are not)
    for (sample, &group) in samples.iter().zip(group) {
        let (good, bad) = &mut solved[group];
        *(if sample.solved { good } else { bad }) = true;
    }
    let share = |n: usize| n as f64 / stats.len().max(1) as f64;
    let teaches = |g: &Moments| match singleton {
        Singleton::Raw if g.n == 1.0 => g.mean != 0.0,
        _ => g.has_spread(),
    };
    GroupSummary {
        count: stats.len(),
        size_min: stats.iter().map(|g| g.n as usize).min().unwrap_or(0),
        singletons: stats.iter().filter(|g| g.n == 1.0).count(),
        zero_std_frac: share(stats.iter().filter(|g| !g.has_spread()).count()),
        all_good_frac: share(solved.iter().filter(|(_, bad)| !bad).count()),
        all_bad_frac: share(solved.iter().filter(|(good, _)| !good).count()),
        flat: !stats.iter().any(teaches),
    }
}

#[cfg(test)]
mod tests;
