//! Critics: values, and advantages from values.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use super::agent::{LoraConfig, OptimConfig};

/// `[algorithm.critic]`, which `estimator = "critic"` reads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CriticConfig {
    /// Trunk under the value head. **(default: `"own"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trunk: Option<Trunk>,
    /// With `trunk = "lora"`: the adapter. **(default: that of a model)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// Input before a reply. **(default: `"prompt"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<CriticInput>,
    /// Who has one of its own. **(default: `"policy"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<CriticScope>,
    /// Granularity of values. **(default: `"token"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Granularity>,
    /// Where an advantage ends to count what comes after. **(default: `"turn"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
    /// Discount from one place to the next. **(default: `1.0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gamma: Option<f64>,
    /// GAE lambda: 0 is one step, 1 is to the end. **(default: `0.95`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lambda: Option<f64>,
    /// Clip of value updates; 0 is no clip. **(default: `0.2`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
    /// Errors of a value beyond this count linearly; 0 is never. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huber: Option<f64>,
    /// With `trunk = "shared"`: what the value loss counts in the trunk; 0 keeps it out. **(default: `0.1`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_coef: Option<f64>,
    /// Normalization of value targets: none, running statistics, or PopArt. **(default: `"none"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<Normalize>,
    /// Steps in which critics learn, and policies not yet. **(default: `0`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_steps: Option<u64>,
    /// Mixer of the agents' values into a value of the team. **(default: `"none"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixer: Option<Mixer>,
    /// With a mixer: what an agent is told of the team's advantage. **(default: `"shared"`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit: Option<Credit>,
    /// With `mixer = "monotone"`: hidden units. **(default: `32`)**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixer_width: Option<NonZeroUsize>,
    /// Optimizer. **(default: that of a model, with `lr = 1e-5`)**
    #[serde(skip_serializing_if = "OptimConfig::is_empty")]
    pub optim: OptimConfig,
}

impl CriticConfig {
    /// Nothing is written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These values, and where one is left out, that of `base`.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let lora = match (&self.lora, &base.lora) {
            (Some(ours), Some(base)) => Some(ours.over(base)),
            (ours, base) => ours.clone().or_else(|| base.clone()),
        };
        Self {
            trunk: self.trunk.or(base.trunk),
            lora,
            input: self.input.or(base.input),
            scope: self.scope.or(base.scope),
            granularity: self.granularity.or(base.granularity),
            bootstrap: self.bootstrap.or(base.bootstrap),
            gamma: self.gamma.or(base.gamma),
            lambda: self.lambda.or(base.lambda),
            clip: self.clip.or(base.clip),
            huber: self.huber.or(base.huber),
            value_coef: self.value_coef.or(base.value_coef),
            normalize: self.normalize.or(base.normalize),
            warmup_steps: self.warmup_steps.or(base.warmup_steps),
            mixer: self.mixer.or(base.mixer),
            credit: self.credit.or(base.credit),
            mixer_width: self.mixer_width.or(base.mixer_width),
            optim: self.optim.over(&base.optim),
        }
    }
}

/// Source of advantages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// Other episodes.
    #[default]
    Group,
    /// A critic's values.
    Critic,
}

/// Trunk under the head of a critic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trunk {
    /// A copy of the model, every weight of it trained.
    #[default]
    Own,
    /// An adapter on the policy's base, which stays as it is.
    Lora,
    /// The policy itself.
    Shared,
}

/// Input of a critic before a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CriticInput {
    /// Prompt of the agent.
    #[default]
    Prompt,
    /// That, after everything that anyone has said in the episode.
    Transcript,
}

/// Who has a critic of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CriticScope {
    /// Each trained policy.
    #[default]
    Policy,
    /// The team.
    Team,
}

/// Granularity of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Granularity {
    /// Each token of a reply.
    #[default]
    Token,
    /// A reply as a whole.
    Turn,
}

/// Where an advantage ends to count what comes after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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

/// Normalization of value targets: none, running statistics, or PopArt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalize {
    /// Reward.
    #[default]
    None,
    /// Deviations of the returns so far from their mean.
    Running,
    /// The same; when they move, the head moves against it, so that no value changes.
    Popart,
}

/// Mixer of the agents' values into a value of the team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mixer {
    /// Not at all: each has its own return.
    #[default]
    None,
    /// Their sum (VDN).
    Sum,
    /// A network that no agent's value can lower (QMIX).
    Monotone,
}

/// Credit of an agent from the team's advantage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// It needs values after replies too.
    pub const fn knows_replies(self) -> bool {
        matches!(self, Self::Difference | Self::Without | Self::Tokens)
    }
}

/// Whose policy is updated when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateOrder {
    /// All at once.
    #[default]
    Together,
    /// One after the other, in an order drawn for each step; each knows what those before did.
    Random,
    /// One after the other, by name.
    Fixed,
}

/// Factor of an advantage from the policies that were updated before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HappoFactor {
    /// The ratio of the probabilities of what they said, after to before.
    Exact,
    /// Its geometric mean over tokens.
    #[default]
    Length,
    /// The ratio, within `1 ± happo.clip`.
    Clipped,
}

/// Whose later scores a turn is worth too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FutureRewards {
    /// Nobody's: a turn is worth its reward.
    #[default]
    None,
    /// The mean over the team.
    Team,
    /// The agent's own.
    Own,
}
