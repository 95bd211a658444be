//! Validation of a configuration: finds all errors at once, each with its position and a remedy.
//!
//! ```text
//! config::source ─► Written ─┐
//!                            ├─► choice, files ─► Resolved ─► team ─► machine ─► Plan, or every Diagnostic
//! Registry ──────────────────┘
//! ```
//!
//! Each room uses those before it: `files` opens what the configuration names, `choice` selects among the declarations of
//! the linked crates, `resolve` writes out every default, `team` assigns policies to seats and compares settings with each
//! other, and `machine` compares the plan with the devices, memory and servers. Later code does not validate again. Of models,
//! only configurations, tokenizers, templates and the headers of weights are read.

mod choice;
mod files;
mod machine;
mod purpose;
mod resolve;
mod schema;
mod survey;
mod team;
#[cfg(test)]
mod tests;

pub use machine::available_memory;
pub(crate) use machine::missing_part;
pub use purpose::Purpose;
pub use schema::schema;
pub use survey::{Questions, Survey, survey};

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::source::{Diagnostic, Problems, Sources, Written, read_layers};
use crate::config::{Config, Resolved};
use crate::plan::{AlgorithmPlan, Chosen, Plan, PlannedTasks, RewardPlan};
use crate::registry::Registry;

use choice::ChosenOrchestra;
use files::{LoadedTasks, Models};
use purpose::samples_replies;
use resolve::{Environments, ResolvedChoices};
use team::Assignment;

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
    let layers = read_layers(sources)?;
    let mut problems = Problems::new(&layers);
    let written = Written::read(&schema::declared_kinds(registry), &mut problems);
    files::check_step(&written, &mut problems);
    machine::check_rollout_servers(&written, &mut problems);
    let base = sources.base(written.base.as_deref());
    let config = files::pin_data(&written, &mut problems);
    machine::check_shard(&config, purpose, &mut problems);
    let context = CheckContext { config: &config, base: &base, registry, purpose };
    let plan = if purpose == Purpose::Environment {
        environment_plan(&context, &mut problems)
    } else {
        team_plan(&context, &mut problems)
    };
    problems.finish(plan)
}

/// What is checked, and for what.
struct CheckContext<'c> {
    config: &'c Config,
    /// Relative paths are relative to this directory.
    base: &'c Path,
    registry: &'c Registry,
    purpose: Purpose,
}

/// Returns the plan of a team.
fn team_plan(context: &CheckContext<'_>, problems: &mut Problems<'_>) -> Option<Plan> {
    let CheckContext { config, base, registry, purpose } = *context;
    let loaded = files::load_tasks(config, base, purpose, problems);
    let environments = choice::choose_environments(config, registry, problems);
    let flow = choice::choose_orchestra(&config.orchestra, base, registry, problems);
    let seen = files::seen_questions(config, base, problems);
    check_reward_sources(config, base, problems);
    let rewards =
        team::reward_parts(config, (&seen, loaded.tasks()), flow.as_ref(), registry, problems);
    let components = environments.as_deref().unwrap_or_default();
    let data = (config, &loaded);
    let mut warnings =
        choice::check_actions(components, flow.as_ref(), data, base, registry, problems);
    warnings.extend(team::task_doubts(config, components, loaded.tasks(), registry));
    let models = files::open_models(config, base, purpose, &mut warnings, problems);
    let others = choice::other_environments(config, flow.as_ref()?, base, registry, problems);
    let ChosenOrchestra { chosen: orchestra, members: seated, acts, passes_on, .. } = flow?;
    let agents = seated.iter().filter_map(|seat| registry.agents.get(seat.agent.as_str()));
    let inputs = agents.flat_map(|entry| entry.inputs).copied().chain(passes_on);
    warnings.extend(team::unread_messages(loaded.tasks(), &inputs.collect::<Vec<&str>>()));
    let members = choice::seat_members(config, &orchestra.name, &seated, registry, problems);
    machine::check_endpoints(config, base, problems);
    let (members, endpoints) = team::take_endpoints(config, members?, problems);
    let algorithm = choice::declared_algorithm(&config.algorithm, registry, problems);
    let precisions = team::model_precisions(config, &members, problems);
    team::check_teacher_tables(config, problems);
    let on = (&models, &precisions);
    let assignment = team::assign_policies((config, &algorithm), &members, on, purpose, problems)?;
    let assigned = Assigned { assignment, algorithm: &algorithm, models: &models, acts };
    warnings.extend(check_assigned(context, &assigned, (&loaded, &rewards), problems));
    let Assignment { seats, policies, workers, teachers } = assigned.with_critics(purpose);
    let environments = choice::split_components(environments?);
    let choices = ResolvedChoices {
        environments: &environments,
        orchestra: &orchestra,
        others: &others,
        algorithm: &algorithm,
        members: &members,
        models: &models,
        precisions: &precisions,
    };
    let resolved = resolve::resolve_team(config, &choices);
    let plan = Plan {
        orchestra,
        seats,
        endpoints,
        policies,
        workers,
        teachers,
        environments: others,
        algorithm,
        rewards,
        tasks: loaded.planned_tasks(config),
        warnings,
        ..without_team(resolved, base, environments)
    };
    Some(machine::check_machine(&plan, purpose, problems).added_to(plan))
}

