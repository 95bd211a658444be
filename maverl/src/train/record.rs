//! Record of a step's samples: every term of every advantage, and quantities of every token.

mod branches;
pub(super) mod measure;
pub(super) mod spans;
pub(super) mod worker_loads;

pub(super) use branches::branches;

use std::collections::BTreeMap;

use maverl_kernels::advantage::{Baseline, Moments, Singleton};

use crate::IntoMap;
use crate::algo::advantage::{GroupComparison, is_whitened, token_moments};
use crate::algo::{Sample, Terms};
use crate::config::AdvantagePlan;
use crate::credit::{Estimators, GroupBy};
use crate::plan::Plan;
use crate::run_dir::{EstimatorRecord, GroupRecord, SampleRecord, StepSamples, TokenRecord};
use crate::runtime::TokenColumns;
use crate::trajectory::{Episode, Seat};

/// Advantages of a step, as its estimator made them.
pub(super) struct Estimated<'a> {
    /// `group` if the estimator compares rewards, or else its kind.
    pub(super) estimator: &'a str,
    /// Terms of compared rewards, if the estimator compares rewards.
    pub(super) terms: Option<&'a Terms>,
    /// Advantages before whitening. `[N][T]`
    pub(super) before: &'a [Vec<f64>],
    /// Advantages. `[N][T]`
    pub(super) after: &'a [Vec<f64>],
    /// Divisor of whitening, if it is not the deviation.
    pub(super) least_divisor: Option<f64>,
    /// Values of a critic `[N][positions]`; empty without one.
    pub(super) values: &'a [Vec<f64>],
    /// Returns that the critic is trained on `[N][positions]`; empty without one.
    pub(super) returns: &'a [Vec<f64>],
    /// Place where they were computed.
    pub(super) estimators: &'a Estimators,
}

/// Returns the record of a step.
pub(super) fn record(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    estimated: &Estimated<'_>,
) -> StepSamples {
    let algorithm = &plan.algorithm;
    let comparison = GroupComparison::from(&algorithm.advantage);
    let GroupComparison { by, deviation_by, .. } = comparison;
    let of_seat = |seat: usize| group_of(plan, by, seat);
    let terms = estimated.terms;
    let of_mean = terms.map(|terms| groups(plan, samples, of_seat, &terms.groups, &terms.moments));
    let of_mean = of_mean.map(|groups| with_baselines(groups, terms));
    let deviation = terms.and_then(|terms| terms.deviation.as_ref());
    let of_deviation = |_| group_by(deviation_by);
    let deviation =
        deviation.map(|(ids, moments)| groups(plan, samples, of_deviation, ids, moments));
    let rows = (0..samples.len()).map(|row| sample(plan, episodes, samples, estimated, row));
    StepSamples {
        estimator: EstimatorRecord {
            whiten: is_whitened(algorithm, samples).then(|| token_moments(estimated.before)),
            least_divisor: estimated.least_divisor,
            device: estimated.estimators.device().map(str::to_owned),
            kernel: estimated.estimators.kernel().map(str::to_owned),
            flat_factor: terms.and_then(|terms| terms.rescale.flat_factor),
            ..estimator(estimated.estimator, &comparison)
        },
        groups: of_mean.unwrap_or_default(),
        deviation_groups: deviation.unwrap_or_default(),
        samples: rows.collect(),
        replayed: Vec::new(),
    }
}

/// Returns the record of an estimator by its name. Only `group` has the settings of a comparison.
fn estimator(name: &str, comparison: &GroupComparison) -> EstimatorRecord {
    let named = EstimatorRecord { estimator: name.to_owned(), ..EstimatorRecord::default() };
    if name != "group" {
        return named;
    }
    let GroupComparison { options, rescale, anchor, .. } = comparison;
    let singleton = match options.singleton {
        Singleton::Zero => "zero",
        Singleton::Raw => "raw",
    };
    EstimatorRecord {
        baseline: baseline(options.baseline, rescale.length_baseline).to_owned(),
        normalize_std: Some(options.normalize_std),
        normalize_mean: rescale.normalize_mean,
        eps: Some(options.eps),
        singleton: singleton.to_owned(),
        anchor_weight: anchor.map_or(0.0, |anchor| anchor.weight),
        ..named
    }
}

