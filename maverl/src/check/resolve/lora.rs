//! Settings of adapters, with what they inherit.

use std::collections::BTreeMap;

use crate::check::choice::ConfiguredSeat;
use crate::config::source::{key, path};
use crate::config::{AgentConfig, Config, LoraConfig, LoraSpec, ModelConfig};

/// Returns the adapter settings of a member, everything inherited; `None` if it has no adapter.
pub(crate) fn member_lora(
    config: &Config,
    member: &ConfiguredSeat,
    model: &str,
) -> Option<LoraConfig> {
    let model = &config.models[model];
    let own = &member.config;
    let wanted = own.adapter.is_some() || own.lora.is_some();
    let inherited = model.adapter.is_some() || model.lora.is_some();
    let [own, model] = [&own.lora, &model.lora].map(|lora| lora.clone().unwrap_or_default());
    (wanted || inherited).then(|| own.over(&model))
}

/// Returns the keys of an adapter with their defaults.
pub(crate) fn default_lora() -> LoraConfig {
    LoraConfig::from(&LoraSpec::default())
}

/// Returns help on giving an agent its own policy.
pub(crate) fn apart_help(config: &Config, model: &str, member: &ConfiguredSeat) -> String {
    let seat = &member.seat;
    let table = key(&path(["agents", &seat.agent]));
    let name = seat.agent.rsplit('/').next().unwrap_or_default();
    match member_lora(config, member, model) {
        Some(_) => format!(
            "give `{seat}` its own adapter with `adapter = \"{name}\"`, or its own copy of the base with \
             `worker_group = \"{name}\"`, in `[{table}]`"
        ),
        None => format!(
            "give `{seat}` its own copy with `worker_group = \"{name}\"` in `[{table}]`, or, with `lora` in `[{}]`, its own \
             adapter with `adapter = \"{name}\"`",
            key(&path(["models", model]))
        ),
    }
}

/// Returns the shape of a model's adapters, without what the directory that they start from decides; `None` if it has none.
pub(crate) fn model_lora(model: &ModelConfig) -> Option<LoraConfig> {
    let defaults = default_lora();
    let dropout = LoraConfig { dropout: defaults.dropout, ..Default::default() };
    let base = if model.adapter.is_some() { &dropout } else { &defaults };
    let given = model.adapter.is_some() || model.lora.is_some();
    given.then(|| model.lora.clone().unwrap_or_default().over(base))
}

/// Returns the shape of an agent's adapter; with all its keys if it inherits none from its model.
pub(crate) fn agent_lora(
    agent: &AgentConfig,
    models: &BTreeMap<String, ModelConfig>,
) -> Option<LoraConfig> {
    let model = agent.model.as_ref().and_then(|name| models.get(name));
    let inherits = model.is_some_and(|model| model.lora.is_some());
    let own = agent.adapter.is_some() || agent.lora.is_some();
    if inherits || !own || !agent.seats.is_empty() {
        return agent.lora.clone();
    }
    Some(agent.lora.clone().unwrap_or_default().over(&default_lora()))
}
