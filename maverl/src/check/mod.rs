//! The border: everything a user can get wrong is found here, all of it at once, with its place and what would do.
//!
//! ```text
//!  defaults < file < MAVERL_* < --set ──► Config ─┐
//!                                                 ├─► Plan, or every Diagnostic
//!  #[agent] #[orchestra] ───────────► Registry ───┘
//! ```
//!
//! Behind it nobody checks again. It reads the headers of model files, and loads nothing.

mod adapter;
mod choice;
mod diagnostic;
mod load;
mod policy;
mod sources;
mod team;
#[cfg(test)]
mod tests;
mod values;

pub use diagnostic::{Diagnostic, render};
#[cfg(test)]
pub(crate) use load::tables;
pub use sources::{File, Sources};

use std::path::Path;

use crate::config::{Config, LossConfig, ModelConfig, OptimConfig, Preset, SamplingConfig};
use crate::plan::{
    AlgorithmPlan, Chosen, LossPlan, OptimPlan, Plan, PolicyPlan, Sampling, SeatPlan,
};
use crate::registry::Registry;

use diagnostic::{Problems, path, suggestion};
use sources::Layers;

/// What a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Something must be trained, with settings that can be trained with.
    Train,
    /// Playing held-out tasks.
    Eval,
}

/// Worlds embedded in the library: names that `data = "builtin:NAME"` may have.
const BUILTIN_DATA: &[&str] = &["arithmetic", "facts"];

/// What the sources mean for the declared team.
///
/// # Errors
///
/// Everything that is wrong, in the order of the sources.
pub fn check(
    sources: &Sources,
    registry: &Registry,
    purpose: Purpose,
) -> Result<Plan, Vec<Diagnostic>> {
    let (layers, unreadable) = Layers::read(sources);
    let mut problems = Problems::new(&layers);
    if !unreadable.is_empty() {
        for problem in unreadable {
            problems.unreadable(problem);
        }
        return problems.finish(None);
    }
    let mut config = load::config(&mut problems);
    values::check(&config, &mut problems);
    if config.models.is_empty() {
        config.models.insert("tiny".to_owned(), ModelConfig::tiny());
    }
    let plan = plan(config, &sources.base(), registry, purpose, &mut problems);
    problems.finish(plan)
}

fn plan(
    mut config: Config,
    base: &Path,
    registry: &Registry,
    purpose: Purpose,
    problems: &mut Problems<'_>,
) -> Option<Plan> {
    data(&config, base, problems);
    let rewards = rewards(&config, registry, problems);
    let environment = choice::environment(&config, registry, problems);
    let orchestra = choice::orchestra(&config.orchestra, registry, problems);
    if let (Some(environment), Some(orchestra)) = (&environment, &orchestra) {
        choice::fit(environment, orchestra, registry, problems);
    }
    let models = policy::models(&config, base, problems);
    let (orchestra, members) = orchestra.map(|chosen| (chosen.chosen, chosen.members))?;
    let seats = team::seats(&config, &orchestra.name, &members, registry, problems);
    let (seats, policies, workers) = policy::assign(&config, &seats?, &models, problems)?;
    let algorithm = AlgorithmPlan::from(&config.algorithm);
    if purpose == Purpose::Train {
        policy::trainable(&config, &seats, problems);
    }
    let warnings = warnings(&config, &policies, purpose);
    let environment = environment?.chosen;
    policy::pin(&mut config, &models);
    write_out(&mut config, &environment, &orchestra, &seats);
    Some(Plan {
        base: base.to_path_buf(),
        seed: config.seed,
        steps: config.steps,
        task: config.task.clone(),
        environment,
        orchestra,
        rollout: config.rollout.clone(),
        seats,
        policies,
        workers,
        algorithm,
        rewards,
        eval: config.eval.clone(),
        checkpoint: config.checkpoint.clone(),
        runtime: config.runtime.clone(),
        warnings,
        config,
    })
}

