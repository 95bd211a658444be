//! Tasks, documents and demonstrations: from files in common forms, and from built-in data.
//!
//! Training data without splits are split by a hash of each task's id: 80 % `train`, 10 % `validation`, 10 % `test`. The
//! split of a task is the same in every run and independent of the rest of the file. A task without a split in a file
//! of its own for evaluation (`eval.data`) is in every split. `all` selects every task.

mod bounds;
mod built_in;
mod conversation;
mod demonstration;
mod error;
mod file;
mod hotpot;
mod jsonl;
mod labeled;
mod messages;
mod nli;
mod object;
mod parquet;
mod place;
mod preference;
mod row;
mod row_texts;
mod rows;
mod sampler;
mod script;
mod served;
mod split;
mod squad;

pub(crate) use crate::config::{ServedTasks, TaskServer, is_served};
pub use bounds::Bounds;
pub use demonstration::{Demonstration, demonstrations, self_play};
pub use error::DataError;
pub use labeled::{LabeledReply, label_problem, labeled, labeled_held_out, score_problem};
pub(crate) use labeled::{SEEN, seen};
pub(crate) use object::distinct;
pub use object::{KeyPath, object, with_numbers_as_written};
pub(crate) use place::with_place;
pub use place::{Placed, missing, same_data};
pub use preference::{PreferencePair, preferences};
pub use row_texts::{Misfit, RowTexts, Text, misfits};
pub use sampler::Sampler;
pub use script::{ScriptLine, script};
pub use split::{ALL, ChosenTasks, TaskChoice};

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::Path;

use serde_json::{Map, Value};

use built_in::{Builtin, builtin_dataset};
use file::DataFile;
pub use file::read_text;
use row::Rows;
use split::choose;

use crate::builtin::{Document, facts};
use crate::config::{DataFormat, TaskConfig};
use crate::task::Task;

/// Built-in data: valid values of NAME in `data = "builtin:NAME"`.
pub const BUILT_IN: [&str; 6] = ["arithmetic", "code", "facts", "nli", "resets", "tools"];

/// Loads the tasks of a split in file order, except those above `max_level`. `limit` keeps the first tasks only. Tasks
/// of several components alternate, and their sources begin with the name of their component.
///
/// # Errors
///
/// See [`DataError`]; a split without tasks is one.
pub fn load(config: &TaskConfig, split: &str, base: &Path) -> Result<Vec<Task>, DataError> {
    Ok(placed(config, split, base)?.into_iter().map(|placed| placed.task).collect())
}

/// Same as [`load`], each task with its place.
///
/// # Errors
///
/// Same as [`load`].
pub fn placed(config: &TaskConfig, split: &str, base: &Path) -> Result<Vec<Placed>, DataError> {
    let choice = TaskChoice { split, limit: config.limit };
    placed_choices(config, &[choice], base)?.pop().unwrap_or_else(|| Ok(Vec::new()))
}

