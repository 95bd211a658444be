//! Coefficients of the loss.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Coefficients of the loss of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "LossConfig", level = "row")]
pub struct LossPlan {
    /// Surrogate loss of a token.
    pub surrogate: Surrogate,
    /// Unit of the importance ratio.
    pub ratio: Ratio,
    /// Steepness of SAPO's gate for positive and negative advantages.
    #[setting(default = (1.0, 1.05), range = above(0.0)..)]
    pub gate: (f64, f64),
    /// Lower clip of the ratio: 1 - this.
    #[setting(default = 0.2, range = above(0.0)..=1.0)]
    pub clip_low: f32,
    /// Upper clip of the ratio: 1 + this.
    #[setting(default = 0.2, range = above(0.0)..)]
    pub clip_high: f32,
    /// Bound of the surrogate for negative advantages (dual clip), above 1.
    #[setting(default = 3.0, range = above(1.0)..)]
    pub clip_dual: f32,
    /// Coefficient of the KL to the reference.
    #[setting(default = 0.0, range = 0.0..)]
    pub kl_coef: f32,
    /// Estimator of the KL.
    pub kl: Kl,
    /// Weigh the KL of a token by its ratio.
    #[setting(default = false)]
    pub kl_corrected: bool,
    /// Place where the KL counts.
    pub kl_in: KlIn,
    /// Correction of differences between the log-probs of sampler and trainer.
    pub correction: Correction,
    /// Largest ratio of the trainer's to the sampler's probability, and one over the smallest.
    #[setting(default = 2.0, range = above(1.0)..)]
    pub correction_cap: f64,
    /// Coefficient of the pull towards the policy that sampled.
    #[setting(default = 0.0, range = 0.0..)]
    pub drift_coef: f32,
    /// Coefficient of the entropy bonus.
    #[setting(default = 0.0, range = 0.0..)]
    pub entropy_coef: f32,
    /// Subtracted from the reward of a turn whose reply is malformed or truncated.
    #[setting(default = 0.1, range = 0.0..)]
    pub invalid_reply_penalty: f64,
    /// Share of `max_tokens`, at the end, in which a reply loses reward with its length; 0 is none.
    #[setting(default = 0.0, range = 0.0..=1.0)]
    pub overlong_buffer: f64,
    /// Penalty of a reply of `max_tokens`.
    #[setting(default = 1.0, range = 0.0..)]
    pub overlong_penalty: f64,
}

/// Surrogate loss of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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

/// Where the KL to the reference counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlIn {
    /// In the loss, token by token.
    #[default]
    Loss,
    /// In the reward of the turn: the sum over its tokens, as they were sampled.
    Reward,
}

/// Correction of tokens whose log-prob differs between sampler and trainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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

/// Policy that a KL and pairs of replies are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Settings)]
#[settings(partial = "ReferenceConfig", level = "step")]
pub struct ReferencePlan {
    /// Steps after which the reference becomes the current policy; 0 keeps the starting weights.
    #[setting(default = 0)]
    pub every: u64,
}

impl ReferencePlan {
    /// Returns true if the reference is renewed before step `step`, counted from 0.
    pub fn is_due(self, step: u64) -> bool {
        step > 0 && self.every > 0 && step.is_multiple_of(self.every)
    }
}
