//! How rewards become updates.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use super::agent::layered;

/// `[algorithm]`: a preset's name; any part it sets can be overridden.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlgorithmConfig {
    /// The preset. **(default: `"drmas"`)**
    pub name: Preset,
    /// Which rows are compared with each other. **(default: the preset's)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,
    /// Divide by the group's standard deviation. **(default: `true`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize_std: Option<bool>,
    /// Added to the standard deviation. **(default: `1e-6`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage_eps: Option<f64>,
    /// The advantage of a group of one. **(default: `"zero"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub singleton: Option<Singleton>,
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
    /// Flat steps (no group has spread) in a row after which the run stops. **(default: `10`)**
    pub max_flat_steps: u64,
}

impl Default for AlgorithmConfig {
    fn default() -> Self {
        Self {
            name: Preset::Drmas,
            group_by: None,
            normalize_std: None,
            advantage_eps: None,
            singleton: None,
            loss: LossConfig::default(),
            aggregation: None,
            minibatches: None,
            epochs: None,
            max_flat_steps: 10,
        }
    }
}

/// A choice of parts with a paper behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Group-relative per (task, seat), a turn at a time. arXiv:2602.08847
    #[default]
    Drmas,
    /// Group-relative per task, an episode at a time. arXiv:2402.03300
    Grpo,
    /// Supervised: raise the log-probability of given replies; no rollout.
    Sft,
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
}

/// Per-row coefficients of the loss; what is left out is inherited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
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
    /// Coefficient of the entropy bonus. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::agent::short")]
    pub entropy_coef: Option<f32>,
    /// Subtracted from the reward of a turn whose reply is malformed or truncated. **(default: `0.1`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid_reply_penalty: Option<f64>,
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
    clip_low,
    clip_high,
    clip_dual,
    kl_coef,
    kl,
    entropy_coef,
    invalid_reply_penalty,
});
