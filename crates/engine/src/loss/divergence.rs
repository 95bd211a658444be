//! Divergence of a policy from a reference or from the sampling policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Term;
use super::token::{LOG_RATIO_MAX, at_most, ratio};
use crate::settings::Settings;

/// Estimators of the KL divergence to the reference (Schulman, "Approximating KL divergence").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kl {
    /// log p - log q
    K1,
    /// (log p - log q)² / 2
    K2,
    /// exp(log q - log p) - (log q - log p) - 1
    #[default]
    K3,
}

/// Estimates the KL divergence to a reference on one sampled token. The derivative is with respect to `logp`.
///
/// ```text
/// k1 = logp − logp_ref
/// k2 = (logp − logp_ref)² / 2
/// k3 = exp(logp_ref − logp) − (logp_ref − logp) − 1
/// ```
///
/// Schulman, [Approximating KL divergence].
///
/// - k3 is not clamped. The reference implementation of Dr. MAS clamps it to ±10, which drops the gradient of the
///   tokens with the largest divergence.
/// - k1 is unbiased as a value, but the expectation of its gradient is 0: use it for logging and rewards, and k2 and k3
///   for losses.
///
/// [Approximating KL divergence]: http://joschu.net/blog/kl-approx.html
pub fn kl(estimator: Kl, logp: f64, logp_ref: f64) -> Term {
    let excess = logp - logp_ref;
    match estimator {
        Kl::K1 => Term { value: excess, grad: 1.0 },
        Kl::K2 => Term { value: excess * excess / 2.0, grad: excess },
        Kl::K3 => Term { value: libm::expm1(-excess) + excess, grad: -libm::expm1(-excess) },
    }
}

/// Computes the KL penalty in the reward of a reply: 0 or less, up to the estimator's noise.
///
/// ```text
/// r = −β · Σ kl(logpₜ, logp_refₜ)                      over its tokens, with the log-probs at sampling
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

/// Weights the divergence of a token sampled by an older policy by its importance ratio. Gradients flow through both
/// factors.
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

/// Computes CPGD's drift term, which pulls the policy towards the sampling policy.
///
/// ```text
/// L = sg(min(ρ − 1, 2)) · log ρ                        sg: stop-gradient
/// ```
///
/// [2505.12504].
///
/// [2505.12504]: https://arxiv.org/abs/2505.12504
pub fn policy_drift(log_ratio: f64) -> Term {
    let pull = at_most(libm::expm1(log_ratio), 2.0);
    Term { value: pull * log_ratio, grad: pull }
}

/// Controller of `kl_coef` (1909.08593, section 2.2).
///
/// ```text
/// β ← β · (1 + clip(kl / target − 1, −0.2, 0.2) · n / horizon)
/// ```
///
/// Fine-tuning language models from human preferences, [1909.08593] §2.2.
///
/// [1909.08593]: https://arxiv.org/abs/1909.08593
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "AdaptiveKlConfig", level = "team", crate = crate)]
pub struct AdaptiveKl {
    /// Target of the KL to the reference, to which `kl_coef` is adapted; 0 keeps it constant.
    #[setting(default = 0.0, range = 0.0..)]
    pub target: f64,
    /// Number of rows over which `kl_coef` may change by about 20 %.
    #[setting(default = 10_000.0, range = above(0.0).., idle_when = "target = 0")]
    pub horizon: f64,
}

impl AdaptiveKl {
    /// Returns the coefficient after a batch of `rows` with a mean divergence of `kl`.
    pub fn next(&self, coefficient: f64, kl: f64, rows: usize) -> f64 {
        let error = (kl / self.target - 1.0).clamp(-0.2, 0.2);
        coefficient * (1.0 + error * rows as f64 / self.horizon)
    }
}
