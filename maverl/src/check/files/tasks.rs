//! Tasks of a configuration, read as training reads them.

use std::collections::BTreeMap;
use std::path::Path;

use super::episodes::check_evaluation;
use super::hub::data_notes;
use crate::check::purpose::Purpose;
use crate::config::source::{Problems, path, path_within, suggestion};
use crate::config::{
    AlgorithmPlan, Config, EvalConfig, EvalData, OverlongText, Preset, TaskConfig, TrainOn,
    VerifierLabels,
};
use crate::data::{self, ChosenTasks, DataError, PlacedTasks, PreferenceRow, RowTexts, TaskChoice};
use crate::plan::PlannedTasks;
use crate::settings::Settings;
use crate::task::TaskList;

/// Training data.
#[derive(Default)]
pub(crate) struct LoadedTasks {
    /// The tasks; none in supervised training.
    placed: PlacedTasks,
    /// Number of tasks, or of rows of demonstrations.
    pub(crate) rows: usize,
    /// Texts of the rows of supervised training, and of a verifier's held-out ones.
    pub(crate) all_texts: [Vec<RowTexts>; 2],
    /// Tasks of evaluations.
    pub(crate) held_out: Vec<HeldOut>,
}

/// Tasks of an evaluation.
pub(crate) struct HeldOut {
    /// Source of the tasks.
    source: TaskConfig,
    split: String,
    /// Key of their file, if it is not that of the training data.
    pub(crate) key: Option<Vec<String>>,
    placed: PlacedTasks,
}

impl HeldOut {
    /// Returns a message of an environment with the place of the task that it names.
    pub(crate) fn place_message(&self, message: &str) -> String {
        data::with_place(&self.source, &self.placed, message)
    }

    /// Returns the tasks.
    pub(crate) fn tasks(&self) -> &TaskList {
        &self.placed.tasks
    }
}

impl LoadedTasks {
    fn all_texts(all_texts: Vec<RowTexts>) -> Self {
        Self { rows: all_texts.len(), all_texts: [all_texts, Vec::new()], ..Self::default() }
    }

    /// Returns a message of an environment with the place of the task that it names.
    pub(crate) fn place_message(&self, config: &Config, message: &str) -> String {
        data::with_place(&config.task, &self.placed, message)
    }

    /// Returns the tasks; none in supervised training.
    pub(crate) fn tasks(&self) -> &TaskList {
        &self.placed.tasks
    }

    /// Returns the facts about the tasks that a plan has.
    pub(crate) fn planned_tasks(&self, config: &Config) -> PlannedTasks {
        let (tasks, mut splits) = (self.tasks(), Vec::new());
        let training = (config.task.split.clone(), tasks.len());
        splits.extend(Some(training).filter(|(_, tasks)| *tasks > 0));
        for HeldOut { split, placed, .. } in &self.held_out {
            if splits.iter().all(|(known, _)| known != split) {
                splits.push((split.clone(), placed.tasks.len()));
            }
        }
        let every = tasks.len().div_ceil(PlannedTasks::QUESTIONS).max(1);
        PlannedTasks {
            splits,
            questions: tasks.questions().step_by(every).map(str::to_owned).collect(),
        }
    }
}

/// Reports missing data, and, before training, data that cannot be used for training or evaluation. Returns the
/// training data.
pub(crate) fn load_tasks(
    config: &Config,
    base: &Path,
    purpose: Purpose,
    problems: &mut Problems<'_>,
) -> LoadedTasks {
    let there = sources(config, base, problems);
    if matches!(purpose, Purpose::Eval | Purpose::Replay | Purpose::Environment) || !there {
        return LoadedTasks::default();
    }
    let mut read = read_together(config, base, problems).into_iter();
    let mut loaded = training_data(config, base, read.next(), problems);
    loaded.all_texts[1] = held_out_texts(config, base, problems);
    loaded.held_out = held_out(config, base, read, problems);
    loaded
}

/// Reads the tasks of training, and those of evaluations if they are in the same data, in one pass. An error about a row is
/// that of training.
fn read_together(config: &Config, base: &Path, problems: &Problems<'_>) -> Vec<ChosenTasks> {
    let TaskConfig { split, limit, .. } = &config.task;
    if config.algorithm.name.is_supervised() || problems.is_reported(&path(["task", "data"])) {
        return Vec::new();
    }
    let eval = config.eval.used(config.algorithm.name);
    let together = eval.own_data(&config.task).is_none();
    let held_out = together.then(|| used_splits(&eval)).into_iter().flatten();
    let held_out =
        held_out.map(|(_, split, _)| TaskChoice { split, limit: Some(config.eval.tasks) });
    let choices: Vec<TaskChoice<'_>> =
        [TaskChoice { split, limit: *limit }].into_iter().chain(held_out).collect();
    data::placed_choices(&config.task, &choices, base).unwrap_or_else(|error| vec![Err(error)])
}

