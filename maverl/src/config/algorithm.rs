//! The algorithm: from rewards to updates.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::advantage::AdvantagePlan;
use super::critic::{CriticPlan, FutureRewards, HappoFactor, UpdateOrder};
use super::instance::DeclaredPlan;
use super::loss::{Aggregation, LossPlan, ReferencePlan};
use super::preset::Preset;
use super::tables::MANY;
use crate::settings::{Settings, TaggedConfig};

/// Conversion of rewards to updates: a preset's name, and any part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Settings)]
#[settings(partial = "AlgorithmConfig", level = "step", by_hand)]
pub struct AlgorithmPlan {
    /// Preset: `maverl explain algorithm` lists them and the parts they set.
    #[setting(always, key = "name")]
    pub preset: Preset,
    /// Estimator of advantages.
    #[setting(table)]
    pub advantage: AdvantagePlan,
    /// Shaping of a turn's reward by the rewards of earlier rounds.
    pub shaping: Shaping,
    /// Weight of the shaping.
    #[setting(default = 0.5, range = 0.0..)]
    pub shaping_weight: f64,
    /// Give the advantages of a step's tokens mean 0 and deviation 1.
    #[setting(default = false)]
    pub whiten: bool,
    /// Times that tasks whose episodes all earned the same are replaced by others.
    #[setting(default = 0)]
    pub resample: u32,
    /// Coefficients of the loss, for every agent.
    #[setting(table)]
    pub loss: LossPlan,
    /// Aggregation of token losses.
    pub aggregation: Aggregation,
    /// Optimizer steps a batch is split into, per epoch.
    #[setting(default = 1, written = NonZeroUsize, range = 1..=MANY)]
    pub minibatches: usize,
    /// Passes over a batch.
    #[setting(default = 1, written = NonZeroUsize, range = 1..=MANY)]
    pub epochs: usize,
    /// Mean KL to the policy that sampled beyond which no further epoch begins; 0 is never.
    #[setting(default = 0.0, range = 0.0..)]
    pub early_stop_kl: f64,
    /// Order of policy updates.
    pub update_order: UpdateOrder,
    /// Weights of the advantages of policies that are updated one after the other.
    #[setting(table)]
    pub happo: HappoPlan,
    /// Later rewards that a turn is worth too.
    pub future_rewards: FutureRewards,
    /// Discount of later rewards, per round.
    #[setting(default = 0.3, range = 0.0..=1.0)]
    pub future_discount: f64,
    /// Rewards for following, resisting, provoking and persuading other agents.
    #[setting(table)]
    pub influence: InfluencePlan,
    /// Controller of `kl_coef`.
    #[setting(table)]
    pub adaptive_kl: AdaptiveKlPlan,
    /// Renewal of the reference policy.
    #[setting(table)]
    pub reference: ReferencePlan,
    /// Steps after which two agents exchange their policies; 0 is never.
    #[setting(default = 0)]
    pub swap_every: u64,
    /// Steps for which one policy learns alone before the next, by name, does; 0: all learn in each.
    #[setting(default = 0)]
    pub train_cycle: u64,
    /// Tokens of a conversation that supervised training trains on.
    pub train_on: TrainOn,
    /// Weight of an observation, of 1 for it and a reply, with `train_on = "all"`.
    #[setting(default = 0.5, range = 0.0..=1.0)]
    pub observation_weight: f64,
    /// Loss of a pair of replies.
    #[setting(table)]
    pub preference: PreferencePlan,
    /// Surrogate declared with `#[surrogate]`, in place of `loss.surrogate`.
    #[setting(optional)]
    pub surrogate: Option<TaggedConfig>,
    /// The surrogate that this table names.
    #[setting(skip)]
    pub declared: DeclaredPlan,
    /// Critics that the estimator needs.
    #[setting(skip)]
    pub critic: Option<CriticPlan>,
    /// Flat steps (no group has spread) in a row after which the run stops.
    #[setting(always, default = 10, level = "run")]
    pub max_flat_steps: u64,
}

impl From<&AlgorithmConfig> for AlgorithmPlan {
    /// Written keys over those of the preset over the defaults.
    fn from(config: &AlgorithmConfig) -> Self {
        let config = config.over(&config.name.parts());
        let mut plan = Self::resolve(&config, Self::default());
        plan.critic = plan.advantage.critic();
        plan
    }
}

/// Shaping of a turn's reward by the rewards of earlier rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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

/// Weights of the advantages of policies that are updated one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "HappoConfig", level = "step")]
pub struct HappoPlan {
    /// Factor of an advantage from the policies that were updated before.
    pub factor: HappoFactor,
    /// Largest distance of a clipped factor from 1.
    #[setting(default = 0.2, range = 0.0..=1.0)]
    pub clip: f64,
}

/// Rewards for the effect of agents on each other (MAPoRL).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "InfluenceConfig", level = "step")]
pub struct InfluencePlan {
    /// Reward for following the others.
    #[setting(default = 0.0, range = 0.0..)]
    pub follow: f64,
    /// Reward for resisting the others.
    #[setting(default = 0.0, range = 0.0..)]
    pub resist: f64,
    /// Reward for provoking the others.
    #[setting(default = 0.0, range = 0.0..)]
    pub provoke: f64,
    /// Reward for persuading the others.
    #[setting(default = 0.0, range = 0.0..)]
    pub persuade: f64,
}

/// Controller of `kl_coef` (1909.08593, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "AdaptiveKlConfig", level = "step")]
pub struct AdaptiveKlPlan {
    /// KL to the reference policy that `kl_coef` is adapted to; 0 keeps `kl_coef` constant.
    #[setting(default = 0.0, range = 0.0..)]
    pub target: f64,
    /// Rows over which `kl_coef` may change by 20 %.
    #[setting(default = 10_000.0, range = above(0.0)..)]
    pub horizon: f64,
}

/// Loss of a pair of replies (dpo).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "PreferenceConfig", level = "step")]
pub struct PreferencePlan {
    /// Loss of a pair.
    pub loss: PairLoss,
    /// Strength of the KL constraint to the reference: less is weaker.
    #[setting(default = 0.1, range = above(0.0)..)]
    pub beta: f64,
    /// Share of pairs taken to be the wrong way round, with `sigmoid` and `robust`.
    #[setting(default = 0.0, range = 0.0..0.5)]
    pub label_smoothing: f64,
    /// Compare with nothing instead of the reference.
    #[setting(default = false)]
    pub reference_free: bool,
}

/// The loss of a pair of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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

/// `[rewards.NAME]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "step")]
pub struct RewardConfig {
    /// Multiplies what the function gives.
    #[setting(default = 1.0, range = ..)]
    pub weight: f64,
}
