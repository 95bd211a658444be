//! Tasks, documents and demonstrations: from files in common forms, and from built-in data.
//!
//! Training data without splits are split by a hash of each task's id: 80 % `train`, 10 % `validation`, 10 % `test`. The
//! split of a task is the same in every run and independent of the rest of the file. A task without a split in a file
//! of its own for evaluation (`eval.data`) is in every split. `all` selects every task. A data set on the hub has the splits
//! of its files.

mod bounds;
mod built_in;
mod conversation;
mod curriculum;
mod demonstration;
mod describe;
mod error;
mod file;
mod hotpot;
mod hub;
mod ids;
mod jsonl;
mod labeled;
mod messages;
mod nli;
mod object;
mod parquet;
mod parsed;
mod place;
mod preference;
mod row;
mod row_texts;
mod rows;
mod sampler;
mod script;
mod served;
mod sets;
mod sources;
mod split;
mod squad;

pub(crate) use crate::config::{ServedTasks, TaskServer, is_served};
pub use bounds::Bounds;
pub(crate) use curriculum::SolveRates;
pub use demonstration::{Demonstration, demonstrations, self_play};
pub use describe::{DataColumn, DataDescription, DataSplit, describe, raw_rows};
pub use error::DataError;
pub use hub::{HubData, HubName, Preset, find_data, is_hub, preset};
pub use labeled::{LabeledReply, label_problem, labeled, labeled_held_out, score_problem};
pub(crate) use labeled::{SEEN, seen};
pub(crate) use object::distinct;
pub use object::{KeyPath, object, with_numbers_as_written};
pub(crate) use place::with_place;
pub use place::{PlacedTasks, missing, same_data};
pub use preference::{PreferenceRow, judged_replies, preferences};
pub use row_texts::{Misfit, RowTexts, Text, misfits};
pub use sampler::Sampler;
pub use script::{ScriptLine, script};
pub use sources::data_place;
pub use split::{ALL, ChosenTasks, TaskChoice};

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::slice;

use serde_json::{Map, Value};

use built_in::{Builtin, builtin_dataset};
pub use file::read_text;
use hub::with_preset;
use row::{Row, Rows};
use sources::{SourceFile, WantedRows, open_sources, source_paths};
use split::choose;

use crate::builtin::{Document, facts};
use crate::config::{DataFormat, TaskConfig, Unsplit};
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
    Ok(placed(config, split, base)?.tasks.iter().collect())
}

/// Same as [`load`], packed, each task with its place.
///
/// # Errors
///
/// Same as [`load`].
pub fn placed(config: &TaskConfig, split: &str, base: &Path) -> ChosenTasks {
    let choice = TaskChoice { split, limit: config.limit };
    placed_choices(config, &[choice], base)?.pop().unwrap_or_else(|| Ok(PlacedTasks::default()))
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
    if config.unsplit == Unsplit::Every {
        let sets = choices
            .iter()
            .map(|choice| sets::placed_sets(config, |set| read_choice(set, choice, base)));
        return Ok(sets.collect());
    }
    let mut components: Vec<Vec<_>> = choices.iter().map(|_| Vec::new()).collect();
    for (name, component) in &config.mixture {
        // No more tasks of a component than the limit of all are among the first.
        let one = sets::component_config(config, component);
        for (of_choice, tasks) in components.iter_mut().zip(read(&one, choices, base)?) {
            of_choice.push(tasks.map(|placed| (name.as_str(), placed)));
        }
        // The first component without tasks is the one that is reported.
        if components.iter().all(|of_choice| of_choice.last().is_some_and(Result::is_err)) {
            break;
        }
    }
    let mixed = choices.iter().zip(components);
    Ok(mixed.map(|(choice, components)| alternate_tasks(components, choice.limit)).collect())
}