/// Returns the splits that evaluations use: the key of each, its name, and what is written to do without it.
fn used_splits(eval: &EvalConfig) -> Vec<(&'static str, &str, &'static str)> {
    let splits = [
        (eval.before_and_after, "test_split", &eval.test_split, "eval.before_and_after = false"),
        (eval.every > 0, "split", &eval.split, "eval.every = 0"),
    ];
    let used = splits.into_iter().filter(|(used, ..)| *used);
    used.map(|(_, key, split, without)| (key, split.as_str(), without)).collect()
}

/// Reads the tasks of evaluations, and reports those that cannot be read. `read` are those that were read with the tasks of
/// training.
fn held_out(
    config: &Config,
    base: &Path,
    mut read: impl Iterator<Item = ChosenTasks>,
    problems: &mut Problems<'_>,
) -> Vec<HeldOut> {
    let eval = config.eval.used(config.algorithm.name);
    let source = eval.held_out(&config.task);
    let own = eval.own_data(&config.task).map(|_| path(["eval", "data"]));
    let reported = eval.data.iter().flat_map(EvalData::places).any(|at| problems.is_reported(&at));
    let mut held_out = Vec::new();
    for (key, split, without) in used_splits(&eval) {
        let at = own.clone().unwrap_or_else(|| path(["task", "data"]));
        if problems.is_reported(&at) || own.is_some() && reported {
            continue;
        }
        match read.next().unwrap_or_else(|| data::placed(&source, split, base)) {
            Ok(placed) => {
                check_evaluation(config, placed.tasks.len(), problems);
                let (source, split, key) = (source.clone(), split.to_owned(), own.clone());
                held_out.push(HeldOut { source, split, key, placed });
            }
            Err(error @ DataError::NoTasks { .. }) => {
                let help = format!(
                    "name one that is there as `eval.{key}`, put `\"split\": \"{split}\"` into some rows, or write `{without}`"
                );
                problems.value(&path(["eval", key]), error.to_string(), help);
            }
            Err(error) => problems.value(&at, error.to_string(), None),
        }
    }
    held_out
}

/// Reports training data that cannot be used. `read` are the tasks, none in supervised training.
fn training_data(
    config: &Config,
    base: &Path,
    read: Option<ChosenTasks>,
    problems: &mut Problems<'_>,
) -> LoadedTasks {
    let at = path(["task", "data"]);
    if problems.is_reported(&at) {
        return LoadedTasks::default();
    }
    let TaskConfig { data, .. } = &config.task;
    let supervised = config.algorithm.name.is_supervised();
    if supervised && (data.starts_with("builtin:") || data::is_served(data)) {
        let message = format!("`task.data` is {data:?}, which has questions and no demonstrations");
        problems.value(&at, message, "supervised training needs a file of them".to_owned());
        return LoadedTasks::default();
    }
    let read = match read {
        None => all_texts(config, base, problems).map(LoadedTasks::all_texts),
        Some(read) => read.map(|placed| {
            let rows = placed.tasks.len();
            LoadedTasks { placed, rows, ..LoadedTasks::default() }
        }),
    };
    read.unwrap_or_else(|error| {
        let at = match error {
            DataError::NoTasks { .. } => path(["task", "split"]),
            _ => at,
        };
        problems.value(&at, error.to_string(), None);
        LoadedTasks::default()
    })
}

/// Reads the texts of supervised training.
fn all_texts(
    config: &Config,
    base: &Path,
    problems: &mut Problems<'_>,
) -> Result<Vec<RowTexts>, DataError> {
    let (task, file) = (&config.task, data::data_place(&config.task.data, base));
    let learn = TrainOn::resolve(&config.algorithm.train_on, TrainOn::default());
    let all_texts: Vec<RowTexts> = match config.algorithm.name {
        Preset::Verifier => {
            let plan = AlgorithmPlan::from(&config.algorithm).verifier;
            let rows = data::labeled(&file, task)?;
            let soft = (plan.labels == VerifierLabels::Soft).then_some(&rows);
            let wrong =
                [data::label_problem(&rows).map(str::to_owned), soft.and_then(data::score_problem)];
            for problem in wrong.into_iter().flatten() {
                problems.value(&path(["task", "data"]), problem, None);
            }
            rows.iter().map(|row| row.row_texts(plan.head)).collect()
        }
        Preset::Dpo => {
            let labels = AlgorithmPlan::from(&config.algorithm).preference.loss.labels_replies();
            let read = if labels { data::judged_replies } else { data::preferences };
            read(&file, task)?.iter().map(PreferenceRow::row_texts).collect()
        }
        Preset::Spin => {
            let rows = data::self_play(&file, task)?;
            rows.iter().map(|row| row.row_texts(TrainOn::Assistant)).collect()
        }
        _ => data::demonstrations(&file, task)?.iter().map(|row| row.row_texts(learn)).collect(),
    };
    if all_texts.iter().all(|row_texts| row_texts.texts.is_empty()) {
        let message =
            format!("`task.data` is {:?}, in which no user answers a reply", config.task.data);
        let help = "`train_on = \"observations\"` learns what follows a reply: conversations of several turns";
        problems.value(&path(["algorithm", "train_on"]), message, help.to_owned());
    }
    Ok(all_texts)
}

