//! Where tasks, documents and demonstrations come from: files in the forms people have them in, and built-in components.
//!
//! A file without splits is split by a hash of each task's id: 80 % `train`, 10 % `validation`, 10 % `test`, the same in
//! every run and whatever else the file holds. `all` takes everything.

mod bounds;
mod demonstration;
mod file;
mod hotpot;
mod jsonl;
mod nli;
mod parquet;
mod place;
mod preference;
mod rows;
mod sampler;
mod script;
mod squad;

pub use bounds::Bounds;
pub use demonstration::{Demonstration, demonstrations};
pub use place::{Placed, missing};
pub use preference::{PreferencePair, preferences};
pub use sampler::Sampler;
pub use script::{ScriptLine, script};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use file::File;
pub(crate) use file::read_text;

use crate::builtin::{self, Document, arithmetic, code, facts};
use crate::config::{DataFormat, Ids, TaskConfig};
use crate::task::Task;

/// The split that takes every task.
pub const ALL: &str = "all";

/// Worlds embedded in the library: names that `data = "builtin:NAME"` may have.
pub const BUILT_IN: [&str; 5] = ["arithmetic", "code", "facts", "nli", "tools"];

/// Why data could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file cannot be read.
    #[error("{} cannot be read: {source}{}", place::shown(path), place::hint(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line or the whole file is not in the form it should be in.
    #[error("{}:{line}: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// From 1; in a Parquet file or a list, the row.
        line: usize,
        /// What was found, and what is wanted.
        message: String,
    },
    /// What a Parquet file says of itself is not so, or not understood.
    #[error("`{}` is no Parquet file that can be read: {message}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A file, or a row of it, is larger than what is read.
    #[error("{} is too large: {message}", place::shown(path))]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The sizes, and the key that raises the bound.
        message: String,
    },
    /// Two tasks or documents have the same id.
    #[error("{place}:{}: the id `{id}` is that of row {} too; {remedy}", lines[1], lines[0])]
    Duplicate {
        /// The file or component.
        place: String,
        /// The id.
        id: String,
        /// The first two rows that have it, from 1.
        lines: [usize; 2],
        /// What to write.
        remedy: &'static str,
    },
    /// A task asks nothing.
    #[error("{place}:{line}: the question of task `{id}` is empty")]
    NoQuestion {
        /// The file.
        place: String,
        /// The task's id; without one in the file, its line.
        id: String,
        /// Its line or row.
        line: usize,
    },
    /// There is nothing in the split.
    #[error("`{place}` has no tasks in split `{split}`; it has {found}")]
    NoTasks {
        /// The file or component.
        place: String,
        /// The split that was asked for.
        split: String,
        /// What there is instead.
        found: String,
    },
    /// All tasks are harder than is asked for.
    #[error(
        "`{place}`: `task.max_level` is {most}, and the lowest level of its tasks is {lowest}; raise it, or leave it out"
    )]
    TooHard {
        /// The file or component.
        place: String,
        /// The level asked for.
        most: u64,
        /// The lowest there is.
        lowest: u64,
    },
    /// There are no documents, or no demonstrations.
    #[error("`{place}` has no {what}; {wanted}")]
    Empty {
        /// The file.
        place: String,
        /// What is missing.
        what: &'static str,
        /// What to write.
        wanted: &'static str,
    },
    /// The name of a built-in component that does not exist.
    #[error(
        "`{0}` is not a built-in dataset; there is `builtin:facts`, `builtin:arithmetic`, `builtin:nli`, `builtin:code` and `builtin:tools`, or name a file"
    )]
    UnknownWorld(String),
}

/// A task, the split its file puts it in, if it does, and its line or row, from 1.
struct Row {
    task: Task,
    split: Option<String>,
    line: usize,
}

/// Every row of some data, in its order.
type Rows<'d> = Box<dyn Iterator<Item = Result<Row, DataError>> + 'd>;

/// The tasks of a split, in file order, but for those above `max_level`. `limit` takes the first so many of them. Tasks of
/// several components take turns, and their sources begin with the name of their component.
///
/// # Errors
///
/// See [`DataError`]; a split without tasks is one.
pub fn load(config: &TaskConfig, split: &str, base: &Path) -> Result<Vec<Task>, DataError> {
    Ok(placed(config, split, base)?.into_iter().map(|placed| placed.task).collect())
}

/// The same, each with its place.
///
/// # Errors
///
/// As [`load`].
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

/// The tasks of one component.
fn read(config: &TaskConfig, split: &str, base: &Path) -> Result<Vec<Placed>, DataError> {
    let file;
    let rows: Rows<'_> = match builtin_dataset(&config.data)? {
        Some(component) => Box::new(component.rows().into_iter().map(Ok)),
        None => {
            file = File::open(&base.join(&config.data), Bounds::from(config))?;
            let form = match (file.form(config.format)?, config.keys.is_empty()) {
                // Whoever names keys has rows.
                (DataFormat::Hotpot, false) if config.format == DataFormat::Auto => {
                    DataFormat::Jsonl
                }
                (form, _) => form,
            };
            match form {
                DataFormat::Squad => squad::tasks(&file)?,
                DataFormat::Hotpot => hotpot::tasks(&file)?,
                DataFormat::Auto | DataFormat::Jsonl => jsonl::tasks(&file, &config.keys)?,
            }
        }
    };
    choose(rows, split, config)
}

