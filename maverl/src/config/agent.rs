//! `[agents."team/role"]` and `[sampling]`: the keys of agents and seats.
//!
//! The keys of `[sampling]` are the engine's options of a request (`runtime/request.rs`), which its slots use. If one
//! changes probabilities, `check/policy.rs` rejects it for agents that are trained on sampled replies. Servers and commands
//! that sample have it too: `openai/options.rs` and `gateway/call.rs` of `crates/serve`, `rollout/servers`, `maverl generate`.
//! A key of an agent has a line in `over`, and a field of `SeatPlan`, or of `PolicyPlan` if its level is policy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::loss::LossConfig;
use super::teacher::TeacherChoice;
use crate::runtime::{LoraConfig, OptimConfig, SamplingConfig};
use crate::settings::Settings;

/// `[agents."team/role"]` and, on top of it, `[agents."team/role".seats.N]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "policy")]
pub struct AgentConfig {
    /// Name of a table in `[models]`; optional if there is only one model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"tiny\"")]
    pub model: Option<String>,
    /// Name of a table in `[endpoints]`: this endpoint answers instead of a model, and the agent is not trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "agent", example = "\"expert\"")]
    pub endpoint: Option<String>,
    /// Name of a copy of the model's weights; agents with the same name share the copy; the default is the name of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"tiny\"")]
    pub worker_group: Option<String>,
    /// Name of an adapter (not its directory); agents with the same name share the adapter; if the model has `lora`, the default is the name of the worker group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"tiny\"")]
    pub adapter: Option<String>,
    /// Keys of `lora`; all agents of the policy must have the same values.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table, example = "{ rank = 4 }")]
    pub lora: Option<LoraConfig>,
    /// Do not train on this agent's turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "agent", example = "false")]
    pub frozen: Option<bool>,
    /// Keys of `optim`; all agents of the policy must have the same values.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table, example = "{ lr = 1e-5 }")]
    pub optim: Option<OptimConfig>,
    /// Name of the critic of this agent's policy; policies with the same name here share one critic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"judge\"")]
    pub critic: Option<String>,
    /// Name of a table in `[teachers]`; or `{ SOURCE = "NAME", default = "NAME" }`, with such a name for each source of tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "agent", example = "\"big\"")]
    pub teacher: Option<TeacherChoice>,
    /// Keys of `[sampling]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table, level = "agent", example = "{ temperature = 0.8 }")]
    pub sampling: Option<SamplingConfig>,
    /// Keys of `[algorithm.loss]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table, level = "agent", example = "{ kl_coef = 0.01 }")]
    pub loss: Option<LossConfig>,
    /// Fields of the agent's Rust type.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[setting(table, level = "agent", example = "{ style = \"short\" }")]
    pub options: Map<String, Value>,
    /// Overrides for single seats, by number from 0.
    #[schemars(with = "BTreeMap<String, AgentConfig>")]
    #[serde(with = "seats", skip_serializing_if = "BTreeMap::is_empty")]
    #[setting(table, level = "agent")]
    pub seats: BTreeMap<u32, AgentConfig>,
}

impl AgentConfig {
    /// A seat's table on top of its agent's. A seat with an endpoint inherits nothing that is about a policy, and a seat with a
    /// model no endpoint.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let base = &self.inherits(base);
        let mut options = base.options.clone();
        options.extend(self.options.clone());
        Self {
            model: self.model.clone().or_else(|| base.model.clone()),
            endpoint: self.endpoint.clone().or_else(|| base.endpoint.clone()),
            worker_group: self.worker_group.clone().or_else(|| base.worker_group.clone()),
            adapter: self.adapter.clone().or_else(|| base.adapter.clone()),
            lora: either(&self.lora, &base.lora, LoraConfig::over),
            frozen: self.frozen.or(base.frozen),
            optim: either(&self.optim, &base.optim, OptimConfig::over),
            critic: self.critic.clone().or_else(|| base.critic.clone()),
            teacher: self.teacher.clone().or_else(|| base.teacher.clone()),
            sampling: either(&self.sampling, &base.sampling, SamplingConfig::over),
            loss: either(&self.loss, &base.loss, LossConfig::over),
            options,
            seats: BTreeMap::new(),
        }
    }

    /// The part of an agent's table that holds for a seat with this one.
    fn inherits(&self, base: &Self) -> Self {
        let base = Self { seats: BTreeMap::new(), ..base.clone() };
        match (&self.endpoint, &self.model) {
            (Some(_), _) => {
                let Self { sampling, options, .. } = base;
                Self { sampling, options, ..Self::default() }
            }
            (None, Some(_)) => Self { endpoint: None, ..base },
            (None, None) => base,
        }
    }
}

fn either<T: Clone>(ours: &Option<T>, base: &Option<T>, over: fn(&T, &T) -> T) -> Option<T> {
    match (ours, base) {
        (Some(ours), Some(base)) => Some(over(ours, base)),
        (ours, base) => ours.clone().or_else(|| base.clone()),
    }
}

/// TOML keys are text, seats are numbers.
mod seats {
    use std::collections::BTreeMap;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::AgentConfig;
    use crate::IntoMap;

    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    struct Number(u32);

    impl<'de> Deserialize<'de> for Number {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            let number = text.parse().map_err(|_| {
                D::Error::custom(format!(
                    "seat `{text}` is not a number; seats are numbered from 0"
                ))
            })?;
            Ok(Self(number))
        }
    }

    pub(super) fn serialize<S: Serializer>(
        seats: &BTreeMap<u32, AgentConfig>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(seats.iter().map(|(number, seat)| (number.to_string(), seat)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<u32, AgentConfig>, D::Error> {
        let seats = BTreeMap::<Number, AgentConfig>::deserialize(deserializer)?;
        Ok(seats.into_iter().map(|(number, seat)| (number.0, seat)).into_map())
    }
}
