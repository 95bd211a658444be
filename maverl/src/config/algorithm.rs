//! The algorithm: from rewards to updates.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::advantage::AdvantagePlan;
use super::critic::{CriticPasses, CriticPlan};
use super::entropy::AdaptiveEntropy;
use super::limits::MANY;
use super::loss::{LossPlan, ReferencePlan};
use super::preset::Preset;
use super::replay::ReplayPlan;
use super::teacher::DistillPlan;
use super::verifier::VerifierPlan;
use crate::loss::{AdaptiveKl, Aggregation, PreferenceOptions, Selection};
use crate::settings::Settings;

/// Conversion of rewards to updates: a preset's name, and any part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Settings)]
#[settings(partial = "AlgorithmConfig", level = "team", by_hand)]
pub struct AlgorithmPlan {
    /// Preset; `maverl explain algorithm` lists all presets, and `maverl explain algorithm NAME` prints the keys
    /// that one sets.
    #[setting(always, key = "name")]
    pub preset: Preset,
    /// Estimator of advantages.
    #[setting(table)]
    pub advantage: AdvantagePlan,
    /// Shaping of a turn's reward by the rewards of earlier rounds; round k is the k-th turn of each seat.
    #[setting(table, idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    pub shaping: Shaping,
    /// Normalize the advantages of all tokens of a step to mean 0 and standard deviation 1, or less if nearly all
    /// rewards are equal.
    #[setting(default = false, idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    #[setting(idle_when = "name = 'online_dpo'")]
    pub whiten: bool,
    /// Dynamic sampling (DAPO): maximum number of times that a step replaces the tasks whose episodes all have the same
    /// score.
    #[setting(default = 0, idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    pub resample: u32,
    /// Defaults of every agent's `loss`.
    #[setting(table)]
    pub loss: LossPlan,
    /// Aggregation of token losses.
    #[setting(idle_when = "name = 'online_dpo'")]
    pub aggregation: Aggregation,
    /// Selection of the tokens of each minibatch: all (`none`); all but some whose log-prob and advantage have a high covariance
    /// (`clip_cov`); all, with a penalty on those with the largest covariance (`kl_cov`); those with the largest entropy
    /// (`entropy`).
    #[setting(table, idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    #[setting(idle_when = "name = 'online_dpo'")]
    pub select: Selection,
    /// Minibatches per epoch, each with one optimizer step.
    #[setting(default = 1, written = NonZeroUsize, range = 1..=MANY)]
    pub minibatches: usize,
    /// Passes over a batch.
    #[setting(default = 1, written = NonZeroUsize, range = 1..=MANY)]
    pub epochs: usize,
    /// Early stopping: mean KL to the sampling policy in an epoch, above which the remaining epochs of the step are
    /// skipped; 0 disables it.
    #[setting(default = 0.0, range = 0.0.., idle_when = "epochs = 1")]
    #[setting(idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    #[setting(idle_when = "name = 'online_dpo'")]
    pub early_stop_kl: f64,
    /// Coefficient of the loss that balances the load of experts, for models with mixtures of experts; 0 disables it.
    #[setting(default = 0.0, range = 0.0.., idle_when = "name = 'verifier'")]
    pub router_aux_coef: f64,
    /// Order of policy updates.
    #[setting(table, idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    pub update_order: UpdateOrder,
    /// Rewards of later rounds that the reward of a turn includes, as a discounted mean; round k is the k-th turn of each seat.
    #[setting(table, idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    pub future_rewards: FutureRewards,
    /// Rewards for following, resisting, provoking and persuading other agents.
    #[setting(table, idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    pub influence: InfluencePlan,
    /// Use of teachers.
    #[setting(table, idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    #[setting(idle_when = "name = 'online_dpo'")]
    pub distill: DistillPlan,
    /// Groups of earlier steps that are trained on again.
    #[setting(table)]
    pub replay: ReplayPlan,
    /// Controller of `kl_coef`.
    #[setting(table, idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    #[setting(idle_when = "name = 'online_dpo'")]
    pub adaptive_kl: AdaptiveKl,
    /// Controller of `entropy_coef`.
    #[setting(table, idle_when = "name = ['sft', 'dpo', 'spin', 'verifier']")]
    #[setting(idle_when = "name = 'online_dpo'")]
    pub adaptive_entropy: AdaptiveEntropy,
    /// Renewal of the reference policy.
    #[setting(table)]
    pub reference: ReferencePlan,
    /// Number of steps after which two agents exchange their policies (CORY); 0 disables it.
    #[setting(default = 0)]
    pub swap_every: u64,
    /// Alternating training: number of steps that update one policy only, before the next policy by name takes its place; 0
    /// updates all policies in every step.
    #[setting(default = 0)]
    pub train_cycle: u64,
    /// Tokens of a conversation that supervised training trains on: those of the last reply of the assistant (`assistant`), of all
    /// its replies (`replies`), of user messages after a reply (`observations`), or of the last reply and these messages (`all`).
    #[setting(table, idle_unless = "name = 'sft'")]
    pub train_on: TrainOn,
    /// Loss of a pair of replies.
    #[setting(table, idle_unless = "name = ['dpo', 'spin', 'online_dpo']")]
    pub preference: PreferenceOptions,
    /// Training of a verifier.
    #[setting(table, idle_unless = "name = 'verifier'")]
    pub verifier: VerifierPlan,
    /// Critics that the estimator needs.
    #[setting(skip)]
    pub critic: Option<CriticPlan>,
    /// Consecutive flat steps (steps without a training signal) after which the run stops.
    #[setting(always, default = 10, level = "run")]
    pub max_flat_steps: u64,
}

