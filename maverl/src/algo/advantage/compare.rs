//! Estimators that compare rewards: with a group, with a baseline that is known before the step, or with nothing.

use maverl_kernels::advantage::{self as kernels, Moments, Relative};

use super::rescale::{Rescale, RescaleTerms};
use super::{RowIds, anchor};
use crate::config::{
    AdvantagePlan, AnchorPlan, GreedyPlan, GroupBaseline, GroupPlan, MovingAveragePlan, OpoPlan,
    RewardPlan, Singleton,
};
use crate::credit::{Advantage, GroupBy, KnownBaseline, Rewarded};

/// Comparison of the rewards of a step.
///
/// ```text
/// A = (u − b) / (σ + ε)                    u, b: see [`maverl_kernels::advantage::relative_advantages()`]
/// A = A + w · (R − μ_anchor) / (σ_anchor + ε)     R: discounted rewards from the turn on (GiGPO)
///
/// by task        unit = episode, group = task            (GRPO)
/// by task_turn   unit = row,     group = task            (the shared baseline Dr. MAS is compared with)
/// by task_seat   unit = row,     group = (task, seat)    (Dr. MAS)
/// by task_seat_turn   unit = row, group = (task, seat, number of the turn)
/// by branch      unit = row,     group = branch          (C3, AT-GRPO)
/// ```
///
/// - `σ` is the sample deviation (n − 1), over units; `normalize_std = false` leaves the division out.
/// - A group of one has advantage 0, or its raw reward with `singleton = "raw"`.
/// - An anchor is a prompt of one seat on one task, token by token or similar; alone it adds nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupComparison {
    /// Rows that are compared.
    pub by: GroupBy,
    /// Rows that the deviation is taken over.
    pub deviation_by: GroupBy,
    /// Baseline, deviation and groups of one.
    pub options: Relative,
    /// Other baselines and scales.
    pub rescale: Rescale,
    /// Comparison of turns with the same prompt, which is added.
    pub anchor: Option<AnchorPlan>,
}

/// Advantages of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// One for each row. `[N]`
    pub values: Vec<f64>,
    /// Moments of each group over its units.
    pub moments: Vec<Moments>,
    /// Terms of other baselines and scales.
    pub rescale: RescaleTerms,
    /// Advantage of each row among equal prompts, before its weight. `[N]`
    pub anchors: Option<Vec<f64>>,
}

impl GroupComparison {
    /// Compares the rewards of a step whose groups are those of [`Comparison::by`].
    pub fn compare(&self, step: &Rewarded<'_>) -> Compared {
        let deviation = self.deviation(step).map(|ids| ids.grouping());
        let (mut values, moments) =
            step.relative(step.rewards, &step.grouping(), deviation.as_ref(), &self.options);
        let rescale = self.rescale.apply(step, &moments, &mut values);
        let anchor = self.anchor.filter(|anchor| anchor.weight != 0.0);
        let anchors = anchor.map(|anchor| {
            let returns = anchor::returns(step, anchor.discount);
            let alike = anchor::groups(step, anchor.similarity);
            let (baseline, singleton) = (kernels::Baseline::Mean, kernels::Singleton::Zero);
            let options = Relative { baseline, singleton, ..self.options };
            let (among, _) = step.relative(&returns, &alike.grouping(), None, &options);
            for (value, among) in values.iter_mut().zip(&among) {
                *value += anchor.weight * among;
            }
            step.estimators().round(&mut values);
            among
        });
        Compared { values, moments, rescale, anchors }
    }

    /// Ids of the rows that the deviation is taken over, if they are others.
    pub(super) fn deviation(&self, step: &Rewarded<'_>) -> Option<RowIds> {
        if self.deviation_by == self.by {
            return None;
        }
        let (unit, group) = step.ids(self.deviation_by);
        Some(RowIds { unit, group })
            .filter(|ids| ids.unit != step.units || ids.group != step.groups)
    }

