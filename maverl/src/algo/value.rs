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
    let row = |i: usize| ValueRow { text: texts[i].clone(), aim: aims[i].clone() };
    let batch = |host: usize| {
        let its = |i: &usize| plan.critic_of(samples[*i].policy) == Some(host);
        ValueBatch {
            rows: (0..samples.len()).filter(its).map(row).collect(),
            minibatches,
            epochs,
            lr: critic.optim().rate(step, plan.config.steps),
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
