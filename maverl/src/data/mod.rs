//! Tasks, documents and demonstrations: from files in common forms, and from built-in data.
//!
//! Training data without splits are split by a hash of each task's id: 80 % `train`, 10 % `validation`, 10 % `test`. The
//! split of a task is the same in every run and independent of the rest of the file. A task without a split in a file
//! of its own for evaluation (`eval.data`) is in every split. `all` selects every task.

mod bounds;
mod built_in;
mod conversation;
mod demonstration;
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
mod row_texts;
mod rows;
mod sampler;
mod script;
mod served;
mod split;
mod squad;

pub(crate) use crate::config::is_served;
pub use bounds::Bounds;
pub use demonstration::{Demonstration, demonstrations, self_play};
pub use labeled::{LabeledReply, label_problem, labeled, labeled_held_out, score_problem};
pub(crate) use labeled::{SEEN, seen};
pub use object::{KeyPath, object, with_numbers_as_written};
pub(crate) use place::with_place;
pub use place::{Placed, missing, same_data};
pub use preference::{PreferencePair, preferences};
pub use row_texts::{Misfit, RowTexts, Text, misfits};
pub use sampler::Sampler;
pub use script::{ScriptLine, script};
use split::choose;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use built_in::{Builtin, builtin_dataset};
use file::File;
pub use file::read_text;

use crate::builtin::{Document, facts};
use crate::config::{DataFormat, TaskConfig};
use crate::task::Task;

/// Name of the split with every task.
pub const ALL: &str = "all";

/// Built-in data: valid values of NAME in `data = "builtin:NAME"`.
pub const BUILT_IN: [&str; 6] = ["arithmetic", "code", "facts", "nli", "resets", "tools"];

/// Reason that data could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be read.
    #[error("{} cannot be read: {source}{}", place::shown(path), place::hint(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A line or the whole file is malformed.
    #[error("{}:{line}: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Line from 1; in a Parquet file or a list, the row.
        line: usize,
        /// The text found, and the expected one.
        message: String,
    },
    /// A row is valid and cannot be used.
    #[error("{location}: {message}")]
    Unfit {
        /// File and line of the row.
        location: String,
        /// Description of the problem and its remedy.
        message: String,
    },
    /// The metadata of a Parquet file is wrong or unsupported.
    #[error("`{}` is no Parquet file that can be read: {message}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        message: String,
    },
    /// A file, or a row of it, exceeds the size limits.
    #[error("{} is too large: {message}", place::shown(path))]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The sizes, and the key that raises the limit.
        message: String,
    },
    /// Two tasks or documents have the same id.
    #[error("{place}:{}: the id `{id}` is that of row {} too; {remedy}", lines[1], lines[0])]
    Duplicate {
        /// The file or the built-in data.
        place: String,
        /// The id.
        id: String,
        /// The first two rows with the id, from 1.
        lines: [usize; 2],
        /// Remedy.
        remedy: &'static str,
    },
    /// A task has no question.
    #[error("{place}:{line}: the question of task `{id}` is empty")]
    NoQuestion {
        /// The file.
        place: String,
        /// Id of the task; its line if the file has no id.
        id: String,
        /// Line or row of the task.
        line: usize,
    },
    /// A server gave no tasks.
    #[error("`{place}`: {message}")]
    Served {
        /// The data, which name a split of the server.
        place: String,
        /// Description of the failure.
        message: String,
    },
    /// The split is empty.
    #[error("`{place}` has no tasks in split `{split}`; it has {found}")]
    NoTasks {
        /// The file or the built-in data.
        place: String,
        /// The requested split.
        split: String,
        /// The existing splits.
        found: String,
    },
    /// All tasks are above the requested level.
    #[error(
        "`{place}`: `task.max_level` is {most}, and the lowest level of its tasks is {lowest}; raise it, or leave it out"
    )]
    TooHard {
        /// The file or the built-in data.
        place: String,
        /// The requested level.
        most: u64,
        /// The lowest existing level.
        lowest: u64,
    },
    /// The file has no documents, or no demonstrations.
    #[error("`{place}` has no {what}; {wanted}")]
    Empty {
        /// The file.
        place: String,
        /// Missing kind of row.
        what: &'static str,
        /// Remedy.
        wanted: &'static str,
    },
    /// The name of built-in data that does not exist.
    #[error(
        "`{0}` is not a built-in dataset; there is `builtin:facts`, `builtin:arithmetic`, `builtin:nli`, `builtin:code`, `builtin:tools` and `builtin:resets`, or name a file"
    )]
    UnknownWorld(String),
}

/// A task, its split if the file states it, and its line or row, from 1.
struct Row {
    task: Task,
    split: Option<String>,
    line: usize,
}

/// All rows of a data source, in file order.
type Rows<'d> = Box<dyn Iterator<Item = Result<Row, DataError>> + 'd>;

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
    if config.mixture.is_empty() {
        return read(config, split, base);
    }
    let mut components = Vec::new();
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
        let mut tasks = read(&one, split, base)?;
        tasks.iter_mut().for_each(|it| it.task.source = format!("{name}/{}", it.task.source));
        components.push(tasks.into_iter());
    }
    let mut tasks = Vec::new();
    loop {
        let turn: Vec<Placed> = components.iter_mut().filter_map(Iterator::next).collect();
        if turn.is_empty() {
            break;
        }
        tasks.extend(turn);
    }
    tasks.truncate(config.limit.map_or(usize::MAX, std::num::NonZero::get));
    Ok(tasks)
}

/// Reads the tasks of one component.
fn read(config: &TaskConfig, split: &str, base: &Path) -> Result<Vec<Placed>, DataError> {
    let file;
    let rows: Rows<'_> = match builtin_dataset(&config.data)? {
        Some(component) => Box::new(component.rows().into_iter().map(Ok)),
        None if is_served(&config.data) => Box::new(served::tasks(config)?.into_iter().map(Ok)),
        None => {
            file = File::open(&base.join(&config.data), Bounds::from(config))?;
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
    choose(rows, split, config)
}

/// Returns the names of the data that tasks are read from, as the configuration has them.
pub fn names(config: &TaskConfig) -> BTreeSet<&str> {
    match config.mixture.is_empty() {
        true => BTreeSet::from([config.data.as_str()]),
        false => config.mixture.values().map(|component| component.data.as_str()).collect(),
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
    let file = File::open(&base.join(name), bounds)?;
    let mut documents = match file.form(DataFormat::Auto)? {
        DataFormat::Squad => squad::documents(&file)?,
        DataFormat::Hotpot => hotpot::documents(&file)?,
        DataFormat::Auto | DataFormat::Jsonl => jsonl::documents(&file)?,
    };
    documents.sort_by(|(_, a), (_, b)| a.key.cmp(&b.key));
    let same = |pair: &&[(usize, Document)]| pair[0].1.key == pair[1].1.key;
    if let Some([(first, one), (second, _)]) = documents.windows(2).find(same) {
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
