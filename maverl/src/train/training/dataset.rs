//! The data of a run: that of its steps, and its held-out tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{EvalConfig, Preset, TaskConfig, TrainOn};
use crate::data::{self, Demonstration, PlacedTasks, PreferenceRow, Sampler, TaskChoice};
use crate::plan::{Chosen, Plan};
use crate::registry::Registry;
use crate::run_dir::FileHash;
use crate::run_dir::disk::hash_bytes;
use crate::runtime::Policy;
use crate::task::{Task, TaskList};
use crate::train::error::TrainError;
use crate::train::supervised::fitting::fitting;
use crate::train::supervised::verifier::VerifierData;

/// Purpose for which a team is started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Needs<'s> {
    /// Training, with these evaluations.
    Training(&'s EvalConfig),
    /// Evaluation of one held-out split.
    Split(&'s str),
    /// Training on given episodes.
    Nothing,
}

/// Data of the training steps.
pub(crate) enum Dataset {
    /// Tasks to run.
    Tasks(Arc<TaskList>),
    /// Replies to imitate.
    Demonstrations(Vec<Demonstration>),
    /// Pairs of replies, of which one is better, or replies that are good or bad.
    Preferences(Vec<PreferenceRow>),
    /// Replies with labels.
    Labeled(VerifierData),
}

impl Dataset {
    /// Reads the training data of a plan, if it is needed. Rows that are longer than the context of a trained policy are left
    /// out where `task.overlong` says so.
    pub(crate) fn read(
        plan: &Plan,
        needs: Needs<'_>,
        policies: &[Policy],
    ) -> Result<Self, TrainError> {
        if !matches!(needs, Needs::Training(_)) {
            return Ok(Self::Tasks(Arc::default()));
        }
        let file = data::data_place(&plan.config.task.data, &plan.base);
        let learn = plan.algorithm.train_on;
        Ok(match plan.algorithm.preset {
            Preset::Sft => {
                let rows = data::demonstrations(&file, &plan.config.task)?;
                Self::Demonstrations(fitting(plan, policies, rows, |row| row.row_texts(learn))?)
            }
            Preset::Spin => {
                let rows = data::self_play(&file, &plan.config.task)?;
                Self::Demonstrations(fitting(plan, policies, rows, |row| {
                    row.row_texts(TrainOn::Assistant)
                })?)
            }
            Preset::Verifier => Self::Labeled(VerifierData::read(plan, policies)?),
            Preset::Dpo => {
                let labels = plan.algorithm.preference.loss.labels_replies();
                let read = if labels { data::judged_replies } else { data::preferences };
                let rows = read(&file, &plan.config.task)?;
                Self::Preferences(fitting(plan, policies, rows, PreferenceRow::row_texts)?)
            }
            _ => {
                let split = &plan.config.task.split;
                let placed = data::placed(&plan.config.task, split, &plan.base)?;
                Self::Tasks(Arc::new(placed.tasks))
            }
        })
    }

    /// Returns the tasks, if the team runs tasks.
    pub(crate) fn tasks(&self) -> Option<&Arc<TaskList>> {
        match self {
            Self::Tasks(tasks) => Some(tasks),
            _ => None,
        }
    }

    /// Returns the order in which steps use the data.
    pub(crate) fn sampler(&self, plan: &Plan) -> Sampler {
        match self {
            Self::Tasks(tasks) => Sampler::new(&plan.config.task, plan.config.seed, tasks),
            Self::Demonstrations(rows) => {
                Sampler::plain(&plan.config.task, plan.config.seed, rows.len())
            }
            Self::Preferences(pairs) => {
                Sampler::plain(&plan.config.task, plan.config.seed, pairs.len())
            }
            Self::Labeled(data) => {
                Sampler::plain(&plan.config.task, plan.config.seed, data.units.len())
            }
        }
    }

    /// Returns the hash of the data, for the provenance of a run.
    pub(crate) fn hash(&self) -> String {
        match self {
            Self::Tasks(tasks) => hash(tasks.as_ref()),
            Self::Demonstrations(rows) => {
                let rows: Vec<_> = rows.iter().map(|row| (&row.chat, &row.marks)).collect();
                hash(&rows)
            }
            Self::Labeled(data) => data.hash(),
            Self::Preferences(pairs) => {
                let pairs = pairs.iter();
                let pairs =
                    pairs.map(|pair| serde_json::json!([pair.prompt, pair.chosen, pair.rejected]));
                hash(&pairs.collect::<Vec<_>>())
            }
        }
    }
}

/// Reads the tasks of the held-out splits that are needed. `warn` receives the environment's warnings about tasks that no check
/// has read: training is preceded by a check of the same tasks, the evaluation of a split is not.
pub(crate) fn held_out(
    plan: &Plan,
    registry: &Registry,
    needs: Needs<'_>,
    warn: impl Fn(&str),
) -> Result<BTreeMap<String, Vec<Task>>, TrainError> {
    let config = plan.config.eval.held_out(&plan.config.task);
    let (splits, mut held_out) = (needs.splits(), BTreeMap::new());
    if splits.is_empty() {
        return Ok(held_out);
    }
    let choices = splits.iter().map(|split| TaskChoice { split, limit: config.limit });
    let choices: Vec<TaskChoice<'_>> = choices.collect();
    for (split, placed) in splits.iter().zip(data::placed_choices(&config, &choices, &plan.base)?) {
        let placed = placed?;
        if matches!(needs, Needs::Split(_)) {
            validate(plan, registry, (&config, &placed))?.iter().for_each(|it| warn(it));
        }
        held_out.insert((*split).to_owned(), placed.tasks.iter().collect());
    }
    Ok(held_out)
}

/// Refuses tasks that the plan's orchestra cannot read, or that its environments cannot judge. Returns warnings about the
/// others.
fn validate(
    plan: &Plan,
    registry: &Registry,
    (config, placed): (&TaskConfig, &PlacedTasks),
) -> Result<Vec<String>, TrainError> {
    let orchestra = plan.orchestra.name.as_str();
    let read = (registry.orchestras[orchestra].read_tasks)(&placed.tasks);
    read.map_err(|error| TrainError::Tasks {
        reader: format!("orchestra `{orchestra}`"),
        problem: data::with_place(config, placed, &error.to_string()),
    })?;
    let components = plan.mixture.iter().map(|(name, chosen)| (Some(name.as_str()), chosen));
    let only = plan.mixture.is_empty().then_some((None, &plan.environment));
    let mut warnings = Vec::new();
    for (component, Chosen { name, options }) in only.into_iter().chain(components) {
        let own = component.map(|component| placed.tasks.of_component(component));
        let tasks = own.as_ref().unwrap_or(&placed.tasks);
        let found = (registry.environments[name.as_str()].look)(options, &plan.base, tasks);
        let found = found.map_err(|error| TrainError::Tasks {
            reader: format!("environment `{name}`"),
            problem: data::with_place(config, placed, &error.0),
        })?;
        let found = found.iter().map(|warning| data::with_place(config, placed, warning));
        warnings.extend(found.filter(|warning| !plan.warnings.contains(warning)));
    }
    Ok(warnings)
}

impl Needs<'_> {
    fn splits(&self) -> Vec<&str> {
        match self {
            Self::Split(split) => vec![split],
            Self::Nothing => Vec::new(),
            Self::Training(eval) => {
                let test = eval.before_and_after.then_some(eval.test_split.as_str());
                let validation = (eval.every > 0).then_some(eval.split.as_str());
                test.into_iter().chain(validation).collect()
            }
        }
    }
}

/// Returns the hash of each data file of a run, by the name that the configuration has for it.
pub(crate) fn files(plan: &Plan) -> Result<BTreeMap<String, String>, TrainError> {
    let eval = plan.config.eval.used(plan.algorithm.preset);
    // A verifier is evaluated without episodes.
    let used = eval.every > 0 || eval.before_and_after || plan.algorithm.preset == Preset::Verifier;
    let TaskConfig { split, .. } = &plan.config.task;
    let mut files = data::files(&plan.config.task, &[split], &plan.base)?;
    if used {
        let config = plan.config.eval.held_out(&plan.config.task);
        let needs = Needs::Training(&eval);
        files.extend(data::files(&config, &needs.splits(), &plan.base)?);
    }
    let mut hashes = BTreeMap::new();
    for (name, path) in files {
        hashes.insert(name, FileHash::read(&path)?.sha256);
    }
    Ok(hashes)
}

/// Returns the hash of rows.
pub(crate) fn hash<T: serde::Serialize + ?Sized>(rows: &T) -> String {
    hash_bytes(&serde_json::to_vec(rows).expect("tasks and messages have string keys"))
}
