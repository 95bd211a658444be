//! How far a policy has gone, from a reference or from itself.

use super::Term;
use super::surrogate::{LOG_RATIO_MAX, at_most, ratio};
use crate::config::Kl;

/// The KL divergence to a reference, estimated on one sampled token; the derivative is with respect to `logp`.
///
/// ```text
/// k1 = logp − logp_ref
/// k2 = (logp − logp_ref)² / 2
/// k3 = exp(logp_ref − logp) − (logp_ref − logp) − 1
/// ```
///
/// Schulman, [Approximating KL divergence].
///
/// - k3 is not clamped; the reference implementation of Dr. MAS clamps it to ±10, which drops the gradient of the very
///   tokens that have gone furthest astray.
/// - k1 is unbiased as a value, but the expectation of its gradient is 0: it is for logging and for rewards, k2 and k3
///   are for losses.
///
/// [Approximating KL divergence]: http://joschu.net/blog/kl-approx.html
pub fn kl(estimator: Kl, logp: f64, logp_ref: f64) -> Term {
    let excess = logp - logp_ref;
    match estimator {
        Kl::K1 => Term { value: excess, grad: 1.0 },
        Kl::K2 => Term { value: excess * excess / 2.0, grad: excess },
        Kl::K3 => Term { value: (-excess).exp_m1() + excess, grad: -(-excess).exp_m1() },
    }
}

/// What a reply loses of its reward for its distance from the reference: 0 or less, up to the estimator's noise.
///
/// ```text
/// r = −β · Σ kl(logpₜ, logp_refₜ)                      over its tokens, as they were sampled
/// ```
///
/// Fine-tuning language models from human preferences, [1909.08593](https://arxiv.org/abs/1909.08593) eq. 2.
///
/// # Panics
///
/// If the lengths differ.
pub fn kl_reward(estimator: Kl, coefficient: f64, logp: &[f32], logp_ref: &[f32]) -> f64 {
    assert_eq!(logp.len(), logp_ref.len(), "kl_reward: one log-prob of each per token");
    let terms = logp
        .iter()
        .zip(logp_ref)
        .map(|(logp, logp_ref)| kl(estimator, f64::from(*logp), f64::from(*logp_ref)).value);
    -coefficient * terms.sum::<f64>()
}

/// The same divergence for a token that an older policy sampled, weighted by its ratio; gradients go through both.
///
/// ```text
/// L = ρ · kl                                           ρ = exp(logp − logp_old)
/// ```
///
/// DeepSeek-V3.2, [2512.02556]: unbiased off policy, in value and in gradient.
///
/// [2512.02556]: https://arxiv.org/abs/2512.02556
pub fn importance_corrected(kl: Term, log_ratio: f64) -> Term {
    let ratio = ratio(log_ratio);
    let grows = if log_ratio < LOG_RATIO_MAX { kl.value } else { 0.0 };
    Term { value: ratio * kl.value, grad: ratio * (kl.grad + grows) }
}

/// CPGD's pull towards the policy that sampled.
///
/// ```text
/// L = sg(min(ρ − 1, 2)) · log ρ                        sg: no gradient goes through
/// ```
///
/// [2505.12504].
///
/// [2505.12504]: https://arxiv.org/abs/2505.12504
pub fn policy_drift(log_ratio: f64) -> Term {
    let pull = at_most(log_ratio.exp_m1(), 2.0);
    Term { value: pull * log_ratio, grad: pull }
}

/// A KL coefficient that seeks a target.
///
/// ```text
/// β ← β · (1 + clip(kl / target − 1, −0.2, 0.2) · n / horizon)
/// ```
///
/// Fine-tuning language models from human preferences, [1909.08593] §2.2.
///
/// [1909.08593]: https://arxiv.org/abs/1909.08593
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaptiveKl {
    /// The KL that is sought.
    pub target: f64,
    /// Rows over which the coefficient may change by a fifth.
    pub horizon: f64,
}

impl AdaptiveKl {
    /// The coefficient after a batch of `rows` with a mean divergence of `kl`.
    pub fn next(&self, coefficient: f64, kl: f64, rows: usize) -> f64 {
        let error = (kl / self.target - 1.0).clamp(-0.2, 0.2);
        coefficient * (1.0 + error * rows as f64 / self.horizon)
    }
}
