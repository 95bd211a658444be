//! Baselines and scales of groups beside the mean and the deviation.

use maverl_kernels::advantage::{Moments, ROUNDING};

use crate::credit::Rewarded;

/// Changes of advantages that are relative to the mean of their group and not divided by a deviation.
///
/// ```text
/// u  value of a unit, μ mean of its group
///
/// length_baseline   A = u − b,  b = Σ len · u / Σ len over the group      OPO, 2505.23585 eq. 7
/// normalize_mean    A = A / μ, at most n and at least -n; 0 where μ ≤ 0   MaxRL, 2602.02710
/// compensate_flat   A = A · B / (B − M)                                   GPG, 2504.02546 eq. 6
/// ```
///
/// - The length of a unit is the number of its tokens that are trained on.
/// - MaxRL has rewards of 0 and 1, which bound A by the number n of units of the group: the mean is at least 1/n of the largest
///   reward. The same holds for any rewards that are not negative. With negative ones μ may be as small as rounding, so the bound is
///   kept.
/// - B is the number of units of the step, M that of units in groups without spread.
/// - With `length_baseline`, a group without spread has no advantages, whatever rounding makes of `b`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rescale {
    /// Baseline in which a unit counts with its length.
    pub length_baseline: bool,
    /// Divide by the mean of the group.
    pub normalize_mean: bool,
    /// Make up for groups without spread.
    pub compensate_flat: bool,
}

/// Terms of [`Rescale`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RescaleTerms {
    /// Baseline of each group, if it is not the mean. `[groups]`
    pub baselines: Option<Vec<f64>>,
    /// Factor of [`Rescale::compensate_flat`].
    pub flat_factor: Option<f64>,
}

impl Rescale {
    /// Changes the advantages of a step, `[N]`, whose groups have these moments.
    pub fn apply(
        self,
        step: &Rewarded<'_>,
        moments: &[Moments],
        advantages: &mut [f64],
    ) -> RescaleTerms {
        let mut terms = RescaleTerms::default();
        let rows = || step.groups.iter().map(|&group| &moments[group]);
        if self.length_baseline {
            let baselines = length_baselines(step, moments);
            for (advantage, &group) in advantages.iter_mut().zip(step.groups) {
                let shifted = *advantage + (moments[group].mean - baselines[group]);
                *advantage = if moments[group].has_spread() { shifted } else { 0.0 };
            }
            terms.baselines = Some(baselines);
        }
        if self.normalize_mean {
            for (advantage, group) in advantages.iter_mut().zip(rows()) {
                *advantage = if has_mean(group) { over_mean(*advantage, group) } else { 0.0 };
            }
        }
        if self.compensate_flat {
            let factor = flat_factor(moments);
            advantages.iter_mut().for_each(|advantage| *advantage *= factor);
            terms.flat_factor = Some(factor);
        }
        if self != Self::default() {
            step.estimators().round(advantages);
        }
        terms
    }
}

/// Returns a value over the mean of its group, within the bound that rewards which are not negative have.
fn over_mean(value: f64, group: &Moments) -> f64 {
    let most = group.n.max(1.0);
    (value / group.mean).clamp(-most, most)
}

/// Returns true if the mean of a group is above 0 by more than rounding: rewards of both signs may cancel.
fn has_mean(group: &Moments) -> bool {
    group.mean > ROUNDING * group.std().max(1.0)
}

/// Returns the mean of each group, each unit weighted by its number of tokens; without spread, the mean.
fn length_baselines(step: &Rewarded<'_>, moments: &[Moments]) -> Vec<f64> {
    let (units, _) = step.estimators().units(step.rewards, &step.grouping());
    let mut sums = vec![(0.0, 0.0); moments.len()];
    for ((unit, &length), &group) in units.iter().zip(step.lengths).zip(step.groups) {
        let (value, tokens) = &mut sums[group];
        *value += length as f64 * unit;
        *tokens += length as f64;
    }
    let baselines =
        moments.iter().zip(sums).map(
            |(group, (value, tokens))| {
                if group.has_spread() { value / tokens } else { group.mean }
            },
        );
    baselines.collect()
}

