//! Advantages: typed keys become dense ids; the arithmetic is that of `maverl_kernels::advantage`.

mod anchor;
mod baseline;
mod branched;
mod compare;
mod compound;
mod declared;
mod distill;
mod ema;
mod pairs;
mod rescale;
mod rounds;
mod shaping;
mod shapley;
mod token_baseline;
mod valued;
mod whiten;

pub use anchor::similarity;
pub(crate) use baseline::{baselines, is_greedy};
pub(crate) use branched::average_plays;
pub use compare::{Compared, GroupComparison};
pub use compound::Compound;
pub(crate) use declared::declared_advantages;
pub use declared::rewarded_step;
pub use distill::{add_teacher, teacher_differences};
pub use ema::EmaBaseline;
pub use pairs::ReplyPair;
pub(crate) use pairs::{labeled_replies, pairs_of_step};
pub use rescale::{Rescale, RescaleTerms};
pub use rounds::apply_future_rewards;
pub use shaping::{
    ScoreShare, difference_rewards, discounted_scores, influence_bonus, margin, quality,
    shaped_rewards, weighted_rewards,
};
pub(crate) use token_baseline::{gradient_norms, token_advantages};
pub use valued::{Valued, valued_advantages};
pub use whiten::RewardSpread;
pub(crate) use whiten::{is_whitened, limit_whitened, token_moments, whiten_tokens};

use maverl_kernels::advantage::{
    self as kernels, GaeParams, Grouping, Moments, ROUNDING, Segments,
};
use serde::{Deserialize, Serialize};

use crate::algo::Sample;
use crate::config::{AdvantagePlan, CriticPlan};
use crate::credit::{Estimators, GroupBy, KnownBaseline, RewardedStep};
use crate::plan::AlgorithmPlan;
use crate::trajectory::{Episode, RewardPart, Seat};

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
    /// Terms of other baselines and scales of groups.
    pub rescale: RescaleTerms,
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

/// The advantage of each sample, as the estimator of the algorithm compares them.
///
/// ```text
/// A = (A − mean) / deviation               over the tokens of the step, if whitened
/// ```
///
/// - Only samples count: the rows of a frozen seat are in no statistic.
/// - What is known of a reward before the step ([`baselines`]) is taken off first.
/// - With values, or with a declared estimator, these are not the advantages, but the groups are those of the step.
pub(crate) fn advantages(
    episodes: &[Episode],
    samples: &[Sample],
    algorithm: &AlgorithmPlan,
    estimators: &Estimators,
) -> Advantages {
    let comparison = GroupComparison::from(&algorithm.advantage);
    let mut step = rewarded_step(episodes, samples, None, comparison.by);
    if let AdvantagePlan::Group(plan) = &algorithm.advantage
        && !plan.by_seat.is_empty()
    {
        let seat = |sample: &Sample| &episodes[sample.episode].turns[sample.turn].seat;
        let by_of = |seat: &Seat| plan.by_of(&seat.to_string(), &seat.agent);
        let by: Vec<GroupBy> = samples.iter().map(|sample| by_of(seat(sample))).collect();
        (step.units, step.groups) = step.view().ids_by_row(&by);
    }
    let rewards = &step.rewards;
    let Compared { mut values, moments, rescale, anchors } =
        comparison.compare(&step.view_on(estimators));
    let mean = RowIds { unit: step.units.clone(), group: step.groups.clone() };
    let deviation = comparison.deviation(&step.view());
    let apart = deviation.as_ref().map(RowIds::grouping);
    let deviation = deviation.zip(apart.as_ref());
    let mut terms = terms(estimators, rewards, mean, &moments, deviation);
    (terms.rescale, terms.anchors) = (rescale, anchors);
    terms.unwhitened.clone_from(&values);
    let singleton = comparison.options.singleton;
    let mut groups = summary(samples, &terms.groups, &moments, singleton);
    if comparison.options.baseline == kernels::Baseline::None {
        groups.flat = flat(rewards, algorithm.whiten);
    }
    if algorithm.whiten {
        let tokens: Vec<u32> = samples.iter().map(|sample| sample.tokens as u32).collect();
        values = estimators.whiten(&values, &tokens, &Segments::single_group(values.len()));
    }
    Advantages { values, groups, terms }
}

