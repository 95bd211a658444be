//! From a configuration as it is written to one with every default written out.

use std::collections::BTreeMap;

use super::models::Models;
use super::{adapter, choice, models, team};
use crate::IntoMap;
use crate::config::{
    AgentConfig, AlgorithmConfig, ComponentConfig, Config, Dtype, ModelConfig, OptimConfig,
    Resolved, SamplingConfig, TaskConfig,
};
use crate::plan::{AlgorithmPlan, Chosen, OptimOptions, Sampling, SeatPlan};

/// Fills in what holds where nothing is written: the model, and the coefficients of the loss that the preset sets, so that
/// agents inherit them.
pub(super) fn with_defaults(written: Config) -> Config {
    let parts = written.algorithm.name.parts();
    let loss = written.algorithm.loss.over(&parts.loss);
    let models = match written.models.is_empty() {
        true => BTreeMap::from([("tiny".to_owned(), ModelConfig::default())]),
        false => written.models,
    };
    let algorithm = AlgorithmConfig { loss, ..written.algorithm };
    Config { models, algorithm, ..written }
}

/// The environment of a run, and those of its components.
pub(super) type Environments = (Chosen, BTreeMap<String, Chosen>);

/// Choices that a plan has made for what the configuration omits.
pub(super) struct Choices<'p> {
    pub(super) environments: &'p Environments,
    pub(super) orchestra: &'p Chosen,
    /// Environments that the orchestra acts in beside its component.
    pub(super) beside: &'p BTreeMap<String, Chosen>,
    pub(super) algorithm: &'p AlgorithmPlan,
    pub(super) models: &'p Models,
    pub(super) precisions: &'p BTreeMap<String, Dtype>,
    pub(super) seats: &'p [SeatPlan],
}

impl Choices<'_> {
    /// Returns the configuration with every default.
    pub(super) fn resolved(&self, written: &Config) -> Resolved {
        let models: BTreeMap<String, ModelConfig> = written
            .models
            .iter()
            .map(|(name, model)| (name.clone(), self.model(name, model)))
            .into_map();
        let agents = team::written(written, self.seats).into_iter().map(|(name, agent)| {
            let lora = adapter::of_agent(&agent, &models);
            (name, AgentConfig { lora, ..agent })
        });
        let beside = |(name, its): (&String, &Chosen)| (name.clone(), choice::written(its));
        Resolved::new(Config {
            orchestra: choice::written(self.orchestra),
            environments: self.beside.iter().map(beside).into_map(),
            sampling: SamplingConfig::from(&Sampling::from(&written.sampling)),
            algorithm: AlgorithmConfig::from(self.algorithm),
            agents: agents.into_map(),
            models,
            ..with_environments(written, self.environments)
        })
    }

    fn model(&self, name: &str, model: &ModelConfig) -> ModelConfig {
        ModelConfig {
            path: models::pinned(&model.path, self.models.get(name)),
            dtype: self.precisions[name],
            optim: OptimConfig::from(&OptimOptions::from(&model.optim)),
            lora: adapter::of_model(model),
            ..model.clone()
        }
    }
}

/// Returns the configuration of an environment without a team.
pub(super) fn alone(written: &Config, environments: &Environments) -> Resolved {
    Resolved::new(with_environments(written, environments))
}

/// Returns the configuration with the environments and their options.
fn with_environments(written: &Config, (one, components): &Environments) -> Config {
    if components.is_empty() {
        return Config { environment: choice::written(one), ..written.clone() };
    }
    let component = |(name, component): (&String, &ComponentConfig)| {
        let environment = components.get(name).map(choice::written);
        let environment = environment.unwrap_or_else(|| component.environment.clone());
        (name.clone(), ComponentConfig { environment, ..component.clone() })
    };
    let mixture = written.task.mixture.iter().map(component).into_map();
    Config { task: TaskConfig { mixture, ..written.task.clone() }, ..written.clone() }
}