/// Returns the tasks of several components in turn, the first ones up to a limit. Their sources begin with the name of their
/// component.
fn alternate_tasks(
    components: Vec<Result<(&str, PlacedTasks), DataError>>,
    limit: Option<NonZeroUsize>,
) -> ChosenTasks {
    let components: Vec<(&str, PlacedTasks)> = components.into_iter().collect::<Result<_, _>>()?;
    let longest = components.iter().map(|(_, placed)| placed.lines.len()).max().unwrap_or(0);
    let most = limit.map_or(usize::MAX, NonZeroUsize::get);
    let mut all = PlacedTasks::default();
    for (at, (name, placed)) in
        (0..longest).flat_map(|at| components.iter().map(move |it| (at, it)))
    {
        let Some(line) = placed.lines.get(at) else { continue };
        if all.lines.len() == most {
            break;
        }
        let mut task = placed.tasks.task(at);
        task.source = format!("{name}/{}", task.source);
        all.push(&task, *line);
    }
    Ok(all)
}

/// Reads the tasks of one choice.
fn read_choice(config: &TaskConfig, choice: &TaskChoice<'_>, base: &Path) -> ChosenTasks {
    let read = read(config, slice::from_ref(choice), base)?.pop();
    read.unwrap_or_else(|| Ok(PlacedTasks::default()))
}

/// Reads the tasks of one component.
fn read(
    config: &TaskConfig,
    choices: &[TaskChoice<'_>],
    base: &Path,
) -> Result<Vec<ChosenTasks>, DataError> {
    let config = &*with_preset(config);
    let Some(first) = choices.first() else { return Ok(Vec::new()) };
    if is_hub(&config.data) && choices.len() > 1 {
        // The splits of a data set are files of their own.
        return Ok(choices.iter().map(|choice| read_choice(config, choice, base)).collect());
    }
    let files;
    let rows: Rows<'_> = match (builtin_dataset(&config.data)?, TaskServer::of_data(&config.data)) {
        (Some(component), _) => Box::new(component.rows().into_iter().map(Ok)),
        (None, Some((server, split))) => {
            Box::new(served::tasks(config, server, split)?.into_iter().map(Ok))
        }
        (None, None) => {
            let wanted = WantedRows::of_choice(config, first);
            files = open_sources(&data_place(&config.data, base), &wanted)?;
            file_rows(&files, config)?
        }
    };
    choose(rows, choices, config)
}

/// Reads the rows of files, one after the other. Rows of a data set are numbered in the order in which they are read.
fn file_rows<'f>(files: &'f [SourceFile], config: &'f TaskConfig) -> Result<Rows<'f>, DataError> {
    let mut all: Rows<'f> = Box::new(std::iter::empty());
    for file in files {
        let rows = match task_form(file, config)? {
            DataFormat::Squad => squad::tasks(file)?,
            DataFormat::Hotpot => hotpot::tasks(file)?,
            DataFormat::Auto | DataFormat::Jsonl => jsonl::tasks(file, config)?,
        };
        let Some(set) = &file.set else { return Ok(rows) };
        let rows = rows.map(move |row| {
            row.map(|row| Row { split: set.row_split(row.split, config.unsplit), ..row })
        });
        all = Box::new(all.chain(rows));
    }
    let Some(set) = files.first().and_then(|file| file.set.as_ref()) else { return Ok(all) };
    Ok(Box::new((1..).zip(all).map(move |(line, row)| {
        let mut row = Row { line, ..row? };
        if !row.named {
            row.task.id = set.row_id(line);
        }
        Ok(row)
    })))
}

/// Returns the form in which the tasks of a file are read, never `Auto`.
fn task_form(file: &SourceFile, config: &TaskConfig) -> Result<DataFormat, DataError> {
    Ok(match (file.form(config.format)?, config.keys.is_empty()) {
        // A file with named keys has rows.
        (DataFormat::Hotpot, false) if config.format == DataFormat::Auto => DataFormat::Jsonl,
        (form, _) => form,
    })
}

/// Returns the names of the data that tasks are read from, as the configuration has them.
pub fn names(config: &TaskConfig) -> BTreeSet<&str> {
    if config.mixture.is_empty() {
        BTreeSet::from([config.data.as_str()])
    } else {
        config.mixture.values().map(|component| component.data.as_str()).collect()
    }
}

