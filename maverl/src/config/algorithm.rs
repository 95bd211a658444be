//! The algorithm: from rewards to updates.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use super::DeclaredConfig;
use super::agent::layered;
use super::critic::{CriticConfig, Estimator, FutureRewards, HappoFactor, UpdateOrder};
use super::loss::{Aggregation, LossConfig, ReferenceConfig};
use super::preset::Preset;

/// `[algorithm]`: a preset's name; any part it sets can be overridden.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlgorithmConfig {
    /// The preset. **(default: `"drmas"`)**
    pub name: Preset,
    /// Baseline of a reward. **(default: `"mean"`)**
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
    /// Momentum of the moving average, with `baseline = "moving_average"`. **(default: `0.9`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_momentum: Option<f64>,
    /// Shaping of a turn's reward by the rewards of earlier rounds. **(default: `"none"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shaping: Option<Shaping>,
    /// Weight of the shaping. **(default: `0.5`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shaping_weight: Option<f64>,
    /// Give the advantages of a step's tokens mean 0 and deviation 1. **(default: `false`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whiten: Option<bool>,
    /// Weight of advantages among turns that were given the same prompt; 0 is none. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_weight: Option<f64>,
    /// Similarity of prompts that are compared: 1 is equal, token by token. **(default: `1.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_similarity: Option<f64>,
    /// Of later rewards, per turn, where turns with the same prompt are compared. **(default: `0.95`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discount: Option<f64>,
    /// Times that tasks whose episodes all earned the same are replaced by others. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resample: Option<u32>,
    /// Per row: coefficients of the loss, for every agent.
    pub loss: LossConfig,
    /// Aggregation of token losses. **(default: `"token_mean"`)**
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
    pub early_stop_kl: Option<f64>,
    /// Source of advantages. **(default: `"group"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimator: Option<Estimator>,
    /// Where values come from, with `estimator = "critic"`.
    #[serde(skip_serializing_if = "CriticConfig::is_empty")]
    pub critic: CriticConfig,
    /// Whose policy is updated when. **(default: `"together"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_order: Option<UpdateOrder>,
    /// Weights of the advantages of policies that are updated one after the other.
    #[serde(skip_serializing_if = "HappoConfig::is_empty")]
    pub happo: HappoConfig,
    /// Whose later rewards a turn is worth too. **(default: `"none"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub future_rewards: Option<FutureRewards>,
    /// Of later rewards, per round. **(default: `0.3`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub future_discount: Option<f64>,
    /// Rewards for following, resisting, provoking and persuading other agents.
    #[serde(skip_serializing_if = "InfluenceConfig::is_empty")]
    pub influence: InfluenceConfig,
    /// Controller of `kl_coef`.
    #[serde(skip_serializing_if = "AdaptiveKlConfig::is_empty")]
    pub adaptive_kl: AdaptiveKlConfig,
    /// Renewal of the reference policy.
    #[serde(skip_serializing_if = "ReferenceConfig::is_empty")]
    pub reference: ReferenceConfig,
    /// Steps after which two agents exchange their policies; 0 is never. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_every: Option<u64>,
    /// Steps for which one policy learns alone before the next, by name, does; 0: all learn in each. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_cycle: Option<u64>,
    /// Tokens of a conversation that supervised training trains on. **(default: `"assistant"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_on: Option<TrainOn>,
    /// Weight of an observation; a reply has the rest of 1, with `train_on = "all"`.
    /// **(default: `0.5`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observation_weight: Option<f64>,
    /// Loss of a pair of replies.
    #[serde(skip_serializing_if = "PreferenceConfig::is_empty")]
    pub preference: PreferenceConfig,
    /// Estimator declared with `#[advantage]`, in place of the built-in one. **(default: none)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage: Option<DeclaredConfig>,
    /// Surrogate declared with `#[surrogate]`, in place of `loss.surrogate`. **(default: none)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surrogate: Option<DeclaredConfig>,
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
            baseline_momentum: None,
            shaping: None,
            shaping_weight: None,
            whiten: None,
            anchor_weight: None,
            anchor_similarity: None,
            discount: None,
            resample: None,
            loss: LossConfig::default(),
            aggregation: None,
            minibatches: None,
            epochs: None,
            early_stop_kl: None,
            estimator: None,
            critic: CriticConfig::default(),
            update_order: None,
            happo: HappoConfig::default(),
            future_rewards: None,
            future_discount: None,
            influence: InfluenceConfig::default(),
            adaptive_kl: AdaptiveKlConfig::default(),
            reference: ReferenceConfig::default(),
            swap_every: None,
            train_cycle: None,
            train_on: None,
            observation_weight: None,
            preference: PreferenceConfig::default(),
            advantage: None,
            surrogate: None,
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
            baseline_momentum: self.baseline_momentum.or(base.baseline_momentum),
            shaping: self.shaping.or(base.shaping),
            shaping_weight: self.shaping_weight.or(base.shaping_weight),
            whiten: self.whiten.or(base.whiten),
            anchor_weight: self.anchor_weight.or(base.anchor_weight),
            anchor_similarity: self.anchor_similarity.or(base.anchor_similarity),
            discount: self.discount.or(base.discount),
            resample: self.resample.or(base.resample),
            loss: self.loss.over(&base.loss),
            aggregation: self.aggregation.or(base.aggregation),
            minibatches: self.minibatches.or(base.minibatches),
            epochs: self.epochs.or(base.epochs),
            early_stop_kl: self.early_stop_kl.or(base.early_stop_kl),
            estimator: self.estimator.or(base.estimator),
            critic: self.critic.over(&base.critic),
            update_order: self.update_order.or(base.update_order),
            happo: self.happo.over(&base.happo),
            future_rewards: self.future_rewards.or(base.future_rewards),
            future_discount: self.future_discount.or(base.future_discount),
            influence: self.influence.over(&base.influence),
            adaptive_kl: self.adaptive_kl.over(&base.adaptive_kl),
            reference: self.reference.over(&base.reference),
            swap_every: self.swap_every.or(base.swap_every),
            train_cycle: self.train_cycle.or(base.train_cycle),
            train_on: self.train_on.or(base.train_on),
            observation_weight: self.observation_weight.or(base.observation_weight),
            preference: self.preference.over(&base.preference),
            advantage: self.advantage.clone().or_else(|| base.advantage.clone()),
            surrogate: self.surrogate.clone().or_else(|| base.surrogate.clone()),
            max_flat_steps: self.max_flat_steps,
        }
    }
}