/// Returns the number of units over the number of those in groups with spread; 1 if there are none.
fn flat_factor(moments: &[Moments]) -> f64 {
    let all: f64 = moments.iter().map(|group| group.n).sum();
    let spread: f64 = moments.iter().filter(|group| group.has_spread()).map(|group| group.n).sum();
    if spread > 0.0 { all / spread } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use crate::algo::advantage::GroupComparison;
    use crate::algo::testing::{assert_close, learning, matrix};
    use crate::config::{AdvantagePlan, GroupPlan, OpoPlan, Preset};
    use crate::credit::{GroupBy, RewardedStep};
    use crate::plan::AlgorithmPlan;
    use serde_json::Value;

    fn step_of(case: &Value) -> RewardedStep<'static> {
        let groups = matrix(&case["inputs"]["groups"]);
        let ids = groups.iter().enumerate();
        let lengths = case["inputs"].get("lengths").map(matrix).unwrap_or_else(|| groups.clone());
        let rewards = groups.concat();
        RewardedStep {
            units: (0..rewards.len()).collect(),
            groups: ids.flat_map(|(id, group)| vec![id; group.len()]).collect(),
            lengths: lengths.concat().into_iter().map(|length| length as usize).collect(),
            rewards,
            ..RewardedStep::default()
        }
    }

    #[test]
    fn presets_give_the_recorded_advantages() {
        for (preset, name) in [
            (Preset::Maxrl, "maxrl"),
            (Preset::Gpg, "gpg"),
            (Preset::Opo, "opo"),
            (Preset::Drgrpo, "drgrpo"),
        ] {
            let case = learning(&format!("estimator/{name}"));
            let step = step_of(&case);
            let plan = AlgorithmPlan::from(&preset.parts()).advantage;
            let got = step.estimate(plan.estimator().expect("no mixer"));
            let want = matrix(&case["outputs"]["advantages"]).concat();
            assert_close(name, &got, &want, 1e-12);
        }
    }

    #[test]
    fn a_group_whose_rewards_are_all_equal_has_no_advantages_and_negative_means_none_either() {
        let plan = OpoPlan { by: GroupBy::Task };
        let step = RewardedStep {
            rewards: vec![0.1, 0.1, 0.1],
            units: vec![0, 1, 2],
            groups: vec![0; 3],
            lengths: vec![3, 7, 11],
            ..RewardedStep::default()
        };
        assert_eq!(step.estimate(&plan), [0.0; 3]);
        let plan = GroupPlan { normalize_std: false, normalize_mean: true, ..GroupPlan::default() };
        let negative = RewardedStep { rewards: vec![-1.0, 0.5, -0.25], ..step.clone() };
        assert_eq!(negative.estimate(&plan), [0.0; 3]);
        // A penalty brings the mean to 1e-4, and the quotient to 10^4.
        let penalized = RewardedStep { rewards: vec![1.0, -0.5, -0.4997], ..step.clone() };
        assert_eq!(penalized.estimate(&plan), [3.0, -3.0, -3.0]);
        let binary = RewardedStep { rewards: vec![1.0, 0.0, 0.0], ..step };
        assert_close("binary", &binary.estimate(&plan), &[2.0, -1.0, -1.0], 1e-12);
    }

    #[test]
    fn an_episode_counts_with_all_of_its_tokens() {
        let step = RewardedStep {
            rewards: vec![1.0, 1.0, 0.0],
            units: vec![0, 0, 1],
            groups: vec![0; 3],
            lengths: vec![2, 4, 2],
            ..RewardedStep::default()
        };
        let comparison = GroupComparison::from(&AdvantagePlan::Opo(OpoPlan { by: GroupBy::Task }));
        let found = comparison.compare(&step.view());
        assert_eq!(found.rescale.baselines, Some(vec![0.75]));
        assert_eq!(found.values, [0.25, 0.25, -0.75]);
    }
}
