//! Quantities of a run, from the rows of its `metrics.jsonl`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use maverl_lab::statistics::mean;
use serde_json::Value;

use crate::credit::CreditQuantities;

/// Number of earlier values that a spike or a drop is compared with.
const WINDOW: usize = 10;
/// Smallest number of them.
const FEWEST: usize = 5;
/// Factor of a spike.
const SPIKE: f64 = 3.0;
/// Size of a drop.
const DROP: f64 = 0.2;
/// Number of steps of a moving average.
const SMOOTH: usize = 5;

/// Result of an arm with one seed.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ArmOutcome {
    /// Share of held-out tasks that the team solves after training.
    pub(crate) solved: f64,
    /// Steps of its training.
    pub(crate) steps: Vec<StepMetrics>,
    /// Quantities of credit; empty if the claim is not about them.
    pub(crate) credit: CreditQuantities,
}

/// A step of training.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct StepMetrics {
    /// Tokens sampled up to and including this step.
    pub(crate) tokens: f64,
    /// Mean reward.
    pub(crate) reward: f64,
    /// Gradient norm of each policy that was updated.
    pub(crate) norms: BTreeMap<String, f64>,
    /// KL to the starting weights, the mean over policies; 0 without a reference.
    pub(crate) kl: f64,
}

/// Compared quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Share of held-out tasks that are solved after training.
    Solved,
    /// Mean reward over the steps of training.
    Reward,
    /// Number of drops of the reward.
    Drops,
    /// Number of spikes of the gradient norm, on average over policies.
    Spikes,
    /// Largest gradient norm of a policy by its median, the largest over policies.
    Peak,
    /// Reward at the largest KL that both runs reach.
    RewardAtKl,
    /// Correlation of a seat's advantages with its contributions, in word games.
    Credit,
    /// Absolute mean advantage of a seat.
    Bias,
}

impl Measure {
    /// Name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Solved => "solved after training",
            Self::Reward => "reward in training",
            Self::Drops => "drops of the reward",
            Self::Spikes => "gradient spikes",
            Self::Peak => "largest by median gradient norm",
            Self::RewardAtKl => "reward at equal KL",
            Self::Credit => "correlation with the contribution",
            Self::Bias => "bias of the baseline",
        }
    }

    /// Sign of an improvement: -1 if less is better.
    pub(crate) const fn sign(self) -> f64 {
        match self {
            Self::Solved | Self::Reward | Self::RewardAtKl | Self::Credit => 1.0,
            Self::Drops | Self::Spikes | Self::Peak | Self::Bias => -1.0,
        }
    }

    /// Returns true if it is computed from recorded samples.
    pub(crate) const fn is_of_credit(self) -> bool {
        matches!(self, Self::Credit | Self::Bias)
    }

    /// Returns the values of two runs with one seed.
    pub(crate) fn paired_values(self, runs: [&ArmOutcome; 2]) -> Option<[f64; 2]> {
        let [a, b] = match self {
            Self::Solved => runs.map(|run| Some(run.solved)),
            Self::Reward => runs.map(|run| mean(run.steps.iter().map(|step| step.reward))),
            Self::Drops => runs.map(|run| Some(count_drops(&run.step_rewards()) as f64)),
            Self::Spikes => {
                runs.map(|run| mean(run.gradient_norms().iter().map(|n| count_spikes(n) as f64)))
            }
            Self::Peak => runs.map(|run| {
                run.gradient_norms().iter().filter_map(|n| relative_peak(n)).reduce(f64::max)
            }),
            Self::RewardAtKl => at_equal(runs.map(ArmOutcome::by_kl)),
            Self::Credit => runs.map(|run| run.credit.correlation),
            Self::Bias => runs.map(|run| run.credit.bias),
        };
        Some([a?, b?])
    }
}

impl ArmOutcome {
    /// Returns the reward of each step.
    pub(crate) fn step_rewards(&self) -> Vec<f64> {
        self.steps.iter().map(|step| step.reward).collect()
    }

    /// Returns the gradient norms of each policy, in the order of the steps that updated it.
    pub(crate) fn gradient_norms(&self) -> Vec<Vec<f64>> {
        let mut norms: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (policy, norm) in self.steps.iter().flat_map(|step| &step.norms) {
            norms.entry(policy).or_default().push(*norm);
        }
        norms.into_values().collect()
    }

    /// Returns the reward as a function of the KL: the largest so far, both as moving averages.
    pub(crate) fn by_kl(&self) -> Vec<(f64, f64)> {
        let kl = moving_average(&self.steps.iter().map(|step| step.kl).collect::<Vec<_>>());
        let largest = kl.iter().scan(0.0, |largest: &mut f64, kl| {
            *largest = largest.max(*kl);
            Some(*largest)
        });
        largest.zip(moving_average(&self.step_rewards())).collect()
    }
}

