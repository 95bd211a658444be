//! How rewards become updates.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use super::agent::layered;
use super::critic::{CriticConfig, Estimator, Factor, Later, Order};
use super::preset::Preset;

/// `[algorithm]`: a preset's name; any part it sets can be overridden.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlgorithmConfig {
    /// The preset. **(default: `"drmas"`)**
    pub name: Preset,
    /// What a reward is compared with. **(default: `"mean"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Which rows are compared with each other. **(default: the preset's)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,
    /// Which rows the deviation is taken over. **(default: as `group_by`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deviation_by: Option<GroupBy>,
    /// Divide by the group's standard deviation. **(default: `true`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize_std: Option<bool>,
    /// Added to the standard deviation. **(default: `1e-6`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage_eps: Option<f64>,
    /// The advantage of a group of one. **(default: `"zero"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub singleton: Option<Singleton>,
    /// Give the advantages of a step's tokens mean 0 and deviation 1. **(default: `false`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whiten: Option<bool>,
    /// Weight of advantages among turns that were given the same prompt; 0 is none. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_weight: Option<f64>,
    /// Of later rewards, per turn, where turns with the same prompt are compared. **(default: `0.95`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discount: Option<f64>,
    /// Times that tasks whose episodes all earned the same are replaced by others. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resample: Option<u32>,
    /// Per row: coefficients of the loss, for every agent.
    pub loss: LossConfig,
    /// How token losses become one number. **(default: `"token_mean"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Aggregation>,
    /// Optimizer steps a batch is split into, per epoch. **(default: `1`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minibatches: Option<NonZeroUsize>,
    /// Passes over a batch. **(default: `1`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<NonZeroUsize>,
    /// Mean KL to the policy that sampled beyond which no further epoch begins; 0 is never. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_kl: Option<f64>,
    /// What advantages are estimated from. **(default: `"group"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimator: Option<Estimator>,
    /// Where values come from, with `estimator = "critic"`.
    #[serde(skip_serializing_if = "CriticConfig::is_empty")]
    pub critic: CriticConfig,
    /// Whose policy is updated when. **(default: `"together"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// What an update knows of those before it, where they come one after the other. **(default: `"length"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<Factor>,
    /// How far from 1 a clipped factor may be. **(default: `0.2`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor_clip: Option<f64>,
    /// Whose later rewards a turn is worth too. **(default: `"none"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub later: Option<Later>,
    /// Of later rewards, per round. **(default: `0.3`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub later_discount: Option<f64>,
    /// What is paid for following others, resisting them, provoking and persuading them. **(default: none)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub influence: Option<[f64; 4]>,
    /// Flat steps (no group has spread) in a row after which the run stops. **(default: `10`)**
    pub max_flat_steps: u64,
}

impl Default for AlgorithmConfig {
    fn default() -> Self {
        Self {
            name: Preset::Drmas,
            baseline: None,
            group_by: None,
            deviation_by: None,
            normalize_std: None,
            advantage_eps: None,
            singleton: None,
            whiten: None,
            anchor_weight: None,
            discount: None,
            resample: None,
            loss: LossConfig::default(),
            aggregation: None,
            minibatches: None,
            epochs: None,
            target_kl: None,
            estimator: None,
            critic: CriticConfig::default(),
            order: None,
            factor: None,
            factor_clip: None,
            later: None,
            later_discount: None,
            influence: None,
            max_flat_steps: 10,
        }
    }
}

impl AlgorithmConfig {
    /// These values, and where one is left out, that of `base`; the name and `max_flat_steps` are always these.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        Self {
            name: self.name,
            baseline: self.baseline.or(base.baseline),
            group_by: self.group_by.or(base.group_by),
            deviation_by: self.deviation_by.or(base.deviation_by),
            normalize_std: self.normalize_std.or(base.normalize_std),
            advantage_eps: self.advantage_eps.or(base.advantage_eps),
            singleton: self.singleton.or(base.singleton),
            whiten: self.whiten.or(base.whiten),
            anchor_weight: self.anchor_weight.or(base.anchor_weight),
            discount: self.discount.or(base.discount),
            resample: self.resample.or(base.resample),
            loss: self.loss.over(&base.loss),
            aggregation: self.aggregation.or(base.aggregation),
            minibatches: self.minibatches.or(base.minibatches),
            epochs: self.epochs.or(base.epochs),
            target_kl: self.target_kl.or(base.target_kl),
            estimator: self.estimator.or(base.estimator),
            critic: self.critic.over(&base.critic),
            order: self.order.or(base.order),
            factor: self.factor.or(base.factor),
            factor_clip: self.factor_clip.or(base.factor_clip),
            later: self.later.or(base.later),
            later_discount: self.later_discount.or(base.later_discount),
            influence: self.influence.or(base.influence),
            max_flat_steps: self.max_flat_steps,
        }
    }
}

/// What a reward is compared with, within its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// The mean of the group.
    #[default]
    Mean,
    /// The mean of the others of the group.
    LeaveOneOut,
    /// The best of the group is compared with the second best; the others have no advantage.
    SecondBest,
    /// Nothing: the reward itself.
    None,
}

/// Which rows are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// Episodes of a task (GRPO): unit = episode, group = task.
    Task,
    /// Turns of a seat on a task (Dr. MAS): unit = row, group = (task, seat).
    TaskSeat,
}

/// The advantage of a group of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Singleton {
    /// 0: nothing to compare with.
    #[default]
    Zero,
    /// The reward itself, as the reference implementation of Dr. MAS does.
    Raw,
}

/// How token losses become one number; every count is a true count of the whole batch.
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

/// Per-row coefficients of the loss; what is left out is inherited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// What a token loses for its advantage. **(default: `"clip"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surrogate: Option<Surrogate>,
    /// What the ratio of new to old probability is of. **(default: `"token"`)**
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
    /// Coefficient of the KL to the reference (the starting weights). **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::agent::short")]
    pub kl_coef: Option<f32>,
    /// Its estimator. **(default: `"k3"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<Kl>,
    /// Weigh the KL of a token by its ratio. **(default: `false`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl_corrected: Option<bool>,
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
    /// What a reply of `max_tokens` loses by that. **(default: `1.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong_penalty: Option<f64>,
}

/// What a token loses for its advantage.
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

/// What the ratio of new to old probability is of.
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

/// `[rewards.NAME]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RewardConfig {
    /// Multiplies what the function gives. **(default: `1.0`)**
    pub weight: f64,
}

impl Default for RewardConfig {
    fn default() -> Self {
        Self { weight: 1.0 }
    }
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
    drift_coef,
    entropy_coef,
    invalid_reply_penalty,
    overlong_buffer,
    overlong_penalty,
});