/// Reads the texts of a verifier's held-out rows.
fn held_out_texts(config: &Config, base: &Path, problems: &mut Problems<'_>) -> Vec<RowTexts> {
    let (Preset::Verifier, Some(data)) = (config.algorithm.name, &config.eval.data) else {
        return Vec::new();
    };
    let head = AlgorithmPlan::from(&config.algorithm).verifier.head;
    let mut texts = Vec::new();
    for (name, at) in data.names().zip(data.places()) {
        if problems.is_reported(&at) {
            continue;
        }
        let (place, split) = (data::data_place(name, base), &config.eval.test_split);
        match data::labeled_held_out(&place, &config.task, split) {
            Ok(rows) => texts.extend(rows.iter().map(|row| row.row_texts(head))),
            Err(error) => problems.value(&at, error.to_string(), None),
        }
    }
    texts
}

/// Reports missing files, and components that cannot be mixed. Returns true if the data of every component exist.
fn sources(config: &Config, base: &Path, problems: &mut Problems<'_>) -> bool {
    let TaskConfig { data, mixture: components, .. } = &config.task;
    if components.is_empty() {
        exists(data, &path(["task", "data"]), base, problems);
    } else if *data != TaskConfig::default().data {
        let message = "`task.data` has no effect: each of `task.mixture` has its own";
        problems.key(&path(["task", "data"]), message.to_owned(), None);
    }
    for (name, component) in components {
        let table = path(["task", "mixture", name]);
        if name.contains('/') || name.is_empty() {
            let message = format!(
                "`{name}` cannot be the name of a component: it is part of sources, which `/` divides"
            );
            problems.key(&table, message, None);
        }
        exists(&component.data, &path_within(&table, "data"), base, problems);
    }
    let mut places = components.keys().map(|name| path(["task", "mixture", name, "data"]));
    let there = places.all(|at| !problems.is_reported(&at));
    if let Some(data) = &config.eval.data {
        for (name, at) in data.names().zip(data.places()) {
            exists(name, &at, base, problems);
        }
        if !components.is_empty() {
            let at = path(["eval", "data"]);
            let message = "`eval.data` is of no component; leave it out, and held-out tasks of every component are played";
            problems.key(&at, message.to_owned(), None);
        }
    }
    there
}

fn exists(data: &str, at: &[String], base: &Path, problems: &mut Problems<'_>) {
    if let Some(name) = data.strip_prefix("builtin:") {
        if !data::BUILT_IN.contains(&name) {
            let message = format!("no built-in data is called {name:?}");
            problems.value(at, message, suggestion(name, data::BUILT_IN.iter().copied()));
        }
    } else if let Some(missing) =
        (!data::is_served(data) && !data::is_hub(data)).then(|| data::missing(data, base)).flatten()
    {
        let message = match data {
            "" => format!("`{}` is empty", at.join(".")),
            _ => missing,
        };
        let help = "a path is relative to the file that names it; `builtin:facts` needs no file";
        problems.value(at, message, help.to_owned());
    }
}

/// Warnings about keys without effect, and splits that are used for both training and evaluation.
pub(crate) fn data_warnings(config: &Config, base: &Path) -> Vec<String> {
    let (eval, split) = (config.eval.used(config.algorithm.name), &config.task.split);
    let mut doubts = data_notes(config);
    if !config.algorithm.name.is_supervised() && config.task.overlong != OverlongText::Error {
        doubts.push(
            "`task.overlong` has no effect: it is for supervised training; `rollout.overflow` decides about prompts of episodes"
                .to_owned(),
        );
    }
    if let Some(data) = eval.own_data(&config.task) {
        for data in data.names() {
            let mut names = data::names(&config.task).into_iter();
            if let Some(file) = names.find(|name| data::same_data(name, data, base))
                && is_trained_on(config, &eval, data, base)
            {
                let name = if file == data { "" } else { " by another name" };
                doubts.push(format!(
                    "`eval.data` has {data:?}, the training data{name}, and tasks that are trained on: evaluations say nothing \
                     about tasks not seen before; leave it out, and held-out splits of the training data are evaluated"
                ));
            }
        }
        return doubts;
    }
    let held_out = [
        ("test_split", &eval.test_split, eval.before_and_after),
        ("split", &eval.split, eval.every > 0),
    ];
    let trained = held_out.into_iter().filter(|(_, held, used)| *used && *held == split);
    doubts.extend(trained.map(|(key, _, _)| {
        format!(
            "`eval.{key}` is {split:?}, which is trained on: evaluations say nothing about tasks not seen before"
        )
    }));
    doubts
}

/// Returns true if evaluations read tasks of the training split from the training data: they use this split, or rows are of every
/// split.
fn is_trained_on(config: &Config, eval: &EvalConfig, data: &str, base: &Path) -> bool {
    let source = eval.held_out(&config.task);
    let source = TaskConfig { data: data.to_owned(), mixture: BTreeMap::new(), ..source };
    let tasks = |split: &str| data::load(&source, split, base).unwrap_or_default();
    let trained = tasks(&config.task.split);
    let mut splits = used_splits(eval).into_iter();
    splits.any(|(_, split, _)| tasks(split).iter().any(|task| trained.contains(task)))
}
