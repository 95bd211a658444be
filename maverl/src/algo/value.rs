//! Inputs and targets of critics.

use crate::algo::{Sample, lr};
use crate::plan::Plan;

/// Input of a critic. It has a value at each of the last `places` tokens, before the token that follows.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueText {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Number of values, at least one.
    pub places: usize,
}

/// Training target of the values of a text. All fields are `[places]`.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueTarget {
    /// Regression to returns.
    Returns {
        /// Values before the update, from which advantages were computed.
        old: Vec<f32>,
        /// Returns that the values are regressed to.
        returns: Vec<f32>,
    },
    /// Gradient of a loss by each value.
    Slopes(Vec<f32>),
}

/// One text of a critic's batch.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueRow {
    /// Input of the critic.
    pub text: ValueText,
    /// Target of its values.
    pub aim: ValueTarget,
}

/// One step's rows for one critic, in the order that fixes every sum.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueBatch {
    /// Rows, in the order of samples.
    pub rows: Vec<ValueRow>,
    /// Optimizer steps per epoch.
    pub minibatches: usize,
    /// Number of passes over the rows.
    pub epochs: usize,
    /// Learning rate, with the schedule applied.
    pub lr: f64,
}

/// Builds the batch of each critic that has texts, sorted by the policy of the critic, with the learning rate of step
/// `step`.
///
/// # Panics
///
/// If the number of texts or targets differs from that of samples.
pub fn value_batches(
    plan: &Plan,
    samples: &[Sample],
    texts: &[ValueText],
    aims: &[ValueTarget],
    step: u64,
) -> Vec<(usize, ValueBatch)> {
    assert!(samples.len() == texts.len() && samples.len() == aims.len(), "value_batches: lengths");
    let Some(critic) = &plan.algorithm.critic else { return Vec::new() };
    let row = |i: usize| ValueRow { text: texts[i].clone(), aim: aims[i].clone() };
    let batch = |host: usize| {
        let its = |i: &usize| plan.critic_of(samples[*i].policy) == Some(host);
        ValueBatch {
            rows: (0..samples.len()).filter(its).map(row).collect(),
            minibatches: plan.algorithm.minibatches,
            epochs: plan.algorithm.epochs,
            lr: lr(step, plan.steps, &critic.optim),
        }
    };
    let all = (0..plan.policies.len()).map(|host| (host, batch(host)));
    all.filter(|(_, batch)| !batch.rows.is_empty()).collect()
}

/// Computes the share of the returns' variance that the values explain: 1 is all of it, 0 equals predicting the mean,
/// and below 0 is worse.
///
/// ```text
/// EV = 1 − Var(G − V) / Var(G)                 0 where all returns are the same
/// ```
pub fn explained_variance(values: &[f64], returns: &[f64]) -> f64 {
    let variance = |of: &dyn Fn(usize) -> f64| {
        let n = returns.len().max(1) as f64;
        let mean = (0..returns.len()).map(of).sum::<f64>() / n;
        (0..returns.len()).map(|i| (of(i) - mean).powi(2)).sum::<f64>() / n
    };
    let whole = variance(&|i| returns[i]);
    if whole <= f64::EPSILON {
        return 0.0;
    }
    1.0 - variance(&|i| returns[i] - values[i]) / whole
}

/// Running mean and deviation of returns, with exponential decay. Values are normalized by them.
///
/// ```text
/// m = 0.99 m + 0.01 mean(G),   s = 0.99 s + 0.01 mean(G²),   w = 0.99 w + 0.01
/// μ = m / w,   σ² = max(s / w − μ², 0.01)                    before any: μ = 0, σ = 1
/// ```
///
/// The normalization of MAPPO, [2103.01955](https://arxiv.org/abs/2103.01955), over steps instead of minibatches.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Scale {
    /// Running sums `[m, s, w]`.
    pub sums: [f32; 3],
}

impl Scale {
    const DECAY: f64 = 0.99;
    const SMALLEST_VARIANCE: f64 = 0.01;

    /// Updates the statistics with the returns of a step, at least one.
    pub fn update(&mut self, returns: &[f64]) {
        let n = returns.len().max(1) as f64;
        let means = [
            returns.iter().sum::<f64>() / n,
            returns.iter().map(|value| value * value).sum::<f64>() / n,
            1.0,
        ];
        for (sum, mean) in self.sums.iter_mut().zip(means) {
            *sum = (Self::DECAY * f64::from(*sum) + (1.0 - Self::DECAY) * mean) as f32;
        }
    }

    /// Returns `(μ, σ)`.
    pub fn moments(&self) -> (f64, f64) {
        let [mean, square, weight] = self.sums.map(f64::from);
        if weight == 0.0 {
            return (0.0, 1.0);
        }
        let mean = mean / weight;
        (mean, (square / weight - mean * mean).max(Self::SMALLEST_VARIANCE).sqrt())
    }

    /// Normalizes a value.
    pub fn normalized(&self, value: f32) -> f32 {
        let (mean, deviation) = self.moments();
        ((f64::from(value) - mean) / deviation) as f32
    }

    /// Denormalizes a value.
    pub fn value(&self, normalized: f32) -> f32 {
        let (mean, deviation) = self.moments();
        (f64::from(normalized) * deviation + mean) as f32
    }

    /// Returns the factor and the offset for a head that keep its denormalized values when the statistics change from
    /// `before` to these (PopArt, [1602.07714](https://arxiv.org/abs/1602.07714)).
    pub fn preserving(&self, before: &Self) -> (f32, f32) {
        let ((old_mean, old), (mean, new)) = (before.moments(), self.moments());
        ((old / new) as f32, ((old_mean - mean) / new) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_step_is_measured_in_its_own_mean_and_deviation() {
        let mut scale = Scale::default();
        assert_eq!((scale.moments(), scale.value(0.5)), ((0.0, 1.0), 0.5));
        scale.update(&[1.0, 3.0]);
        let (mean, deviation) = scale.moments();
        assert!((mean - 2.0).abs() < 1e-5 && (deviation - 1.0).abs() < 1e-5);
        assert!((scale.value(scale.normalized(1.7)) - 1.7).abs() < 1e-6);
    }

    #[test]
    fn what_preserves_a_head_preserves_every_value() {
        let (mut before, head) = (Scale::default(), [0.3_f32, -2.0, 1.5]);
        before.update(&[0.0, 1.0, 1.0]);
        let mut after = before;
        after.update(&[5.0, -3.0, 8.0]);
        let (by, plus) = after.preserving(&before);
        for said in head {
            assert!((after.value(by * said + plus) - before.value(said)).abs() < 1e-5);
        }
    }

    #[test]
    fn variance_is_explained_wholly_by_the_returns_and_not_at_all_by_their_mean() {
        let returns = [0.0, 1.0, 0.5, 1.0];
        assert_eq!(explained_variance(&returns, &returns), 1.0);
        assert!(explained_variance(&[0.625; 4], &returns).abs() < 1e-12);
        assert!(explained_variance(&[1.0, 0.0, 0.5, 0.0], &returns) < 0.0);
        assert_eq!(explained_variance(&[0.1, 0.2], &[1.0, 1.0]), 0.0);
    }
}
