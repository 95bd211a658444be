//! Validation of user input: finds all errors of a configuration at once, each with its place and a remedy.
//!
//! ```text
//! file < MAVERL_* < --set ──► Sources ──► Config, as written ─┐
//!                                                             ├─► Resolved ─► Plan, or every Diagnostic
//! #[agent] #[orchestra] ────────────────► Registry ───────────┘
//! ```
//!
//! Later code does not validate again. This module reads small files and headers only: configurations, tokenizers and
//! templates of models, the headers of their weights, tasks and corpora; no weights.

mod adapter;
mod algorithm;
pub mod alias;
mod choice;
mod counts;
mod credit;
mod critic;
mod data;
mod device;
mod diagnostic;
mod doubts;
mod endpoint;
mod excerpt;
mod file;
mod idle;
mod load;
mod look;
mod machine;
mod memory;
pub mod missing;
mod models;
mod nested;
mod overlong;
mod policy;
mod prompts;
mod render;
mod resolve;
mod rewards;
mod rollout_servers;
mod schema;
mod secrets;
mod sources;
mod syntax;
mod tagged;
mod team;
#[cfg(test)]
mod tests;
mod unlinked;
mod values;
mod worker;
mod wrong;

pub use diagnostic::Diagnostic;
pub use diagnostic::did_you_mean;
pub use file::file_text;
pub use load::{type_of, type_of_option};
pub use prompts::{Questions, Survey, survey};
pub use render::{render, render_within};
pub use schema::schema;
pub use sources::{File, Sources};
pub use unlinked::lacking;

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::Config;
use crate::plan::{AlgorithmPlan, Chosen, Plan, PolicyPlan, SeatPlan};
use crate::registry::Registry;

use diagnostic::Problems;
use sources::Layers;

/// Purpose of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Training: a policy must be trained, with settings that allow it.
    Train,
    /// Training at another time or on another machine: as `Train`, but models may lack their weights. A plan with such
    /// a model may need more memory than this machine has.
    Plan,
    /// Evaluation on held-out tasks.
    Eval,
    /// The environment with its tasks, without a team. The plan has no seats, policies and rewards.
    Environment,
}

/// Resolves the sources into a plan for the declared team.
///
/// # Errors
///
/// All problems, in the order of the sources.
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
    let written = load::config(&mut problems);
    secrets::check(&mut problems);
    let written = tagged::checked(written, registry, &mut problems);
    values::check(&written, &mut problems);
    counts::check(&written, &mut problems);
    rollout_servers::check(&written, &mut problems);
    let written = resolve::with_defaults(written);
    let base = sources.base(written.base.as_deref());
    if purpose == Purpose::Environment {
        let plan = environment_plan(&written, &base, registry, &mut problems);
        return problems.finish(plan);
    }
    let mut plan = plan(&written, &base, registry, purpose, &mut problems);
    if let Some(plan) = &mut plan {
        rollout_servers::policies(plan, &mut problems);
        device::check(plan, &mut problems);
        device::plan_memory(plan, &mut problems);
        let warning = memory::check(plan, purpose, machine::memory(), &mut problems);
        plan.warnings.extend(warning);
    }
    problems.finish(plan)
}

/// Reads and validates the values of the sources alone, without a team.
///
/// # Errors
///
/// All problems, in the order of the sources.
pub(crate) fn settings(sources: &Sources) -> Result<Config, Vec<Diagnostic>> {
    let (layers, unreadable) = Layers::read(sources);
    let mut problems = Problems::new(&layers);
    if !unreadable.is_empty() {
        unreadable.into_iter().for_each(|problem| problems.unreadable(problem));
        return problems.finish(None);
    }
    let config = load::config(&mut problems);
    values::check(&config, &mut problems);
    problems.finish(Some(config))
}