/// Returns the record of one sample.
fn sample(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    estimated: &Estimated<'_>,
    row: usize,
) -> SampleRecord {
    let Sample { episode, turn, policy, reward, baseline, .. } = samples[row];
    let (advantage, advantages) = whole_or_mean(&estimated.after[row]);
    let terms = estimated.terms;
    let mut own = [reward - baseline];
    estimated.estimators.round(&mut own);
    let [own] = own;
    let whitened = is_whitened(&plan.algorithm, samples);
    SampleRecord {
        episode,
        turn,
        group: terms.map(|terms| terms.groups[row]),
        deviation_group: terms.and_then(|terms| Some(terms.deviation.as_ref()?.0[row])),
        policy: plan.policies[policy].name.clone(),
        turn_reward: episodes[episode].turn_reward(turn).filter(|paid| *paid != reward),
        reward,
        baseline,
        unit: terms.map(|terms| terms.units[row]).filter(|unit| *unit != own),
        anchor: terms.and_then(|terms| Some(terms.anchors.as_ref()?[row])),
        unwhitened: whitened.then(|| whole_or_mean(&estimated.before[row]).0),
        factor: None,
        teacher: None,
        taught: None,
        taught_tokens: Vec::new(),
        advantage,
        advantages,
        values: estimated.values.get(row).cloned().unwrap_or_default(),
        returns: estimated.returns.get(row).cloned().unwrap_or_default(),
    }
}

/// Returns equal numbers as one, or else their mean and all of them. The mean of equal numbers may differ from them by
/// rounding.
pub(super) fn whole_or_mean(values: &[f64]) -> (f64, Vec<f64>) {
    match values {
        [first, rest @ ..] if rest.iter().all(|value| value == first) => (*first, Vec::new()),
        values => (measure::mean_of(values.iter().copied()), values.to_vec()),
    }
}

/// Returns the records of groups, by id. `by` names what is compared for turns of a seat of the plan.
fn groups(
    plan: &Plan,
    samples: &[Sample],
    by: impl Fn(usize) -> &'static str,
    ids: &[usize],
    moments: &[Moments],
) -> Vec<GroupRecord> {
    let mut records = Vec::new();
    for (id, moments) in moments.iter().enumerate() {
        let Some(first) = ids.iter().position(|group| *group == id) else { continue };
        let Sample { task, seat, .. } = &samples[first];
        let by = by(*seat);
        records.push(GroupRecord {
            id,
            by: by.to_owned(),
            source: task.source.clone(),
            task: task.id.clone(),
            seat: (!matches!(by, "task" | "task_turn")).then(|| plan.seats[*seat].seat.clone()),
            size: moments.n as usize,
            mean: moments.mean,
            deviation: moments.std(),
            spread: moments.has_spread(),
            baseline: None,
        });
    }
    records
}

/// Adds the baselines of groups, if they are not their means.
fn with_baselines(mut groups: Vec<GroupRecord>, terms: Option<&Terms>) -> Vec<GroupRecord> {
    if let Some(baselines) = terms.and_then(|terms| terms.rescale.baselines.as_ref()) {
        groups.iter_mut().for_each(|group| group.baseline = Some(baselines[group.id]));
    }
    groups
}

/// Returns the record of the tokens of samples, from the columns of each policy's batch; `None` if no batch has any.
/// The rows of a batch are the samples of its policy, in their order.
pub(super) fn tokens(
    samples: &[Sample],
    columns: &BTreeMap<usize, TokenColumns>,
) -> Option<TokenRecord> {
    let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
    let tokens = samples.iter().map(|sample| {
        let next = rows.entry(sample.policy).or_default();
        let row = std::mem::replace(next, *next + 1);
        let columns = columns.get(&sample.policy);
        (sample.tokens, columns.map(|columns| columns_of(columns, row)).unwrap_or_default())
    });
    (!columns.is_empty()).then(|| TokenRecord::of(tokens))
}

/// Returns the quantities of the tokens of a row, by name.
fn columns_of(columns: &TokenColumns, row: usize) -> BTreeMap<&'static str, &[f32]> {
    let TokenColumns { entropy, reference, moved, mismatch, .. } = columns;
    let all =
        [("entropy", entropy), ("reference", reference), ("moved", moved), ("mismatch", mismatch)];
    all.into_iter().filter_map(|(name, rows)| Some((name, rows.get(row)?.as_slice()))).into_map()
}

/// Returns the name of the groups of turns of a seat.
fn group_of(plan: &Plan, by: GroupBy, seat: usize) -> &'static str {
    match &plan.algorithm.advantage {
        AdvantagePlan::Group(group) => {
            let Seat { agent, .. } = &plan.seats[seat].seat;
            group_by(group.by_of(&plan.seats[seat].seat.to_string(), agent))
        }
        _ => group_by(by),
    }
}

