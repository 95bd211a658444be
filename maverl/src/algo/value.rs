//! Inputs and targets of critics.

use maverl_engine::runtime::{ValueBatch, ValueRow, ValueTarget, ValueText};

use crate::algo::Sample;
use crate::config::CriticPasses;
use crate::plan::Plan;

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
    let CriticPasses { epochs, minibatches } = plan.algorithm.critic_passes();
    let lr = critic.optim().rate(step, plan.config.steps);
    let mut batches = Vec::new();
    for host in 0..plan.policies.len() {
        let mut rows = Vec::new();
        for ((sample, text), aim) in samples.iter().zip(texts).zip(aims) {
            if plan.critic_of(sample.policy) == Some(host) {
                rows.push(ValueRow { text: text.clone(), aim: aim.clone() });
            }
        }
        if !rows.is_empty() {
            batches.push((host, ValueBatch { rows, minibatches, epochs, lr }));
        }
    }
    batches
}

/// Computes the share of the returns' variance that the values explain: 1 is all of it, 0 equals predicting the mean,
/// and below 0 is worse.
///
/// ```text
/// EV = 1 − Var(G − V) / Var(G)                 0 where all returns are the same
/// ```
pub fn explained_variance(values: &[f64], returns: &[f64]) -> f64 {
    let whole = variance_of(returns);
    if whole <= f64::EPSILON {
        return 0.0;
    }
    let rest: Vec<f64> = (0..returns.len()).map(|i| returns[i] - values[i]).collect();
    1.0 - variance_of(&rest) / whole
}

/// Returns the mean squared distance of numbers to their mean.
fn variance_of(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variance_is_explained_wholly_by_the_returns_and_not_at_all_by_their_mean() {
        let returns = [0.0, 1.0, 0.5, 1.0];
        assert_eq!(explained_variance(&returns, &returns), 1.0);
        assert!(explained_variance(&[0.625; 4], &returns).abs() < 1e-12);
        assert!(explained_variance(&[1.0, 0.0, 0.5, 0.0], &returns) < 0.0);
        assert_eq!(explained_variance(&[0.1, 0.2], &[1.0, 1.0]), 0.0);
    }
}
