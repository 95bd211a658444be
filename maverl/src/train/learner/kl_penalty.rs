//! The KL penalty in the reward (`kl_in = "reward"`).

use crate::algo::loss::kl_reward;
use crate::algo::{Sample, row, samples};
use crate::config::KlIn;
use crate::metrics::Metrics;
use crate::plan::{LossPlan, Plan};
use crate::runtime::{Policy, RuntimeError};
use crate::train::learner::state::{AlgorithmState, REWARD_KL};
use crate::trajectory::{Episode, RewardOf, RewardPart};

/// Adds the KL penalty to the rewards of turns, for policies whose KL is in the reward. Returns true if any has it.
pub(crate) async fn apply(
    plan: &Plan,
    policies: &[Policy],
    episodes: &mut [Episode],
    state: &AlgorithmState,
) -> Result<bool, RuntimeError> {
    let samples = samples(episodes, plan);
    let mut applied = false;
    for (index, policy) in policies.iter().enumerate() {
        let charged = samples.iter().filter(|sample| sample.policy == index);
        let charged: Vec<&Sample> =
            charged.filter(|sample| in_reward(&plan.seats[sample.seat].loss)).collect();
        if charged.is_empty() {
            continue;
        }
        applied = true;
        let rows: Vec<_> = charged.iter().map(|sample| row(plan, episodes, sample, &[])).collect();
        let sampled: Vec<Vec<f32>> = rows.iter().map(|row| row.logprobs.clone()).collect();
        let reference = policy.reference(rows).await?;
        let scale = state.kl_scale(policy.name());
        for ((sample, logp), reference) in charged.into_iter().zip(&sampled).zip(&reference) {
            let LossPlan { kl, kl_coef, .. } = plan.seats[sample.seat].loss;
            let value = kl_reward(kl, f64::from(kl_coef) * scale, logp, reference);
            let of = RewardOf::Turn(sample.turn);
            let part = RewardPart { name: RewardPart::KL.to_owned(), value, of };
            episodes[sample.episode].rewards.extend((value != 0.0).then_some(part));
        }
    }
    Ok(applied)
}

fn in_reward(loss: &LossPlan) -> bool {
    loss.kl_in == KlIn::Reward && loss.kl_coef > 0.0
}

/// Computes the mean over tokens of the KL in the rewards of each policy.
pub(crate) fn metrics(
    plan: &Plan,
    episodes: &[Episode],
    samples: &[Sample],
    state: &AlgorithmState,
) -> Metrics {
    let mut metrics = Metrics::default();
    for (index, policy) in plan.policies.iter().enumerate() {
        let (mut kl, mut tokens) = (0.0, 0);
        for sample in samples.iter().filter(|sample| sample.policy == index) {
            let loss = &plan.seats[sample.seat].loss;
            if !in_reward(loss) {
                continue;
            }
            let parts = episodes[sample.episode].rewards.iter();
            let mine =
                parts.filter(|p| p.name == RewardPart::KL && p.of == RewardOf::Turn(sample.turn));
            let paid: f64 = mine.map(|part| part.value).sum();
            kl -= paid / (f64::from(loss.kl_coef) * state.kl_scale(&policy.name));
            tokens += sample.tokens;
        }
        if tokens > 0 {
            metrics.set(format!("policy/{}/{REWARD_KL}", policy.name), kl / tokens as f64);
        }
    }
    metrics
}
