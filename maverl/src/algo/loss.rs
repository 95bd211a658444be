//! Losses on packed tokens `[N]`, and the weights that turn them into one number.
//!
//! ```text
//! L = Σₙ wₙ · (clipped_surrogate + β · kl − η · entropy)ₙ
//! ```
//!
//! What a token loses and how much it counts are separate: [`token_weights`] are computed once from the true lengths of
//! a whole batch, so micro-batches of any size add up to the same gradient. Coefficients are `[N]` tensors, because
//! rows of several agents, each with its own, share a batch.

use std::ops::AddAssign;

use candle_core::{Result, Tensor};

use crate::config::{Aggregation, Kl};

/// Beyond this `log ρ` every clip has long cut the gradient; cutting here keeps `0 · ∞` out of the backward pass.
const LOG_RATIO_MAX: f64 = 20.0;

/// The clipped surrogate of each token, with a dual bound. All `[N]`; differentiable in `logp` alone.
///
/// ```text
/// ρ = exp(logp − logp_old)
/// L = max(−A·ρ, −A·clip(ρ, 1 − low, 1 + high))
/// L = min(L, −A·dual)                             where A < 0
/// ```
///
/// PPO ([1707.06347] eq. 7) with separate bounds (DAPO, [2503.14476] eq. 8) and the dual clip ([1912.09729] eq. 8).
///
/// - `log ρ` is cut at 20, where `ρ` is far outside every clip: neither value nor gradient changes.
///
/// # Errors
///
/// If the shapes differ.
///
/// [1707.06347]: https://arxiv.org/abs/1707.06347
/// [2503.14476]: https://arxiv.org/abs/2503.14476
/// [1912.09729]: https://arxiv.org/abs/1912.09729
pub fn clipped_surrogate(
    logp: &Tensor,
    logp_old: &Tensor,
    advantages: &Tensor,
    low: &Tensor,
    high: &Tensor,
    dual: &Tensor,
) -> Result<Tensor> {
    let cost = advantages.detach().neg()?; // −A
    let ratio = (logp - logp_old.detach())?.minimum(LOG_RATIO_MAX)?.exp()?;
    let clipped = ratio.clamp(&low.affine(-1.0, 1.0)?, &high.affine(1.0, 1.0)?)?;
    let surrogate = (&cost * ratio)?.maximum(&(&cost * clipped)?)?;
    let bounded = surrogate.minimum(&(&cost * dual)?)?;
    cost.gt(0.0)?.where_cond(&bounded, &surrogate)
}

/// The KL divergence to a reference, estimated on each sampled token. All `[N]`; differentiable in `logp` alone.
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
/// - k1 is unbiased as a value, but the expectation of its gradient is 0: it is for logging, k2 and k3 are for losses.
///
/// # Errors
///
/// If the shapes differ.
///
/// [Approximating KL divergence]: http://joschu.net/blog/kl-approx.html
pub fn kl(estimator: Kl, logp: &Tensor, logp_ref: &Tensor) -> Result<Tensor> {
    let excess = (logp - logp_ref.detach())?;
    match estimator {
        Kl::K1 => Ok(excess),
        Kl::K2 => excess.sqr()? * 0.5,
        Kl::K3 => (excess.neg()?.exp()? + excess)? - 1.0,
    }
}

/// How much each token counts, for rows of `lengths` tokens packed one after another: `[N]`, with `N` the sum of them.
/// The weighted sum of token losses is the aggregate over the whole batch.
///
/// ```text
/// token_mean      w = 1 / N
/// sequence_mean   w = 1 / (rows · length of the row)
/// sequence_sum    w = 1 / rows
/// ```
pub fn token_weights(lengths: &[usize], aggregation: Aggregation) -> Vec<f32> {
    let rows = lengths.len() as f64;
    let tokens = lengths.iter().sum::<usize>() as f64;
    let weight = |length: usize| match aggregation {
        Aggregation::TokenMean => 1.0 / tokens,
        Aggregation::SequenceMean => 1.0 / (rows * length as f64),
        Aggregation::SequenceSum => 1.0 / rows,
    };
    lengths.iter().flat_map(|&length| std::iter::repeat_n(weight(length) as f32, length)).collect()
}

/// Sums over tokens of what the clips did. Add those of micro-batches, then divide by `tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SurrogateStats {
    /// How many tokens.
    pub tokens: u64,
    /// Tokens with `A < 0` and a ratio below `1 − low`: no gradient.
    pub clipped_low: u64,
    /// Tokens with `A > 0` and a ratio above `1 + high`: no gradient.
    pub clipped_high: u64,
    /// Tokens with `A < 0` and a ratio above `dual`: no gradient.
    pub clipped_dual: u64,
    /// Sum of `logp_old − logp`.
    pub ppo_kl: f64,
}

impl AddAssign for SurrogateStats {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.clipped_low += other.clipped_low;
        self.clipped_high += other.clipped_high;
        self.clipped_dual += other.clipped_dual;
        self.ppo_kl += other.ppo_kl;
    }
}

/// What the clips of [`clipped_surrogate`] did to the same tokens. All `[N]`.
///
/// # Panics
///
/// If the lengths differ.
pub fn surrogate_stats(
    logp: &[f32],
    logp_old: &[f32],
    advantages: &[f32],
    low: &[f32],
    high: &[f32],
    dual: &[f32],
) -> SurrogateStats {
    let n = logp.len();
    for other in [logp_old, advantages, low, high, dual] {
        assert_eq!(other.len(), n, "surrogate_stats: {} values for {n} tokens", other.len());
    }
    let mut stats = SurrogateStats { tokens: n as u64, ..SurrogateStats::default() };
    for t in 0..n {
        let log_ratio = f64::from(logp[t]) - f64::from(logp_old[t]);
        let (ratio, advantage) = (log_ratio.exp(), advantages[t]);
        stats.clipped_low += u64::from(advantage < 0.0 && ratio < 1.0 - f64::from(low[t]));
        stats.clipped_high += u64::from(advantage > 0.0 && ratio > 1.0 + f64::from(high[t]));
        stats.clipped_dual += u64::from(advantage < 0.0 && ratio > f64::from(dual[t]));
        stats.ppo_kl -= log_ratio;
    }
    stats
}

#[cfg(test)]
mod tests;