fn metric_value(row: &BTreeMap<String, Value>, name: &str) -> Option<f64> {
    row.get(name).and_then(Value::as_f64)
}

/// Reads the steps of a run, with the given metric times a factor as the reward.
///
/// # Errors
///
/// If a line is no JSON, or a step lacks the reward.
pub(crate) fn read_steps(metrics: &str, (reward, factor): (&str, f64)) -> Result<Vec<StepMetrics>> {
    let (mut steps, mut tokens): (Vec<StepMetrics>, f64) = (Vec::new(), 0.0);
    for line in metrics.lines() {
        let row: BTreeMap<String, Value> = serde_json::from_str(line)?;
        // Rows of evaluations have no episodes of training.
        if metric_value(&row, "rollout/episodes").is_none() {
            continue;
        }
        for seat in row.keys().filter_map(|name| name.strip_suffix("/completion_tokens_mean")) {
            let [turns, mean] = ["turns", "completion_tokens_mean"]
                .map(|what| metric_value(&row, &format!("{seat}/{what}")).unwrap_or(0.0));
            tokens += turns * mean;
        }
        // A part that no episode of the step earned has no metric.
        let reward = match metric_value(&row, reward) {
            Some(reward) => reward,
            None if reward.starts_with("rollout/reward/") => 0.0,
            None => return Err(anyhow::anyhow!("step {} has no `{reward}`", steps.len() + 1)),
        };
        // A flat step updates nothing: the KL is that of the step before.
        let last = steps.last().map_or(0.0, |step| step.kl);
        let kl = mean(policy_values(&row, "/kl").into_values()).unwrap_or(last);
        steps.push(StepMetrics {
            tokens,
            reward: reward * factor,
            norms: policy_values(&row, "/grad_norm"),
            kl,
        });
    }
    steps.last().context("the run has no step")?;
    Ok(steps)
}

/// Returns the numbers, from 1, of the steps that updated a policy.
pub(crate) fn updated_steps(steps: &[StepMetrics]) -> Vec<usize> {
    let updated = steps.iter().enumerate().filter(|(_, step)| !step.norms.is_empty());
    updated.map(|(place, _)| place + 1).collect()
}

/// Returns a metric of each policy. `what` is the end of its name.
fn policy_values(row: &BTreeMap<String, Value>, what: &str) -> BTreeMap<String, f64> {
    let values = row.iter().filter_map(|(key, value)| {
        let policy = key.strip_prefix("policy/")?.strip_suffix(what)?;
        Some((policy.to_owned(), value.as_f64()?))
    });
    values.collect()
}

/// Returns the median; of an even number of values, the mean of the two in the middle. `None` without a value.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

fn values_before(values: &[f64], at: usize) -> &[f64] {
    &values[at.saturating_sub(WINDOW)..at]
}

/// Returns the number of values that are far above those before them.
///
/// ```text
/// spike at t:  xₜ > 3 · median(xₜ₋₁₀ .. xₜ₋₁)        with at least 5 earlier values
/// ```
fn count_spikes(values: &[f64]) -> usize {
    let spikes = (FEWEST..values.len()).filter(|&at| {
        median(values_before(values, at)).is_some_and(|usual| values[at] > SPIKE * usual)
    });
    spikes.count()
}

/// Returns the number of values that are far below those before them.
///
/// ```text
/// drop at t:  xₜ < mean(xₜ₋₁₀ .. xₜ₋₁) - 0.2         with at least 5 earlier values
/// ```
fn count_drops(values: &[f64]) -> usize {
    let drops = (FEWEST..values.len()).filter(|&at| {
        let usual = mean(values_before(values, at).iter().copied());
        usual.is_some_and(|usual| values[at] < usual - DROP)
    });
    drops.count()
}

/// Returns the largest value by the median; `None` without a value, or if the median is 0.
fn relative_peak(values: &[f64]) -> Option<f64> {
    let usual = median(values).filter(|usual| *usual > 0.0)?;
    Some(values.iter().copied().fold(0.0, f64::max) / usual)
}

/// Returns the moving average over the last 5 values, or as many as there are.
///
/// ```text
/// sₜ = mean(xₜ₋₄ .. xₜ)
/// ```
fn moving_average(values: &[f64]) -> Vec<f64> {
    let windows = (0..values.len()).map(|at| &values[(at + 1).saturating_sub(SMOOTH)..=at]);
    windows.filter_map(|window| mean(window.iter().copied())).collect()
}

