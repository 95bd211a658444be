//! From a configuration as it is written to one with every default written out.

use std::collections::BTreeMap;

use super::models::Models;
use super::{adapter, choice, models, team};
use crate::IntoMap;
use crate::config::{
    AgentConfig, AlgorithmConfig, Config, Dtype, ModelConfig, OptimConfig, Resolved,
    SamplingConfig, TaskConfig,
};
use crate::plan::{Chosen, OptimOptions, Plan, Sampling};

/// Fills in what holds where nothing is written: the model, and the coefficients of the loss that the preset sets, so that
/// agents inherit them.
pub(super) fn with_defaults(written: Config) -> Config {
    let parts = written.algorithm.name.parts();
    let loss = written.algorithm.loss.over(&parts.loss);
    let models = if written.models.is_empty() {
        BTreeMap::from([("tiny".to_owned(), ModelConfig::default())])
    } else {
        written.models
    };
    let algorithm = AlgorithmConfig { loss, ..written.algorithm };
    Config { models, algorithm, ..written }
}

/// The environment of a run, and those of its components.
pub(super) type Environments = (Chosen, BTreeMap<String, Chosen>);

/// Returns the configuration of a plan with every default.
pub(super) fn resolved(
    plan: &Plan,
    opened: &Models,
    precisions: &BTreeMap<String, Dtype>,
) -> Resolved {
    let written: &Config = &plan.config;
    let mut models = BTreeMap::new();
    for (name, model) in &written.models {
        let resolved = ModelConfig {
            path: models::pinned(&model.path, opened.get(name)),
            dtype: precisions[name],
            optim: OptimConfig::from(&OptimOptions::from(&model.optim)),
            lora: adapter::of_model(model),
            ..model.clone()
        };
        models.insert(name.clone(), resolved);
    }
    let agents = team::written(written, &plan.seats).into_iter().map(|(name, agent)| {
        let lora = adapter::of_agent(&agent, &models);
        (name, AgentConfig { lora, ..agent })
    });
    let beside = |(name, its): (&String, &Chosen)| (name.clone(), choice::written(its));
    Resolved::new(Config {
        orchestra: choice::written(&plan.orchestra),
        environments: plan.environments.iter().map(beside).into_map(),
        sampling: SamplingConfig::from(&Sampling::from(&written.sampling)),
        algorithm: AlgorithmConfig::from(&plan.algorithm),
        agents: agents.into_map(),
        models,
        ..written.clone()
    })
}

/// Returns the configuration with the environments and their options.
pub(super) fn with_environments(written: &Config, (one, components): &Environments) -> Resolved {
    if components.is_empty() {
        let environment = choice::written(one);
        return Resolved::new(Config { environment, ..written.clone() });
    }
    let mut mixture = written.task.mixture.clone();
    for (name, component) in &mut mixture {
        if let Some(chosen) = components.get(name) {
            component.environment = choice::written(chosen);
        }
    }
    let task = TaskConfig { mixture, ..written.task.clone() };
    Resolved::new(Config { task, ..written.clone() })
}
