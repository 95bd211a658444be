//! What updates did.

use serde::{Deserialize, Serialize};

/// What an update did. Means are over true token counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct UpdateStats {
    /// The loss, mean over optimizer steps.
    pub loss: f64,
    /// Its surrogate part (or the negative log-likelihood).
    pub pg_loss: f64,
    /// KL to the reference, by the configured estimator; 0 without reference.
    pub kl: f64,
    /// Entropy in nats.
    pub entropy: f64,
    /// Share of tokens whose ratio was clipped from below, above, and by the dual bound.
    pub clip_frac_low: f64,
    /// See `clip_frac_low`.
    pub clip_frac_high: f64,
    /// See `clip_frac_low`.
    pub clip_frac_dual: f64,
    /// Mean of logp_old - logp (k1 to the rollout policy).
    pub ppo_kl: f64,
    /// Gradient norm before clipping, mean over optimizer steps.
    pub grad_norm: f64,
    /// |trainer log-prob - rollout log-prob| over the tokens seen before the first optimizer step: mean.
    pub mismatch_mean: f64,
    /// The same: largest.
    pub mismatch_max: f64,
    /// How much a token counts, in the mean, where the sampler's log-probs are corrected for.
    pub correction_mean: Option<f64>,
    /// Of pairs of replies.
    pub preference: Option<PairStats>,
    /// Optimizer steps taken.
    pub optimizer_steps: u64,
    /// Rows trained on.
    pub rows: u64,
    /// Completion tokens trained on.
    pub tokens: u64,
    /// The policy's version after the update.
    pub version: u64,
}

/// Means over pairs of replies, each as it stood before its optimizer step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PairStats {
    /// Implicit reward of the better reply: beta times the sum of its log-ratios to the reference.
    pub reward_chosen: f64,
    /// That of the other.
    pub reward_rejected: f64,
    /// Share of pairs in which the better reply has the higher one.
    pub accuracy: f64,
}

/// What an update of a critic did. Means are over values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ValueStats {
    /// The value loss, mean over optimizer steps; in squared units of the normalization. 0 where grads are given.
    pub loss: f64,
    /// Share of values further from where they began than the clip.
    pub clip_frac: f64,
    /// Gradient norm before clipping, mean over optimizer steps.
    pub grad_norm: f64,
    /// Optimizer steps taken.
    pub optimizer_steps: u64,
    /// Texts trained on.
    pub rows: u64,
    /// Values trained on.
    pub values: u64,
}