/// Baseline of a reward, within its group.
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
    /// The reward of an episode more on the same task, played greedily (ReMax).
    Greedy,
    /// The average reward of the seat over the steps so far.
    MovingAverage,
}

impl Baseline {
    /// Other episodes of the group are what a reward is compared with.
    pub const fn of_group(self) -> bool {
        matches!(self, Self::Mean | Self::LeaveOneOut | Self::SecondBest)
    }
}

/// Shaping of a turn's reward by the rewards of earlier rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shaping {
    /// Not at all.
    #[default]
    None,
    /// By how much better it is.
    Margin,
    /// By how much it agrees.
    Quality,
}

/// Tokens of a conversation that supervised training trains on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainOn {
    /// The assistant's last reply (behavior cloning).
    #[default]
    Assistant,
    /// User messages after a reply of the assistant (a world model).
    Observations,
    /// Both.
    All,
}

/// `[algorithm.happo]`: weights of the advantages of policies that are updated one after the other.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HappoConfig {
    /// Factor of an advantage from the policies that were updated before. **(default: `"length"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<HappoFactor>,
    /// Largest distance of a clipped factor from 1. **(default: `0.2`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
}

/// `[algorithm.influence]`: rewards for the effect of agents on each other (MAPoRL).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InfluenceConfig {
    /// Reward for following the others. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow: Option<f64>,
    /// Reward for resisting the others. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resist: Option<f64>,
    /// Reward for provoking the others. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provoke: Option<f64>,
    /// Reward for persuading the others. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persuade: Option<f64>,
}

/// `[algorithm.adaptive_kl]`: a controller of `kl_coef` (1909.08593, section 2.2).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveKlConfig {
    /// KL to the reference policy that `kl_coef` is adapted to; 0 keeps `kl_coef` constant. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// Rows over which `kl_coef` may change by 20 %. **(default: `10000.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon: Option<f64>,
}

/// `[algorithm.preference]`: how a pair of replies becomes a loss.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreferenceConfig {
    /// The loss of a pair. **(default: `"sigmoid"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<PairLoss>,
    /// Strength of the KL constraint to the reference: less is weaker. **(default: `0.1`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta: Option<f64>,
    /// Share of pairs taken to be the wrong way round, with `sigmoid` and `robust`. **(default: `0.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_smoothing: Option<f64>,
    /// Compare with nothing instead of the reference. **(default: `false`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference_free: Option<bool>,
}

macro_rules! is_empty {
    ($($config:ty),*) => {
        $(impl $config {
            fn is_empty(&self) -> bool {
                *self == Self::default()
            }
        })*
    };
}
is_empty!(PreferenceConfig, HappoConfig, InfluenceConfig, AdaptiveKlConfig);

layered!(HappoConfig { factor, clip });
layered!(InfluenceConfig { follow, resist, provoke, persuade });
layered!(AdaptiveKlConfig { target, horizon });
layered!(PreferenceConfig { loss, beta, label_smoothing, reference_free });

/// The loss of a pair of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairLoss {
    /// Logistic (DPO). arXiv:2305.18290
    #[default]
    Sigmoid,
    /// A margin of 1 (SLiC-HF). arXiv:2305.10425
    Hinge,
    /// Squared distance from a margin, over means of tokens (IPO). arXiv:2310.12036
    Ipo,
    /// Logistic, unbiased where a known share of the pairs is the wrong way round. arXiv:2403.00409
    Robust,
}

/// Which rows are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// Episodes of a task (GRPO): unit = episode, group = task.
    Task,
    /// Turns on a task, whoever speaks: unit = row, group = task.
    TaskTurn,
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