fn plan(
    config: &Config,
    base: &Path,
    registry: &Registry,
    purpose: Purpose,
    problems: &mut Problems<'_>,
) -> Option<Plan> {
    let loaded = data::tasks(config, base, purpose, problems);
    let environments = choice::environments(config, registry, problems);
    let flow = choice::orchestra(&config.orchestra, base, registry, problems);
    let rewards = rewards::check(config, (base, &loaded), flow.as_ref(), registry, problems);
    let (components, data) = (environments.as_deref().unwrap_or_default(), (config, &loaded));
    let mut warnings = choice::meet(components, flow.as_ref(), data, base, registry, problems);
    warnings.extend(data::doubts(&choice::named(config, components), &loaded.tasks));
    let models = models::open(config, base, purpose, &mut warnings, problems);
    let beside = choice::beside(config, flow.as_ref()?, base, registry, problems);
    let choice::Orchestra { chosen: orchestra, members, passes_on, .. } = flow?;
    let agents = members.iter().filter_map(|seat| registry.agents.get(seat.agent.as_str()));
    let inputs = agents.flat_map(|entry| entry.inputs).copied().chain(passes_on);
    warnings.extend(data::unseen(&loaded.tasks, &inputs.collect::<Vec<&str>>()));
    let seats = team::seats(config, &orchestra.name, &members, registry, problems);
    endpoint::check(config, base, problems);
    let (members, endpoints) = endpoint::take(config, seats?, problems);
    let precisions = device::precisions(config, &members, problems);
    let on = (&models, &precisions);
    let (mut seats, mut policies, workers) =
        policy::assign(config, &members, on, purpose, problems)?;
    if policy::samples(config, purpose) {
        prompts::fit(&seats, (&policies, &workers), &models, &loaded.tasks, problems);
    }
    if purpose != Purpose::Eval {
        let used = (policies.as_slice(), workers.as_slice());
        warnings.extend(overlong::check(config, &loaded, used, &models, problems));
    }
    let mut algorithm = AlgorithmPlan::from(&config.algorithm);
    credit::settle(config, registry, (&mut algorithm, &mut seats), problems);
    if purpose != Purpose::Eval {
        algorithm::check(config, &algorithm, &seats, problems);
        critic::check(&algorithm, &mut policies, &workers, &models, problems);
        warnings.extend(credit::check(config, &algorithm, (&rewards, &seats), problems));
        policy::trainable(config, &seats, problems);
        warnings.extend(data::warnings(config, base));
        warnings.extend(training_warnings(config, &algorithm, (&policies, &seats, loaded.rows)));
    }
    let environments = choice::by_component(environments?);
    let plan = Plan {
        orchestra,
        seats,
        endpoints,
        policies,
        workers,
        environments: beside,
        algorithm,
        rewards,
        warnings,
        ..without_team(config, base, environments)
    };
    Some(Plan { config: resolve::resolved(&plan, &models, &precisions), ..plan })
}

/// Returns the plan of an environment without a team.
fn environment_plan(
    config: &Config,
    base: &Path,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Option<Plan> {
    let loaded = data::tasks(config, base, Purpose::Environment, problems);
    let environments = choice::environments(config, registry, problems)?;
    let warnings = choice::meet(&environments, None, (config, &loaded), base, registry, problems);
    let chosen = choice::by_component(environments);
    Some(Plan { warnings, ..without_team(config, base, chosen) })
}

/// Returns a plan without seats, policies and rewards.
fn without_team(config: &Config, base: &Path, environments: resolve::Environments) -> Plan {
    let config = resolve::with_environments(config, &environments);
    let (environment, mixture) = environments;
    Plan {
        base: base.to_path_buf(),
        environment,
        mixture,
        orchestra: Chosen { name: String::new(), options: serde_json::Value::Null },
        seats: Vec::new(),
        endpoints: Vec::new(),
        policies: Vec::new(),
        workers: Vec::new(),
        environments: BTreeMap::new(),
        algorithm: AlgorithmPlan::from(&config.algorithm),
        rewards: Vec::new(),
        device_memory: Vec::new(),
        warnings: Vec::new(),
        config,
    }
}

fn training_warnings(
    config: &Config,
    algorithm: &AlgorithmPlan,
    (policies, seats, rows): (&[PolicyPlan], &[SeatPlan], usize),
) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.steps == 0 {
        warnings.push("`steps` is 0: nothing is trained, the team is only evaluated".to_owned());
    }
    let alone = config.task.group_size.get() == 1 && algorithm.advantage.compares_group();
    if !config.algorithm.name.is_supervised() && alone {
        warnings.push(
            "`task.group_size` is 1: an episode has no other to be compared with, so most advantages are 0".to_owned(),
        );
    }
    for (name, model) in &config.models {
        if let Some(warmup) = model.optim.warmup_steps.filter(|&warmup| warmup > config.steps) {
            warnings.push(format!(
                "`models.{name}.optim.warmup_steps` is {warmup}, more than `steps`, which is {}",
                config.steps
            ));
        }
    }
    let drops =
        |policy: &&PolicyPlan| policy.adapter.as_ref().is_some_and(|a| a.lora.dropout > 0.0);
    for policy in policies.iter().filter(|policy| policy.trained).filter(drops) {
        if !config.algorithm.name.is_supervised() {
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
    warnings.extend(doubts::warnings(config, algorithm, policies, seats, rows));
    warnings
}