/// Reports problems of the files and servers that parts of the reward come from.
fn check_reward_sources(config: &Config, base: &Path, problems: &mut Problems<'_>) {
    files::check_python_rewards(config, base, problems);
    files::check_judges(config, base, problems);
    machine::check_reward_servers(config, problems);
}

/// Policies on their models, and the algorithm that trains them.
struct Assigned<'a> {
    assignment: Assignment,
    algorithm: &'a AlgorithmPlan,
    models: &'a Models,
    /// True if the orchestra may act in an environment.
    acts: bool,
}

impl Assigned<'_> {
    /// Returns the assignment with the critics of policies. Evaluations have none.
    fn with_critics(self, purpose: Purpose) -> Assignment {
        let Assignment { policies, workers, .. } = self.assignment;
        if matches!(purpose, Purpose::Eval | Purpose::Replay) {
            return Assignment { policies, workers, ..self.assignment };
        }
        let policies = team::with_critics(policies, self.algorithm, &workers, self.models);
        Assignment { policies, workers, ..self.assignment }
    }
}

/// Reports prompts that do not fit, and what cannot be trained. Returns warnings.
fn check_assigned(
    context: &CheckContext<'_>,
    assigned: &Assigned<'_>,
    (loaded, rewards): (&LoadedTasks, &[RewardPlan]),
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let CheckContext { config, base, purpose, registry } = *context;
    let Assigned { assignment, algorithm, models, acts } = assigned;
    team::check_f16(config, &assignment.workers, models, problems);
    team::check_blocks((config, *algorithm), assignment, models, purpose, problems);
    if samples_replies(config, purpose) {
        team::check_prompts(assignment, models, loaded.tasks(), problems);
    }
    if matches!(purpose, Purpose::Eval | Purpose::Replay) {
        return Vec::new();
    }
    let Assignment { seats, policies, workers, teachers } = assignment;
    let used = (policies.as_slice(), workers.as_slice());
    let mut warnings = team::check_rows(config, loaded, used, models, problems);
    let on = (assignment, *models);
    warnings.extend(team::check_teachers(config, algorithm, on, loaded.tasks(), problems));
    team::check_algorithm(config, algorithm, seats, problems);
    team::check_staleness(config, registry, algorithm, used, problems);
    let compared = (seats.as_slice(), rewards, teachers.as_slice());
    team::check_branches(config, registry, algorithm, compared, problems);
    team::check_critics(algorithm, policies, workers, models, problems);
    team::check_optimizers(config, algorithm, used, problems);
    warnings.extend(team::check_estimator(config, algorithm, (rewards, seats), problems));
    team::check_trainable(config, seats, problems);
    warnings.extend(files::data_warnings(config, base));
    warnings.extend(team::unused_balance(algorithm, models));
    warnings.extend(team::unobserved(*acts, algorithm, seats));
    team::check_router_replay(config, models, problems);
    warnings.extend(team::training_warnings(config, algorithm, (policies, seats, loaded.rows)));
    warnings
}

/// Returns the plan of an environment without a team.
fn environment_plan(context: &CheckContext<'_>, problems: &mut Problems<'_>) -> Option<Plan> {
    let CheckContext { config, base, registry, purpose } = *context;
    let loaded = files::load_tasks(config, base, purpose, problems);
    let environments = choice::choose_environments(config, registry, problems)?;
    let data = (config, &loaded);
    let warnings = choice::check_actions(&environments, None, data, base, registry, problems);
    let chosen = choice::split_components(environments);
    let resolved = resolve::resolve_environment(config, &chosen);
    Some(Plan { warnings, ..without_team(resolved, base, chosen) })
}

/// Returns a plan without seats, policies and rewards.
fn without_team(config: Resolved, base: &Path, (environment, mixture): Environments) -> Plan {
    Plan {
        base: base.to_path_buf(),
        environment,
        mixture,
        orchestra: Chosen { name: String::new(), options: serde_json::Value::Null },
        seats: Vec::new(),
        endpoints: Vec::new(),
        policies: Vec::new(),
        workers: Vec::new(),
        teachers: Vec::new(),
        environments: BTreeMap::new(),
        algorithm: AlgorithmPlan::from(&config.algorithm),
        rewards: Vec::new(),
        device_memory: Vec::new(),
        checkpoints: None,
        tasks: PlannedTasks::default(),
        warnings: Vec::new(),
        config,
    }
}
