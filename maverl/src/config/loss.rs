//! Coefficients of the loss.
//!
//! A key that the loss of the engine reads is also a field of `LossOptions`, and `plan/engine.rs` converts it. A
//! built-in surrogate is a kind here, a table in `tables.rs`, and a variant of `BuiltinSurrogate`. A penalty has its
//! arithmetic in `rollout/runner.rs`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::instance::Instance;
use crate::credit::Surrogate;
use crate::settings::Settings;

/// Loss of a row: the surrogate, and the terms beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Settings)]
#[settings(partial = "LossConfig", level = "agent")]
pub struct LossPlan {
    /// Surrogate loss of a token.
    #[setting(table)]
    pub surrogate: SurrogatePlan,
    /// Unit of the importance ratio; `sequence` is the geometric mean over the reply's tokens, `product` their product.
    pub ratio: Ratio,
    /// Coefficient of the KL to the reference.
    #[setting(default = 0.0, range = 0.0..)]
    pub kl_coef: f32,
    /// Estimator of the KL.
    #[setting(idle_when = "kl_coef = 0")]
    pub kl: Kl,
    /// Multiply the KL of a token by its importance ratio (DeepSeek-V3.2).
    #[setting(default = false, idle_when = "kl_coef = 0")]
    #[setting(idle_when = "kl_in = 'reward'")]
    pub kl_corrected: bool,
    /// Place of the KL: the loss of a token, or the reward of a turn.
    #[setting(idle_when = "kl_coef = 0")]
    pub kl_in: KlIn,
    /// Correction of differences between the log-probs of sampler and trainer.
    #[setting(table)]
    pub correction: CorrectionPlan,
    /// Coefficient of the drift penalty towards the sampling policy (CPGD).
    #[setting(default = 0.0, range = 0.0..)]
    pub drift_coef: f32,
    /// Coefficient of the entropy bonus.
    #[setting(default = 0.0, range = 0.0..)]
    pub entropy_coef: f32,
    /// Penalty on the reward of a turn whose reply is malformed or truncated.
    #[setting(default = 0.1, range = 0.0..)]
    pub invalid_reply_penalty: f64,
    /// Soft overlong penalty (DAPO): share of `max_tokens`, at its end, over which the penalty grows linearly; 0 disables it.
    #[setting(default = 0.0, range = 0.0..=1.0)]
    pub overlong_buffer: f64,
    /// Penalty of a reply with `max_tokens` tokens.
    #[setting(default = 1.0, range = 0.0.., idle_when = "overlong_buffer = 0")]
    pub overlong_penalty: f64,
}

/// Surrogate loss of a token.
#[derive(Debug, Clone, PartialEq, Settings)]
pub enum SurrogatePlan {
    /// The clipped ratio (PPO).
    #[setting(default)]
    Clip(ClipPlan),
    /// The log-probability, weighted by the clipped ratio (CISPO).
    Cispo(CispoPlan),
    /// A soft gate of the ratio (SAPO).
    Sapo(SapoPlan),
    /// The clipped log-ratio (CPGD).
    Cpgd(CpgdPlan),
    /// A surrogate declared with `#[surrogate]`.
    #[setting(open)]
    Declared(Instance<dyn Surrogate>),
}

impl SurrogatePlan {
    /// Returns the surrogate itself.
    pub fn surrogate(&self) -> &dyn Surrogate {
        match self {
            Self::Clip(plan) => plan,
            Self::Cispo(plan) => plan,
            Self::Sapo(plan) => plan,
            Self::Cpgd(plan) => plan,
            Self::Declared(declared) => &*declared.value,
        }
    }
}

/// The clipped ratio (PPO). arXiv:1707.06347, eq. 7; arXiv:1912.09729, eq. 8
#[maverl::surrogate(name = "clip")]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent")]
pub struct ClipPlan {
    /// Lower clip: the ratio is at least 1 minus this number.
    #[setting(default = 0.2, range = above(0.0)..=1.0)]
    pub clip_low: f64,
    /// Upper clip: the ratio is at most 1 plus this number.
    #[setting(default = 0.2, range = above(0.0)..)]
    pub clip_high: f64,
    /// Upper bound of the ratio where the advantage is negative (dual clip); above 1.
    #[setting(default = 3.0, range = above(1.0)..)]
    pub clip_dual: f64,
}

/// The log-probability, weighted by the clipped ratio (CISPO). arXiv:2506.13585
#[maverl::surrogate(name = "cispo")]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent")]
pub struct CispoPlan {
    /// Upper clip: the ratio is at most 1 plus this number.
    #[setting(default = 4.0, range = above(0.0)..)]
    pub clip_high: f64,
}

/// A soft gate of the ratio (SAPO). arXiv:2511.20347
#[maverl::surrogate(name = "sapo")]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent")]
pub struct SapoPlan {
    /// Steepness of the gate for positive and negative advantages.
    #[setting(default = (1.0, 1.05), range = above(0.0)..)]
    pub gate: (f64, f64),
}

/// The clipped log-ratio (CPGD). arXiv:2505.12504
#[maverl::surrogate(name = "cpgd")]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent")]
pub struct CpgdPlan {
    /// Lower clip: the ratio is at least 1 minus this number.
    #[setting(default = 0.2, range = above(0.0)..=1.0)]
    pub clip_low: f64,
    /// Upper clip: the ratio is at most 1 plus this number.
    #[setting(default = 0.2, range = above(0.0)..)]
    pub clip_high: f64,
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
#[derive(Debug, Clone, Copy, PartialEq, Settings)]
pub enum CorrectionPlan {
    /// Nothing: the ratio is to the sampler's.
    #[setting(default)]
    None,
    /// Each token is weighted by its ratio, at most `cap`.
    Truncate(TruncatePlan),
    /// Tokens whose ratio is outside `[1 / cap, cap]` are masked.
    MaskTokens(MaskPlan),
    /// Rows whose geometric mean ratio is outside `[1 / cap, cap]` are masked.
    MaskSequences(MaskPlan),
}

impl CorrectionPlan {
    /// The cap; the default one if nothing is corrected.
    pub fn cap(&self) -> f64 {
        match self {
            Self::None => TruncatePlan::default().cap,
            Self::Truncate(plan) => plan.cap,
            Self::MaskTokens(plan) | Self::MaskSequences(plan) => plan.cap,
        }
    }
}

/// Truncated importance sampling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent")]
pub struct TruncatePlan {
    /// Upper bound of the ratio of the trainer's to the sampler's probability.
    #[setting(default = 2.0, range = above(1.0)..)]
    pub cap: f64,
}

/// Masks by the importance ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "agent")]
pub struct MaskPlan {
    /// Upper bound of the ratio of the trainer's to the sampler's probability; the lower bound is its inverse.
    #[setting(default = 2.0, range = above(1.0)..)]
    pub cap: f64,
}

/// Policy that a KL and pairs of replies are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Settings)]
#[settings(partial = "ReferenceConfig", level = "team")]
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