/// One row of a file of tasks, as a task; `number` is its id where it has none.
///
/// # Errors
///
/// What is missing in it, or is not what it should be.
pub fn task(row: Map<String, Value>, number: usize) -> Result<Task, String> {
    jsonl::task(row, number)
}

/// The documents of a corpus, sorted by key: `builtin:facts`, or a file relative to `base`. Rows (JSONL,
/// Parquet, a list) of `id`, `title`, and `text` or `contents`; SQuAD and HotpotQA files give their paragraphs.
///
/// # Errors
///
/// See [`DataError`]; a corpus without documents is one.
pub fn corpus(name: &str, base: &Path, bounds: Bounds) -> Result<Vec<Document>, DataError> {
    match builtin_dataset(name)? {
        Some(Builtin::Facts) => return Ok(facts::corpus()),
        Some(Builtin::Arithmetic | Builtin::Nli | Builtin::Code | Builtin::Tools) => {
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

/// A built-in component.
enum Builtin {
    Facts,
    Arithmetic,
    Nli,
    Code,
    Tools,
}

/// The built-in component that a name means; `None` for a file.
fn builtin_dataset(name: &str) -> Result<Option<Builtin>, DataError> {
    match name {
        facts::NAME => Ok(Some(Builtin::Facts)),
        arithmetic::NAME => Ok(Some(Builtin::Arithmetic)),
        builtin::nli::NAME => Ok(Some(Builtin::Nli)),
        code::NAME => Ok(Some(Builtin::Code)),
        builtin::tools::NAME => Ok(Some(Builtin::Tools)),
        _ if name.starts_with("builtin:") => Err(DataError::UnknownWorld(name.to_owned())),
        _ => Ok(None),
    }
}

impl Builtin {
    /// Every task, with its split.
    fn rows(&self) -> Vec<Row> {
        let splits = match self {
            Self::Facts => facts::SPLITS
                .iter()
                .map(|split| (*split, facts::tasks(split).unwrap_or_default()))
                .collect(),
            Self::Arithmetic => arithmetic::problems(),
            Self::Nli => builtin::nli::questions(),
            Self::Code => code::problems(),
            Self::Tools => builtin::tools::errands(),
        };
        let tasks = splits.into_iter().flat_map(|(split, tasks): (&str, Vec<Task>)| {
            tasks.into_iter().map(move |task| (task, Some(split.to_owned())))
        });
        (1..).zip(tasks).map(|(line, (task, split))| Row { task, split, line }).collect()
    }
}

/// The tasks of a split that are asked for; ids are checked over all rows, and of the others nothing else is kept.
fn choose(rows: Rows<'_>, split: &str, config: &TaskConfig) -> Result<Vec<Placed>, DataError> {
    let place = &config.data;
    let limit = config.limit.map_or(usize::MAX, std::num::NonZero::get);
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    let mut lowest: Option<u64> = None;
    let mut tasks = Vec::new();
    for row in rows {
        let Row { mut task, split: own, line } = row?;
        if config.ids == Ids::Line {
            task.id = line.to_string();
        }
        if let Some(first) = seen.insert((task.source.clone(), task.id.clone()), line) {
            return Err(DataError::Duplicate {
                place: place.clone(),
                id: task.id,
                lines: [first, line],
                remedy: "ids are part of every seed: give each its own, or write `task.ids = \"line\"`, and each is the \
                         number of its row",
            });
        }
        if task.question.trim().is_empty() {
            return Err(DataError::NoQuestion { place: place.clone(), id: task.id, line });
        }
        let own = own.unwrap_or_else(|| hashed_split(&task.id).to_owned());
        if split == ALL || split == own {
            let easy = match (task.level(), config.max_level) {
                (Some(level), Some(most)) => {
                    lowest = Some(lowest.map_or(level, |lowest| lowest.min(level)));
                    level <= most
                }
                _ => true,
            };
            if easy && tasks.len() < limit {
                tasks.push(Placed { task, line });
            }
        }
        *sizes.entry(own).or_default() += 1;
    }
    match (tasks.is_empty(), lowest, config.max_level) {
        (false, ..) => Ok(tasks),
        (true, Some(lowest), Some(most)) => {
            Err(DataError::TooHard { place: place.clone(), most, lowest })
        }
        (true, ..) => {
            let found: Vec<String> =
                sizes.iter().map(|(name, n)| format!("`{name}`: {n}")).collect();
            let found = if found.is_empty() { "none at all".to_owned() } else { found.join(", ") };
            let (place, split) = (place.clone(), split.to_owned());
            Err(DataError::NoTasks { place, split, found })
        }
    }
}

/// The split of a task whose file has none.
fn hashed_split(id: &str) -> &'static str {
    let digest = Sha256::digest(id.as_bytes());
    match u16::from_be_bytes([digest[0], digest[1]]) % 10 {
        0..=7 => "train",
        8 => "validation",
        _ => "test",
    }
}

#[cfg(test)]
mod tests;