/// Reads the data once, and returns the tasks of each choice as [`placed`] does. `task.limit` is that of the choice.
///
/// # Errors
///
/// A [`DataError`] about a row. The inner error says that a choice has no tasks.
pub fn placed_choices(
    config: &TaskConfig,
    choices: &[TaskChoice<'_>],
    base: &Path,
) -> Result<Vec<ChosenTasks>, DataError> {
    if config.mixture.is_empty() {
        return read(config, choices, base);
    }
    let whole: Vec<TaskChoice<'_>> =
        choices.iter().map(|choice| TaskChoice { limit: None, ..*choice }).collect();
    let mut components: Vec<Vec<ChosenTasks>> = choices.iter().map(|_| Vec::new()).collect();
    for (name, component) in &config.mixture {
        let one = TaskConfig {
            data: component.data.clone(),
            format: component.format,
            keys: component.keys.clone(),
            ids: component.ids,
            limit: None,
            environment: component.environment.clone(),
            mixture: BTreeMap::new(),
            ..config.clone()
        };
        for (of_choice, tasks) in components.iter_mut().zip(read(&one, &whole, base)?) {
            of_choice.push(tasks.map(|mut tasks| {
                tasks
                    .iter_mut()
                    .for_each(|it| it.task.source = format!("{name}/{}", it.task.source));
                tasks
            }));
        }
        // The first component without tasks is the one that is reported.
        if components.iter().all(|of_choice| of_choice.last().is_some_and(Result::is_err)) {
            break;
        }
    }
    let mixed = choices.iter().zip(components);
    Ok(mixed.map(|(choice, components)| alternate_tasks(components, choice.limit)).collect())
}

/// Returns the tasks of several components in turn, the first ones up to a limit.
fn alternate_tasks(components: Vec<ChosenTasks>, limit: Option<NonZeroUsize>) -> ChosenTasks {
    let components: Result<Vec<_>, DataError> =
        components.into_iter().map(|tasks| Ok(tasks?.into_iter())).collect();
    let (mut components, mut tasks) = (components?, Vec::new());
    loop {
        let turn: Vec<Placed> = components.iter_mut().filter_map(Iterator::next).collect();
        if turn.is_empty() {
            break;
        }
        tasks.extend(turn);
    }
    tasks.truncate(limit.map_or(usize::MAX, NonZeroUsize::get));
    Ok(tasks)
}

/// Reads the tasks of one component.
fn read(
    config: &TaskConfig,
    choices: &[TaskChoice<'_>],
    base: &Path,
) -> Result<Vec<ChosenTasks>, DataError> {
    let file;
    let rows: Rows<'_> = match (builtin_dataset(&config.data)?, TaskServer::of_data(&config.data)) {
        (Some(component), _) => Box::new(component.rows().into_iter().map(Ok)),
        (None, Some((server, split))) => {
            Box::new(served::tasks(config, server, split)?.into_iter().map(Ok))
        }
        (None, None) => {
            file = DataFile::open(&base.join(&config.data), Bounds::from(config))?;
            let form = match (file.form(config.format)?, config.keys.is_empty()) {
                // A file with named keys has rows.
                (DataFormat::Hotpot, false) if config.format == DataFormat::Auto => {
                    DataFormat::Jsonl
                }
                (form, _) => form,
            };
            match form {
                DataFormat::Squad => squad::tasks(&file)?,
                DataFormat::Hotpot => hotpot::tasks(&file)?,
                DataFormat::Auto | DataFormat::Jsonl => jsonl::tasks(&file, config)?,
            }
        }
    };
    choose(rows, choices, config)
}

/// Returns the names of the data that tasks are read from, as the configuration has them.
pub fn names(config: &TaskConfig) -> BTreeSet<&str> {
    if config.mixture.is_empty() {
        BTreeSet::from([config.data.as_str()])
    } else {
        config.mixture.values().map(|component| component.data.as_str()).collect()
    }
}

/// Returns those of [`names`] that are files, and neither built in nor of a server.
pub fn files(config: &TaskConfig) -> BTreeSet<&str> {
    let mut names = names(config);
    names.retain(|data| !data.starts_with("builtin:") && !is_served(data));
    names
}

/// Reads one row of a file of tasks; `number` is its id if it has none.
///
/// # Errors
///
/// The missing or invalid field.
pub fn task(row: Map<String, Value>, number: usize) -> Result<Task, String> {
    jsonl::task(row, number)
}

/// Loads the documents of a corpus, sorted by key: `builtin:facts`, or a file relative to `base`. Rows (JSONL, Parquet,
/// a list) have `id`, `title`, and `text` or `contents`; in SQuAD and HotpotQA files each paragraph is a document.
///
/// # Errors
///
/// See [`DataError`]; a corpus without documents is one.
pub fn corpus(name: &str, base: &Path, bounds: Bounds) -> Result<Vec<Document>, DataError> {
    match builtin_dataset(name)? {
        Some(Builtin::Facts) => return Ok(facts::corpus()),
        Some(_) => {
            let wanted = "name `builtin:facts` or a file";
            return Err(DataError::Empty { place: name.to_owned(), what: "documents", wanted });
        }
        None => {}
    }
    let file = DataFile::open(&base.join(name), bounds)?;
    let mut documents = match file.form(DataFormat::Auto)? {
        DataFormat::Squad => squad::documents(&file)?,
        DataFormat::Hotpot => hotpot::documents(&file)?,
        DataFormat::Auto | DataFormat::Jsonl => jsonl::documents(&file)?,
    };
    documents.sort_by(|(_, a), (_, b)| a.key.cmp(&b.key));
    let same = documents.windows(2).find(|pair| pair[0].1.key == pair[1].1.key);
    if let Some([(first, one), (second, _)]) = same {
        return Err(DataError::Duplicate {
            place: name.to_owned(),
            id: one.key.clone(),
            lines: [*first, *second],
            remedy: "documents are found by their ids, so give each its own",
        });
    }
    if documents.is_empty() {
        let wanted = "write one JSON object a line with `id`, `title` and `text`, or name a SQuAD or HotpotQA file";
        return Err(DataError::Empty { place: name.to_owned(), what: "documents", wanted });
    }
    Ok(documents.into_iter().map(|(_, document)| document).collect())
}

#[cfg(test)]
mod tests;
