//! Reasons why data cannot be loaded.

use std::path::PathBuf;

use super::place;

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
    /// A data set on the hub cannot be read.
    #[error("{message}")]
    Hub {
        /// The data set, and what is wrong with it.
        message: String,
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
