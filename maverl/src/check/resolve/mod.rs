//! The configuration that a written one means: with every default, and the names and files that were chosen.

mod lora;

use std::collections::BTreeMap;

use super::choice::{ConfiguredSeat, as_written, without_nulls};
use super::files::{Models, OpenedModel};
use crate::IntoMap;
use crate::config::{
    AgentConfig, AlgorithmConfig, Config, Dtype, LossScaleConfig, LossScaleOptions, ModelConfig,
    OptimConfig, Resolved, SamplingConfig, TaskConfig,
};
use crate::plan::{AlgorithmPlan, Chosen, ModelSource, OptimOptions, Sampling};

pub(super) use lora::{apart_help, default_lora, member_lora};

/// The environment of a run, and those of its components.
pub(super) type Environments = (Chosen, BTreeMap<String, Chosen>);

/// What was chosen for a team.
pub(super) struct ResolvedChoices<'c> {
    pub(super) environments: &'c Environments,
    pub(super) orchestra: &'c Chosen,
    /// Environments that the orchestra acts in besides its component.
    pub(super) others: &'c BTreeMap<String, Chosen>,
    pub(super) algorithm: &'c AlgorithmPlan,
    /// Seats that a policy replies for.
    pub(super) members: &'c [ConfiguredSeat],
    pub(super) models: &'c Models,
    pub(super) precisions: &'c BTreeMap<String, Dtype>,
}

/// Returns the configuration of a team with every default.
pub(super) fn resolve_team(written: &Config, choices: &ResolvedChoices<'_>) -> Resolved {
    let mut models = BTreeMap::new();
    for (name, model) in &written.models {
        let resolved = ModelConfig {
            path: pinned_path(&model.path, choices.models.get(name)),
            dtype: choices.precisions[name],
            loss_scale: resolved_scale(model, choices.precisions[name]),
            optim: OptimConfig::from(&OptimOptions::from(&model.optim)),
            lora: lora::model_lora(model),
            ..model.clone()
        };
        models.insert(name.clone(), resolved);
    }
    let agents = with_members(written, choices.members).into_iter().map(|(name, agent)| {
        let lora = lora::agent_lora(&agent, &models);
        (name, AgentConfig { lora, ..agent })
    });
    let others = choices.others.iter().map(|(name, its)| (name.clone(), as_written(its)));
    let config = with_environments(written, choices.environments);
    let algorithm = AlgorithmConfig::from(choices.algorithm);
    let algorithm = AlgorithmConfig { loss: algorithm.loss.with_one_bound(), ..algorithm };
    Resolved::new(Config {
        orchestra: as_written(choices.orchestra),
        environments: others.into_map(),
        sampling: SamplingConfig::from(&Sampling::from(&written.sampling)),
        algorithm,
        agents: agents.into_map(),
        models,
        ..config
    })
}

/// Returns the scale of the loss of a model with every default, if its products are in f16; else as it is written.
fn resolved_scale(model: &ModelConfig, dtype: Dtype) -> Option<LossScaleConfig> {
    let written = model.loss_scale.clone();
    match dtype {
        Dtype::F32 | Dtype::Bf16 | Dtype::File => written,
        Dtype::F16 => {
            let options = LossScaleOptions::from(&written.unwrap_or_default());
            Some(LossScaleConfig::from(&options))
        }
    }
}

/// Returns the configuration of an environment without a team.
pub(super) fn resolve_environment(written: &Config, environments: &Environments) -> Resolved {
    Resolved::new(with_environments(written, environments))
}

/// Returns the configuration with the environments and their options.
fn with_environments(written: &Config, (one, components): &Environments) -> Config {
    if components.is_empty() {
        return Config { environment: as_written(one), ..written.clone() };
    }
    let mut mixture = written.task.mixture.clone();
    for (name, component) in &mut mixture {
        if let Some(chosen) = components.get(name) {
            component.environment = as_written(chosen);
        }
    }
    let task = TaskConfig { mixture, ..written.task.clone() };
    Config { task, ..written.clone() }
}

/// Returns the tables of agents with the settings that the file omits.
fn with_members(config: &Config, members: &[ConfiguredSeat]) -> BTreeMap<String, AgentConfig> {
    let only = config.models.keys().next().filter(|_| config.models.len() == 1).cloned();
    let mut agents = config.agents.clone();
    for member in members {
        let agent = agents.entry(member.seat.agent.clone()).or_default();
        // An agent with an endpoint has models only in its seats' tables.
        if agent.endpoint.is_none() {
            agent.model = agent.model.take().or_else(|| only.clone());
        }
        if agent.seats.is_empty() {
            // A frozen model has its own key.
            let trained =
                model_of(config, member).is_some_and(|model| member.is_trained(config, model));
            agent.frozen = agent.frozen.or(trained.then_some(false));
            agent.worker_group = agent.worker_group.take().or_else(|| agent.model.clone());
            let options = member.options.as_object().cloned().unwrap_or_default();
            agent.options = without_nulls(options);
        }
    }
    agents
}

/// Returns the name of a member's model, if it has one.
fn model_of<'c>(config: &'c Config, member: &'c ConfiguredSeat) -> Option<&'c str> {
    let only = config.models.keys().next().filter(|_| config.models.len() == 1);
    let name = member.config.model.as_ref().or(only)?;
    config.models.contains_key(name).then_some(name.as_str())
}

/// Returns the path of a model: of one from the hub with its commit, so that a resumed run uses the same one.
fn pinned_path(path: &str, opened: Option<&OpenedModel>) -> String {
    match opened {
        Some(OpenedModel { source: source @ ModelSource::Hub(_), .. }) => source.to_string(),
        _ => path.to_owned(),
    }
}