/// Returns the files that splits of tasks are read from, each by its name: that in the configuration, or the commit and the name
/// on the hub.
///
/// # Errors
///
/// If a data set on the hub cannot be read.
pub fn files(
    config: &TaskConfig,
    splits: &[&str],
    base: &Path,
) -> Result<BTreeMap<String, PathBuf>, DataError> {
    let mut files = BTreeMap::new();
    for data in names(config) {
        if is_hub(data) {
            for split in splits {
                files.extend(source_paths(data, &WantedRows::of_split(config, split))?);
            }
        } else if !data.starts_with("builtin:") && !is_served(data) {
            files.insert(data.to_owned(), base.join(data));
        }
    }
    Ok(files)
}

/// Reads one row of a file of tasks; `number` is its id if it has none.
///
/// # Errors
///
/// The missing or invalid field.
pub fn task(row: Map<String, Value>, number: usize) -> Result<Task, String> {
    jsonl::task(row, number)
}

/// Loads the documents of a corpus, sorted by key: `builtin:facts`, a file relative to `base`, or a data set on the hub. Rows (JSONL, Parquet,
/// a list) have `id`, `title`, and `text` or `contents`; in SQuAD and HotpotQA files each paragraph is a document.
///
/// # Errors
///
/// See [`DataError`]; a corpus without documents is one.
pub fn corpus(name: &str, base: &Path, bounds: Bounds) -> Result<Vec<Document>, DataError> {
    let mut documents = corpus_rows(name, base, bounds)?;
    documents.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(documents)
}

/// Loads the documents of a corpus as [`corpus`], in the order of their rows.
///
/// # Errors
///
/// See [`corpus`].
pub fn corpus_rows(name: &str, base: &Path, bounds: Bounds) -> Result<Vec<Document>, DataError> {
    match builtin_dataset(name)? {
        Some(Builtin::Facts) => return Ok(facts::corpus()),
        Some(_) => {
            let wanted = "name `builtin:facts` or a file";
            return Err(DataError::Empty { place: name.to_owned(), what: "documents", wanted });
        }
        None => {}
    }
    let wanted = WantedRows { split: ALL, limit: None, bounds };
    let documents = documents_of(&open_sources(&data_place(name, base), &wanted)?)?;
    check_keys(name, &documents)?;
    if documents.is_empty() {
        let wanted = "write one JSON object a line with `id`, `title` and `text`, or name a SQuAD or HotpotQA file";
        return Err(DataError::Empty { place: name.to_owned(), what: "documents", wanted });
    }
    Ok(documents.into_iter().map(|(_, document)| document).collect())
}

/// Returns an error if two documents, each after its line, have the same key: the smallest such key, with the first two lines.
fn check_keys(name: &str, documents: &[(usize, Document)]) -> Result<(), DataError> {
    let mut keys: Vec<(&str, usize)> =
        documents.iter().map(|(line, document)| (document.key.as_str(), *line)).collect();
    keys.sort_by_key(|(key, _)| *key);
    match keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some([(key, first), (_, second)]) => Err(DataError::Duplicate {
            place: name.to_owned(),
            id: (*key).to_owned(),
            lines: [*first, *second],
            remedy: "documents are found by their ids, so give each its own",
        }),
        _ => Ok(()),
    }
}

/// Reads the documents of files. A title of HotpotQA in several files is one document.
fn documents_of(files: &[SourceFile]) -> Result<Vec<(usize, Document)>, DataError> {
    let (mut all, mut titles) = (Vec::new(), BTreeSet::new());
    for file in files {
        let documents = match file.form(DataFormat::Auto)? {
            DataFormat::Squad => squad::documents(file)?,
            DataFormat::Hotpot => {
                let mut found = hotpot::documents(file)?;
                found.retain(|(_, document)| titles.insert(document.key.clone()));
                found
            }
            DataFormat::Auto | DataFormat::Jsonl => jsonl::documents(file)?,
        };
        all.extend(documents);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
