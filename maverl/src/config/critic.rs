//! Critics and mixers: values, and advantages from values.
//!
//! [`CriticPlan::spec`] is a critic as the engine has it. Who shares a critic is [`CriticScope`] and `host` in
//! `plan/critic.rs`.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::WIDTH;
use crate::loss::ValueLimits;
use crate::runtime::{
    CriticSpec, LoraConfig, LoraSpec, MANY, Normalize, OptimConfig, OptimOptions, Trunk,
};
use crate::settings::Settings;

/// Declares the settings of an estimator that needs critics: its own keys, then those of every critic.
macro_rules! with_critics {
    ($(#[$meta:meta])* $plan:ident { $($own:tt)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
        #[serde(default, deny_unknown_fields)]
        #[settings(level = "team")]
        pub struct $plan {
            $($own)*
            /// Adapter if `trunk = "lora"`: any key of `lora`.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[setting(inner, example = "{ rank = 8 }")]
            pub lora: Option<LoraConfig>,
            /// Input of the critic: `prompt` is the prompt of the agent; `transcript` is all earlier replies of the
            /// episode, and then this prompt.
            pub input: CriticInput,
            /// Number of critics: one for each trained policy, or one for the whole team.
            pub scope: CriticScope,
            /// Largest change of a value in an update (PPO's value clipping); 0 disables clipping.
            #[setting(default = 0.2, range = 0.0..)]
            pub clip: f64,
            /// Threshold of the Huber loss of values; 0 is the squared error.
            #[setting(default = 0.0, range = 0.0..)]
            pub huber: f64,
            /// Warm-up: number of steps at the start of training that update only critics (and the mixer).
            pub warmup_steps: u64,
            /// Passes of critics (and of the mixer) over a batch; the default is `algorithm.epochs`, or at least 5 for
            /// a mixer whose `credit` is `difference` or `tokens`.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[setting(range = 1..=MANY, example = "5")]
            pub epochs: Option<NonZeroUsize>,
            /// Minibatches of each pass of critics, each with one optimizer step; the default is `algorithm.minibatches`,
            /// or 1 for a mixer.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[setting(range = 1..=MANY, example = "1")]
            pub minibatches: Option<NonZeroUsize>,
            /// Optimizer of critics (and of the mixer): any key of `optim`.
            #[setting(inner, default = optim(), example = "{ lr = 1e-5 }")]
            pub optim: OptimConfig,
        }
    };
}

with_critics! {
    /// Advantages from the values of critics: GAE.
    #[maverl::advantage(name = "critic")]
    CriticPlan {
        /// Trunk under the value head: a copy of the model, an adapter on the policy's base, or the policy itself.
        pub trunk: Trunk,
        /// Unit that gets a value.
        pub granularity: Granularity,
        /// Turns that GAE includes: only the turn itself (`turn`), also the later turns of its seat (`seat`), or also the
        /// later turns of the whole team (`team`).
        pub bootstrap: Bootstrap,
        /// Discount from token to token, or from turn to turn with `granularity = "turn"`.
        #[setting(default = 1.0, range = 0.0..=1.0)]
        pub gamma: f64,
        /// GAE lambda: 0 is the one-step advantage, 1 the Monte Carlo advantage.
        #[setting(default = 0.95, range = 0.0..=1.0)]
        pub lambda: f64,
        /// Coefficient of the value loss in the gradient of the trunk; 0 trains the value head only; only with
        /// `trunk = "shared"`.
        #[setting(default = 0.1, range = 0.0.., idle_unless = "trunk = 'shared'")]
        pub value_coef: f64,
        /// Normalization of value targets.
        pub normalize: Normalize,
    }
}

with_critics! {
    /// Shares of the advantage of the team, whose value a mixer makes of those of the agents.
    MixerPlan {
        /// Function from the agents' values to the value of the team: their sum, or a monotone network.
        pub network: MixerNetwork,
        /// Hidden units of the mixing network; only with `network = "monotone"`.
        #[setting(default = 32, range = 1..=WIDTH, idle_unless = "network = 'monotone'")]
        pub width: NonZeroUsize,
        /// Computation of an agent's advantage from the advantage of the team (docs/src/algorithms/mixers.md).
        pub credit: Credit,
        /// Trunk under the value heads: a copy of the model, or an adapter on the policy's base.
        pub trunk: MixerTrunk,
        /// Discount from token to token; only with `credit = "tokens"`.
        #[setting(default = 1.0, range = 0.0..=1.0, idle_unless = "credit = 'tokens'")]
        pub gamma: f64,
        /// GAE lambda; only with `credit = "tokens"`.
        #[setting(default = 0.95, range = 0.0..=1.0, idle_unless = "credit = 'tokens'")]
        pub lambda: f64,
    }
}

impl MixerPlan {
    /// The critics whose values it mixes.
    pub fn critic(&self) -> CriticPlan {
        CriticPlan {
            trunk: match self.trunk {
                MixerTrunk::Own => Trunk::Own,
                MixerTrunk::Lora => Trunk::Lora,
            },
            lora: self.lora.clone(),
            input: self.input,
            scope: self.scope,
            granularity: Granularity::Turn,
            gamma: self.gamma,
            lambda: self.lambda,
            clip: self.clip,
            huber: self.huber,
            warmup_steps: self.warmup_steps,
            epochs: self.epochs,
            minibatches: self.minibatches,
            optim: self.optim.clone(),
            ..CriticPlan::default()
        }
    }
}

impl CriticPlan {
    /// The adapter of `trunk = "lora"`.
    pub fn lora(&self) -> LoraSpec {
        LoraSpec::from(&self.lora.clone().unwrap_or_default())
    }

    /// The optimizer, with every value.
    pub fn optim(&self) -> OptimOptions {
        OptimOptions::from(&self.optim.over(&optim()))
    }

    /// Bounds of the value loss.
    pub fn limits(&self) -> ValueLimits {
        ValueLimits { clip: self.clip, huber: self.huber }
    }

    /// The critic of a worker group.
    pub fn spec(&self) -> CriticSpec {
        let mut spec = CriticSpec::new(self.trunk);
        spec.lora = self.lora();
        spec.normalize = self.normalize;
        spec.limits = self.limits();
        spec.value_coef = self.value_coef;
        spec.optim = self.optim();
        spec
    }
}

/// Optimizer steps of a critic in a step of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CriticPasses {
    /// Passes over the batch.
    pub epochs: usize,
    /// Optimizer steps in each pass.
    pub minibatches: usize,
}