/// Reports data that is not there.
fn data(config: &Config, base: &Path, problems: &mut Problems<'_>) {
    let given = [
        (path(["task", "data"]), Some(&config.task.data)),
        (path(["eval", "data"]), config.eval.data.as_ref()),
    ];
    for (at, data) in given {
        let Some(data) = data else { continue };
        if let Some(name) = data.strip_prefix("builtin:") {
            if !BUILTIN_DATA.contains(&name) {
                let message = format!("no built-in data is called {name:?}");
                problems.value(&at, message, suggestion(name, BUILTIN_DATA.iter().copied()));
            }
        } else if !base.join(data).is_file() {
            let message = format!("there is no file {}", base.join(data).display());
            let help =
                "a path is relative to the file that names it; `builtin:facts` needs no file";
            problems.value(&at, message, help.to_owned());
        }
    }
}

fn rewards(
    config: &Config,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Vec<(String, f64)> {
    for name in config.rewards.keys().filter(|name| !registry.rewards.contains_key(name.as_str())) {
        let message = format!("no reward function is called `{name}`");
        let help = suggestion(name, registry.rewards.keys().copied());
        problems.key(&path(["rewards", name]), message, help);
    }
    config.rewards.iter().map(|(name, reward)| (name.clone(), reward.weight)).collect()
}

fn warnings(config: &Config, policies: &[PolicyPlan], purpose: Purpose) -> Vec<String> {
    let mut warnings = Vec::new();
    if purpose == Purpose::Eval {
        return warnings;
    }
    if config.algorithm.name != Preset::Sft && config.task.group_size.get() == 1 {
        warnings.push(
            "`task.group_size` is 1: an episode has no other to be compared with, so most advantages are 0".to_owned(),
        );
    }
    for (name, model) in &config.models {
        if let Some(warmup) = model.optim.warmup_steps.filter(|&warmup| warmup > config.steps) {
            warnings.push(format!(
                "`models.{name}.optim.warmup_steps` is {warmup}, more than the {} steps of the run",
                config.steps
            ));
        }
    }
    let drops =
        |policy: &&PolicyPlan| policy.adapter.as_ref().is_some_and(|a| a.lora.dropout > 0.0);
    for policy in policies.iter().filter(|policy| policy.trained).filter(drops) {
        if config.algorithm.name != Preset::Sft {
            warnings.push(format!(
                "`lora.dropout` of policy `{}` is above 0: rollout drops nothing, so the ratio of an update does not begin \
                 at 1",
                policy.name
            ));
        }
    }
    for (name, agent) in &config.agents {
        let frozen = agent.frozen == Some(true);
        let keys = [("optim", agent.optim.is_some()), ("loss", agent.loss.is_some())];
        for (part, _) in keys.iter().filter(|(_, given)| frozen && *given) {
            warnings.push(format!("`agents.{name:?}.{part}` has no effect: the agent is frozen"));
        }
    }
    warnings
}

/// Writes every default out, so that the result loads to the same plan whatever the defaults become.
fn write_out(config: &mut Config, environment: &Chosen, orchestra: &Chosen, seats: &[SeatPlan]) {
    config.environment = choice::written(environment);
    config.orchestra = choice::written(orchestra);
    config.sampling = SamplingConfig::from(&Sampling::from(&config.sampling));
    config.algorithm.loss = LossConfig::from(&LossPlan::from(&config.algorithm.loss));
    let loss = LossPlan::from(&config.algorithm.loss);
    config.algorithm = AlgorithmPlan::from(&config.algorithm).written(&loss);
    for model in config.models.values_mut() {
        model.optim = OptimConfig::from(&OptimPlan::from(&model.optim));
    }
    team::write_out(config, seats);
    adapter::write_out(config);
}

impl ModelConfig {
    /// The shipped model.
    fn tiny() -> Self {
        Self {
            path: "builtin:tiny".to_owned(),
            optim: OptimConfig::default(),
            frozen: false,
            gradient_checkpointing: false,
            lora: None,
            adapter: None,
        }
    }
}