/// Returns the value of a curve at `x`, by linear interpolation at the first point that reaches it; `None` beyond the
/// last point. The first coordinates do not decrease. Before the first point, the value is that of the first.
///
/// ```text
/// y = y₀ + (x - x₀) / (x₁ - x₀) · (y₁ - y₀)          x₀ < x ≤ x₁
/// ```
pub(crate) fn interpolate_at(curve: &[(f64, f64)], x: f64) -> Option<f64> {
    let end = curve.iter().position(|point| point.0 >= x)?;
    let (x1, y1) = curve[end];
    let Some((x0, y0)) = end.checked_sub(1).map(|start| curve[start]) else { return Some(y1) };
    Some(y0 + (x - x0) / (x1 - x0) * (y1 - y0))
}

/// Returns the values of two curves at the largest coordinate that both reach.
fn at_equal(curves: [Vec<(f64, f64)>; 2]) -> [Option<f64>; 2] {
    let ends = curves.each_ref().map(|curve| curve.last().map_or(0.0, |end| end.0));
    let x = ends[0].min(ends[1]);
    curves.map(|curve| interpolate_at(&curve, x))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_spike_is_above_three_times_the_median_before_it() {
        let mut norms = vec![1.0; 20];
        assert_eq!(count_spikes(&norms), 0);
        (norms[3], norms[8], norms[15]) = (9.0, 3.0, 3.1);
        assert_eq!(count_spikes(&norms), 1, "too early; exactly three; a spike");
        assert_eq!(relative_peak(&norms), Some(9.0));
        assert_eq!(relative_peak(&[0.0, 0.0, 1.0]), None);
    }

    #[test]
    fn a_drop_is_below_the_mean_before_it_by_a_fifth() {
        assert_eq!(count_drops(&[0.5, 0.5, 0.5, 0.5, 0.5, 0.31, 0.2]), 1);
        assert_eq!(count_drops(&[0.5, 0.5, 0.0]), 0, "too few before it");
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_curve_is_interpolated_where_it_first_reaches_a_coordinate() {
        let curve = [(0.0, 1.0), (1.0, 2.0), (1.0, 5.0), (3.0, 7.0)];
        let values = [-1.0, 0.5, 1.0, 2.0, 3.0].map(|x| interpolate_at(&curve, x));
        assert_eq!(values, [1.0, 1.5, 2.0, 6.0, 7.0].map(Some));
        assert_eq!(interpolate_at(&curve, 3.1), None);
    }

    fn run(kl: &[f64], reward: &[f64]) -> ArmOutcome {
        let step = |(&kl, &reward)| StepMetrics { kl, reward, ..StepMetrics::default() };
        ArmOutcome { steps: kl.iter().zip(reward).map(step).collect(), ..ArmOutcome::default() }
    }

    #[test]
    fn rewards_at_equal_kl_are_those_at_the_smaller_of_the_largest() {
        let far = run(&[0.0, 2.0, 4.0], &[0.0, 0.6, 0.9]);
        let near = run(&[0.0, 1.0, 2.0], &[0.0, 0.8, 1.0]);
        // Moving averages: far (0, 0), (1, 0.3), (2, 0.5); near (0, 0), (0.5, 0.4), (1, 0.6).
        let [a, b] = Measure::RewardAtKl.paired_values([&far, &near]).unwrap();
        assert!((a - 0.3).abs() < 1e-12 && (b - 0.6).abs() < 1e-12, "{a} {b}");
    }

    #[test]
    fn steps_are_read_from_the_rows_of_training() {
        let rows = concat!(
            r#"{"step":0,"eval/test/exact_match":0.5}"#,
            "\n",
            r#"{"step":1,"rollout/episodes":4,"rollout/score_mean":0.25,"rollout/a/turns":4,"#,
            r#""rollout/a/completion_tokens_mean":2.5,"policy/x/grad_norm":0.5,"policy/x/kl":0.1,"policy/y/kl":0.3}"#,
            "\n",
            r#"{"step":2,"rollout/episodes":4,"rollout/score_mean":0.5,"rollout/a/turns":2,"rollout/a/completion_tokens_mean":3}"#,
        );
        let steps = read_steps(rows, ("rollout/score_mean", 2.0)).unwrap();
        assert_eq!(steps.iter().map(|step| step.tokens).collect::<Vec<_>>(), [10.0, 16.0]);
        assert_eq!(steps.iter().map(|step| step.reward).collect::<Vec<_>>(), [0.5, 1.0]);
        assert_eq!(steps.iter().map(|step| step.kl).collect::<Vec<_>>(), [0.2, 0.2]);
        assert_eq!(steps[0].norms, BTreeMap::from([("x".to_owned(), 0.5)]));
        assert_eq!(updated_steps(&steps), [1]);
        assert!(super::read_steps(rows, ("rollout/none", 1.0)).is_err());
    }
}
