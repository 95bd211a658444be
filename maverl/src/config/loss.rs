//! Coefficients of the loss.

use serde::{Deserialize, Serialize};

use super::agent::layered;

/// Per-row coefficients of the loss; what is left out is inherited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Surrogate loss of a token. **(default: `"clip"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surrogate: Option<Surrogate>,
    /// Unit of the importance ratio. **(default: `"token"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// Steepness of SAPO's gate for positive and negative advantages. **(default: `[1.0, 1.05]`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<(f64, f64)>,
    /// Lower clip of the ratio: 1 - this. **(default: `0.2`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::agent::short")]
    pub clip_low: Option<f32>,
    /// Upper clip of the ratio: 1 + this. **(default: `0.2`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::agent::short")]
    pub clip_high: Option<f32>,
    /// Bound of the surrogate for negative advantages (dual clip), above 1. **(default: `3.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::agent::short")]
    pub clip_dual: Option<f32>,
    /// Coefficient of the KL to the reference. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::agent::short")]
    pub kl_coef: Option<f32>,
    /// Its estimator. **(default: `"k3"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<Kl>,
    /// Weigh the KL of a token by its ratio. **(default: `false`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl_corrected: Option<bool>,
    /// Where the KL counts. **(default: `"loss"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl_in: Option<KlIn>,
    /// Correction of differences between the log-probs of sampler and trainer. **(default: `"none"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correction: Option<Correction>,
    /// Largest ratio of the trainer's to the sampler's probability, and one over the smallest. **(default: `2.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correction_cap: Option<f64>,
    /// Coefficient of the pull towards the policy that sampled. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::agent::short")]
    pub drift_coef: Option<f32>,
    /// Coefficient of the entropy bonus. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::agent::short")]
    pub entropy_coef: Option<f32>,
    /// Subtracted from the reward of a turn whose reply is malformed or truncated. **(default: `0.1`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid_reply_penalty: Option<f64>,
    /// Share of `max_tokens`, at the end, in which a reply loses reward with its length. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong_buffer: Option<f64>,
    /// Penalty of a reply of `max_tokens`. **(default: `1.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong_penalty: Option<f64>,
}

/// Surrogate loss of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surrogate {
    /// The clipped ratio (PPO).
    #[default]
    Clip,
    /// The log-probability, weighted by the clipped ratio. arXiv:2506.13585
    Cispo,
    /// A soft gate of the ratio. arXiv:2511.20347
    Sapo,
    /// The clipped log-probability. arXiv:2505.12504
    Cpgd,
}

/// Unit of the importance ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ratio {
    /// Each token.
    #[default]
    Token,
    /// The whole reply: the geometric mean over its tokens (GSPO).
    Sequence,
    /// The whole reply: the product over its tokens (RLOO).
    Product,
}

/// Aggregation of token losses to one number; every count is a true count of the whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Sum over tokens, over the number of tokens.
    #[default]
    TokenMean,
    /// Mean over each row's tokens, then over rows.
    SequenceMean,
    /// Sum over each row's tokens, then mean over rows.
    SequenceSum,
    /// Sum over tokens, over the tokens there would be if every reply were as long as it may be.
    Constant,
}

/// Estimators of the KL divergence to the reference (Schulman, "Approximating KL divergence").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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

/// Where the KL to the reference counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlIn {
    /// In the loss, token by token.
    #[default]
    Loss,
    /// In the reward of the turn: the sum over its tokens, as they were sampled.
    Reward,
}

/// Correction of tokens whose log-prob differs between sampler and trainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Correction {
    /// Nothing: the ratio is to the sampler's.
    #[default]
    None,
    /// Each token counts its ratio, up to the cap.
    Truncate,
    /// A token whose ratio leaves `[1 / cap, cap]` does not count.
    MaskTokens,
    /// A row whose mean ratio leaves `[1 / cap, cap]` does not count.
    MaskSequences,
}

layered!(LossConfig {
    surrogate,
    ratio,
    gate,
    clip_low,
    clip_high,
    clip_dual,
    kl_coef,
    kl,
    kl_corrected,
    kl_in,
    correction,
    correction_cap,
    drift_coef,
    entropy_coef,
    invalid_reply_penalty,
    overlong_buffer,
    overlong_penalty,
});

/// `[algorithm.reference]`: the policy that a KL and pairs of replies are compared with.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReferenceConfig {
    /// Steps after which the reference becomes the current policy; 0 keeps the starting weights. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
}

impl ReferenceConfig {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

layered!(ReferenceConfig { every });