fn group_by(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Task => "task",
        GroupBy::TaskTurn => "task_turn",
        GroupBy::TaskSeat => "task_seat",
        GroupBy::TaskSeatTurn => "task_seat_turn",
        GroupBy::EpisodeSeat => "episode_seat",
        GroupBy::Branch => "branch",
    }
}

/// Returns the baseline of groups. Baselines that are known before the step are part of each sample.
fn baseline(baseline: Baseline, by_length: bool) -> &'static str {
    match baseline {
        Baseline::Mean if by_length => "length_weighted",
        Baseline::Mean => "mean",
        Baseline::LeaveOneOut => "leave_one_out",
        Baseline::SecondBest => "second_best",
        Baseline::None => "none",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{episode, plan, turn};
    use crate::algo::{advantages, samples};
    use crate::config::{self, AnchorPlan, GroupBaseline, GroupPlan, OpoPlan, RewardPlan};
    use crate::credit::CPU;

    /// Checks that the arithmetic of every sample of a step gives its advantage.
    fn check(name: &str, advantage: AdvantagePlan, whiten: bool) {
        #[cfg(feature = "cuda")]
        if let Some(estimators) = crate::train::learner::estimator::tests::emulated() {
            check_on(&estimators, name, advantage.clone(), whiten, 1e-6);
        }
        check_on(&CPU, name, advantage, whiten, 1e-9);
    }

    fn check_on(
        estimators: &Estimators,
        name: &str,
        advantage: AdvantagePlan,
        whiten: bool,
        bound: f64,
    ) {
        let mut plan = plan(&[("t/a", true), ("t/b", true)]);
        (plan.algorithm.advantage, plan.algorithm.whiten) = (advantage, whiten);
        let rewards = [1.0, 0.0, 0.1, 0.7];
        let one = |(index, reward): (usize, &f64)| {
            let turns = [turn("t/a", 0), turn("t/b", 1), turn("t/a", 2)];
            episode(["p", "q"][index % 2], index as u32, *reward, turns[..2 + index % 2].to_vec())
        };
        let episodes: Vec<Episode> = rewards.iter().enumerate().map(one).collect();
        let samples = samples(&episodes, &plan);
        let among = advantages(&episodes, &samples, &plan.algorithm, estimators);
        let before: Vec<Vec<f64>> = among
            .terms
            .unwhitened
            .iter()
            .zip(&samples)
            .map(|(value, sample)| vec![*value; sample.tokens])
            .collect();
        let after = among.by_token(&samples);
        let (values, returns) = (&[][..], &[][..]);
        let estimated = Estimated {
            least_divisor: None,
            estimator: "group",
            terms: Some(&among.terms),
            before: &before,
            after: &after,
            values,
            returns,
            estimators,
        };
        let step = record(&plan, &episodes, &samples, &estimated);
        assert_eq!(step.samples.len(), samples.len());
        for (sample, expected) in step.samples.iter().zip(&among.values) {
            assert_eq!(sample.advantage, *expected, "{name}");
            let found = step.arithmetic(sample).unwrap();
            let error = (found.advantage - expected).abs();
            assert!(error < bound, "{estimators:?}, {name}: {found:?}, {expected}");
        }
    }

    #[test]
    fn the_recorded_terms_give_every_advantage_of_every_group_estimator() {
        let check = |name: &str, plan: GroupPlan| check(name, AdvantagePlan::Group(plan), false);
        let group = GroupPlan::default;
        for by in [GroupBy::Task, GroupBy::TaskTurn, GroupBy::TaskSeat] {
            check(&format!("{by:?}"), GroupPlan { by, ..group() });
            let deviation_by = Some(GroupBy::Task);
            check(&format!("{by:?}, deviation by task"), GroupPlan { by, deviation_by, ..group() });
        }
        check("leave one out", GroupPlan { baseline: GroupBaseline::LeaveOneOut, ..group() });
        check("not divided", GroupPlan { normalize_std: false, ..group() });
        check("raw singletons", GroupPlan { singleton: config::Singleton::Raw, ..group() });
        let anchor = Some(AnchorPlan { weight: 0.5, ..AnchorPlan::default() });
        check("anchor", GroupPlan { anchor, ..group() });
        let scaled = GroupPlan { normalize_std: false, normalize_mean: true, ..group() };
        check("over the mean", GroupPlan { compensate_flat: true, ..scaled });
        let by = GroupBy::Task;
        super::tests::check("by length", AdvantagePlan::Opo(OpoPlan { by }), false);
        super::tests::check("whitened", AdvantagePlan::default(), true);
        super::tests::check("reward", AdvantagePlan::Reward(RewardPlan::default()), false);
    }
}