/// The terms of values that are relative to groups; further terms are added by the caller.
fn terms(
    estimators: &Estimators,
    rewards: &[f64],
    mean: RowIds,
    stats: &[Moments],
    deviation: Option<(RowIds, &Grouping)>,
) -> Terms {
    let (units, _) = estimators.units(rewards, &mean.grouping());
    Terms {
        units,
        groups: mean.group,
        moments: stats.to_vec(),
        deviation: deviation.map(|(ids, by)| (ids.group, estimators.units(rewards, by).1)),
        ..Terms::default()
    }
}

impl Advantages {
    /// The advantage of each token of each sample: that of its sample. `[N][T]`
    pub fn by_token(&self, samples: &[Sample]) -> Vec<Vec<f64>> {
        self.values.iter().zip(samples).map(|(&value, s)| vec![value; s.tokens]).collect()
    }
}

/// Returns true if all turns of a step have the same reward, so that there is nothing to compare; part by part, if the
/// estimator compares parts. One episode alone is compared with what is known from other steps, and so are episodes with
/// greedy ones or branches beside them.
pub(crate) fn equal_rewards(
    episodes: &[Episode],
    samples: &[Sample],
    algorithm: &AlgorithmPlan,
) -> bool {
    let known = matches!(
        algorithm.advantage.baseline(),
        KnownBaseline::Greedy
            | KnownBaseline::Counterfactual(_)
            | KnownBaseline::Continuations(_)
            | KnownBaseline::Shapley { .. }
    );
    let several = samples.iter().any(|sample| sample.episode != samples[0].episode);
    let by_parts = algorithm.advantage.compares_parts();
    several
        && !known
        && all_equal(&rewarded_step(episodes, samples, None, GroupBy::TaskSeat), by_parts)
}

/// Returns true if all rows earned the same up to rounding, with `by_parts` part by part.
fn all_equal(step: &RewardedStep<'_>, by_parts: bool) -> bool {
    let parts = step.parts.iter().filter(|part| by_parts && part.name != RewardPart::OTHER);
    let mut columns = parts.map(|part| &part.values).chain([&step.earned]);
    columns.all(|values| flat(values, true))
}

/// Without a baseline there is something to learn wherever a reward is not 0, or, whitened, not the same as another.
fn flat(rewards: &[f64], whiten: bool) -> bool {
    let first = if whiten { rewards.first().copied().unwrap_or(0.0) } else { 0.0 };
    rewards.iter().all(|reward| (reward - first).abs() <= rounding_of(first))
}

/// Returns the distance from a reward that is rounding.
pub(super) fn rounding_of(reward: f64) -> f64 {
    ROUNDING * reward.abs().max(1.0)
}

impl From<&CriticPlan> for GaeParams {
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
        Grouping::from_units(&self.unit, &self.group)
    }
}

fn summary(
    samples: &[Sample],
    group: &[usize],
    stats: &[Moments],
    singleton: kernels::Singleton,
) -> GroupSummary {
    let mut solved = vec![(false, false); stats.len()]; // (some are, some are not)
    for (sample, &group) in samples.iter().zip(group) {
        let (good, bad) = &mut solved[group];
        *(if sample.solved { good } else { bad }) = true;
    }
    let all = stats.len().max(1) as f64;
    GroupSummary {
        count: stats.len(),
        size_min: stats.iter().map(|g| g.n as usize).min().unwrap_or(0),
        singletons: stats.iter().filter(|g| g.n == 1.0).count(),
        zero_std_frac: stats.iter().filter(|g| !g.has_spread()).count() as f64 / all,
        all_good_frac: solved.iter().filter(|(_, bad)| !bad).count() as f64 / all,
        all_bad_frac: solved.iter().filter(|(good, _)| !good).count() as f64 / all,
        flat: !stats.iter().any(|g| has_lesson(g, singleton)),
    }
}

/// Returns true if the units of a group have something to be compared with.
fn has_lesson(group: &Moments, singleton: kernels::Singleton) -> bool {
    match singleton {
        kernels::Singleton::Raw if group.n == 1.0 => group.mean != 0.0,
        _ => group.has_spread(),
    }
}

#[cfg(test)]
mod tests;