impl AlgorithmPlan {
    /// Returns the optimizer steps of each critic in a step: its own, or those of the algorithm. A mixer is updated on whole
    /// batches unless it has minibatches of its own, and at least
    /// [`least_epochs`](super::critic::Credit::least_epochs) times on a batch.
    pub fn critic_passes(&self) -> CriticPasses {
        let critic = self.critic.as_ref();
        let (epochs, minibatches) = match &self.advantage {
            AdvantagePlan::Mixer(mixer) => (self.epochs.max(mixer.credit.least_epochs()), 1),
            _ => (self.epochs, self.minibatches),
        };
        CriticPasses {
            epochs: critic.and_then(|critic| critic.epochs).map_or(epochs, NonZeroUsize::get),
            minibatches: critic
                .and_then(|critic| critic.minibatches)
                .map_or(minibatches, NonZeroUsize::get),
        }
    }
}

impl From<&AlgorithmConfig> for AlgorithmPlan {
    /// Written keys over those of the preset over the defaults.
    fn from(config: &AlgorithmConfig) -> Self {
        let config = config.over(&config.name.parts());
        let mut plan = Self::resolve(&config, Self::default());
        plan.critic = match plan.preset {
            Preset::Verifier => Some(plan.verifier.critic()),
            _ => plan.advantage.critic(),
        };
        plan
    }
}

/// Shaping of a turn's reward by the rewards of earlier rounds.
#[derive(Debug, Clone, Copy, PartialEq, Settings)]
pub enum Shaping {
    /// No shaping.
    #[setting(default)]
    None,
    /// Reward for exceeding the mean reward of earlier rounds.
    Margin(ShapingPlan),
    /// Reward for a right turn after right ones, penalty for a wrong turn after wrong ones.
    Quality(ShapingPlan),
}

/// Shaping of rewards.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct ShapingPlan {
    /// Weight of the shaping.
    #[setting(default = 0.5, range = 0.0..)]
    pub weight: f64,
}

/// Order of policy updates in a step.
#[derive(Debug, Clone, Copy, PartialEq, Settings)]
pub enum UpdateOrder {
    /// All at once.
    #[setting(default)]
    Together,
    /// One after the other, in an order drawn for each step.
    Random(SequencePlan),
    /// One after the other, by name.
    Fixed(SequencePlan),
}

impl UpdateOrder {
    /// Settings of an order in which policies are updated one after the other.
    pub const fn sequence(&self) -> Option<SequencePlan> {
        match self {
            Self::Together => None,
            Self::Random(plan) | Self::Fixed(plan) => Some(*plan),
        }
    }
}

/// Sequential updates: advantages of a policy are multiplied by a factor of the policies that were updated before
/// (HAPPO).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct SequencePlan {
    /// HAPPO factor: the product of the ratios of the policies that this step has already updated, with one ratio for each
    /// token (`exact`), or one for each reply, the geometric mean over its tokens (`length`).
    pub factor: HappoFactor,
    /// Largest distance of the factor from 1; no default: the factor is not clipped unless this is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(range = 0.0..=1.0, example = "0.2")]
    pub clip: Option<f64>,
}

/// Factor of an advantage from the policies that were updated before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HappoFactor {
    /// Probability ratio of the replies, after the update to before.
    Exact,
    /// Its geometric mean over tokens.
    #[default]
    Length,
}

/// Rewards of later rounds that the reward of a turn includes, as a discounted mean.
#[derive(Debug, Clone, Copy, PartialEq, Settings)]
pub enum FutureRewards {
    /// None: the return of a turn is its reward.
    #[setting(default)]
    None,
    /// The mean reward of the team in later rounds.
    Team(FuturePlan),
    /// The agent's own rewards in later rounds.
    Own(FuturePlan),
}

/// Weights of later rewards.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct FuturePlan {
    /// Discount of later rewards, per round.
    #[setting(default = 0.3, range = 0.0..=1.0)]
    pub discount: f64,
}

/// Tokens of a conversation that supervised training trains on.
#[derive(Debug, Clone, Copy, PartialEq, Settings)]
pub enum TrainOn {
    /// The assistant's last reply (behavior cloning).
    #[setting(default)]
    Assistant,
    /// Every reply of the assistant.
    Replies,
    /// User messages after a reply of the assistant (a world model).
    Observations,
    /// The last reply of the assistant, and those user messages.
    All(ObservationPlan),
}

/// Weight of user messages that are trained on beside replies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct ObservationPlan {
    /// Weight of tokens in observations; tokens in replies have `1 - observation_weight`.
    #[setting(default = 0.5, range = 0.0..=1.0)]
    pub observation_weight: f64,
}

/// Rewards for the effect of agents on each other (MAPoRL).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "InfluenceConfig", level = "team")]
pub struct InfluencePlan {
    /// Coefficient of a reward for an agent that changes its answer to that of most other agents: 1 if this makes
    /// it right, -1 if it makes it wrong.
    #[setting(default = 0.0, range = 0.0..)]
    pub follow: f64,
    /// Coefficient of a reward for an agent that changes its answer from that of most other agents: 1 if this
    /// makes it right, -1 if it makes it wrong.
    #[setting(default = 0.0, range = 0.0..)]
    pub resist: f64,
    /// Coefficient of a reward for an agent if most other agents stop agreeing with its answer: 1 if this makes them right,
    /// -1 if it makes them wrong.
    #[setting(default = 0.0, range = 0.0..)]
    pub provoke: f64,
    /// Coefficient of a reward for an agent whose answer most other agents adopt: 1 if this makes them right, -1 if it
    /// makes them wrong.
    #[setting(default = 0.0, range = 0.0..)]
    pub persuade: f64,
}