    /// Rewards as they are.
    fn plain(by: GroupBy, anchor: Option<AnchorPlan>) -> Self {
        let group = Self::from(&GroupPlan { by, anchor, ..GroupPlan::default() });
        let options =
            Relative { baseline: kernels::Baseline::None, normalize_std: false, ..group.options };
        Self { options, ..group }
    }

    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        out.copy_from_slice(&self.compare(step).values);
    }
}

impl From<&GroupPlan> for GroupComparison {
    fn from(plan: &GroupPlan) -> Self {
        let options = Relative {
            baseline: match plan.baseline {
                GroupBaseline::Mean => kernels::Baseline::Mean,
                GroupBaseline::LeaveOneOut => kernels::Baseline::LeaveOneOut,
                GroupBaseline::SecondBest => kernels::Baseline::SecondBest,
            },
            singleton: match plan.singleton {
                Singleton::Zero => kernels::Singleton::Zero,
                Singleton::Raw => kernels::Singleton::Raw,
            },
            normalize_std: plan.normalize_std,
            eps: plan.eps,
        };
        let deviation_by = plan.deviation_by.unwrap_or(plan.by);
        let GroupPlan { by, normalize_mean, compensate_flat, anchor, .. } = *plan;
        let rescale = Rescale { normalize_mean, compensate_flat, ..Rescale::default() };
        Self { by, deviation_by, options, rescale, anchor }
    }
}

impl From<&OpoPlan> for GroupComparison {
    fn from(plan: &OpoPlan) -> Self {
        let group = GroupPlan { by: plan.by, normalize_std: false, ..GroupPlan::default() };
        let rescale = Rescale { length_baseline: true, ..Rescale::default() };
        Self { rescale, ..Self::from(&group) }
    }
}

impl From<&AdvantagePlan> for GroupComparison {
    /// That of the estimator; for one that compares no rewards, the groups that metrics are about.
    fn from(plan: &AdvantagePlan) -> Self {
        match plan {
            AdvantagePlan::Group(plan) => Self::from(plan),
            AdvantagePlan::Reward(plan) => Self::plain(plan.by, plan.anchor),
            AdvantagePlan::Greedy(plan) => Self::plain(plan.by, plan.anchor),
            AdvantagePlan::MovingAverage(plan) => Self::plain(plan.by, plan.anchor),
            AdvantagePlan::Opo(plan) => Self::from(plan),
            AdvantagePlan::TokenBaseline(plan) => {
                Self::from(&GroupPlan { by: plan.by, ..GroupPlan::default() })
            }
            AdvantagePlan::Counterfactual(_)
            | AdvantagePlan::Continuations(_)
            | AdvantagePlan::Shapley(_) => Self::plain(GroupBy::TaskSeat, None),
            AdvantagePlan::Critic(_) | AdvantagePlan::Mixer(_) => Self::from(&GroupPlan::default()),
            AdvantagePlan::Declared(declared) => {
                Self::from(&GroupPlan { by: declared.value.group_by(), ..GroupPlan::default() })
            }
        }
    }
}

impl Advantage for GroupPlan {
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        GroupComparison::from(self).estimate(step, out);
    }

    fn group_by(&self) -> GroupBy {
        self.by
    }
}

impl Advantage for OpoPlan {
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        GroupComparison::from(self).estimate(step, out);
    }

    fn group_by(&self) -> GroupBy {
        self.by
    }
}

impl Advantage for RewardPlan {
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        GroupComparison::plain(self.by, self.anchor).estimate(step, out);
    }

    fn group_by(&self) -> GroupBy {
        self.by
    }
}

impl Advantage for GreedyPlan {
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        GroupComparison::plain(self.by, self.anchor).estimate(step, out);
    }

    fn group_by(&self) -> GroupBy {
        self.by
    }

    fn baseline(&self) -> KnownBaseline {
        KnownBaseline::Greedy
    }
}

impl Advantage for MovingAveragePlan {
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        GroupComparison::plain(self.by, self.anchor).estimate(step, out);
    }

    fn group_by(&self) -> GroupBy {
        self.by
    }

    fn baseline(&self) -> KnownBaseline {
        KnownBaseline::MovingAverage { momentum: self.momentum }
    }
}