/// Optimizer of critics, with every key.
fn optim() -> OptimConfig {
    OptimConfig::from(&OptimOptions { lr: 1e-5, ..OptimOptions::default() })
}

/// Input of a critic before a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CriticInput {
    /// Prompt of the agent.
    #[default]
    Prompt,
    /// That, after everything that anyone has said in the episode.
    Transcript,
}

/// Who has a critic of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CriticScope {
    /// Each trained policy.
    #[default]
    Policy,
    /// The team.
    Team,
}

/// Granularity of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Granularity {
    /// Each token of a reply.
    #[default]
    Token,
    /// A reply as a whole.
    Turn,
}

/// Where an advantage ends to count what comes after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bootstrap {
    /// At the end of the turn, which earns its whole reward there.
    #[default]
    Turn,
    /// At the end of the seat's last turn.
    Seat,
    /// At the end of the team's last turn: the value of whoever speaks next counts.
    Team,
}

/// Trunk under the heads of a mixer's critics, which are updated with the mixer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MixerTrunk {
    /// A copy of the model, every weight of it trained.
    #[default]
    Own,
    /// An adapter on the policy's base, which stays as it is.
    Lora,
}

/// Mixer of the agents' values into a value of the team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MixerNetwork {
    /// Their sum (VDN).
    #[default]
    Sum,
    /// A network that no agent's value can lower (QMIX).
    Monotone,
}

/// Credit of an agent from the team's advantage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Credit {
    /// All of it.
    #[default]
    Shared,
    /// It, by how much the agent's value moves the team's, which is 1 on average.
    Weight,
    /// Gain of the team's value by the agent's reply.
    Difference,
    /// The team's reward, less the team's value without the agent's reply.
    Without,
    /// Change of the agent's own value from token to token, up to the value after the reply.
    Tokens,
}

impl Credit {
    /// The reward of the episode is a part of the advantage.
    pub const fn has_reward(self) -> bool {
        matches!(self, Self::Shared | Self::Weight | Self::Without)
    }

    /// Passes of critics over a batch, unless the configuration or the algorithm has more. Without a reward in the advantage,
    /// policies follow the critics alone; 5 are `critic_epoch` of HARL.
    pub const fn least_epochs(self) -> usize {
        if self.has_reward() { 1 } else { 5 }
    }

    /// It needs values after replies too.
    pub const fn knows_replies(self) -> bool {
        matches!(self, Self::Difference | Self::Without | Self::Tokens)
    }
}
