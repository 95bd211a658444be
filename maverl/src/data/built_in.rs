//! Data that are built in.

use super::error::DataError;
use super::row::Row;
use crate::builtin::{self, arithmetic, code, facts};
use crate::task::Task;

/// A source of built-in data.
pub(super) enum Builtin {
    Facts,
    Arithmetic,
    Nli,
    Code,
    Resets,
    Tools,
}

/// Returns the built-in data that a name denotes; `None` for a file.
pub(super) fn builtin_dataset(name: &str) -> Result<Option<Builtin>, DataError> {
    match name {
        facts::NAME => Ok(Some(Builtin::Facts)),
        arithmetic::NAME => Ok(Some(Builtin::Arithmetic)),
        builtin::nli::NAME => Ok(Some(Builtin::Nli)),
        code::NAME => Ok(Some(Builtin::Code)),
        builtin::resets::NAME => Ok(Some(Builtin::Resets)),
        builtin::tools::NAME => Ok(Some(Builtin::Tools)),
        _ if name.starts_with("builtin:") => Err(DataError::UnknownWorld(name.to_owned())),
        _ => Ok(None),
    }
}

impl Builtin {
    /// Returns every task with its split.
    pub(super) fn rows(&self) -> Vec<Row> {
        let splits = match self {
            Self::Facts => facts::SPLITS
                .iter()
                .map(|split| (*split, facts::tasks(split).unwrap_or_default()))
                .collect(),
            Self::Arithmetic => arithmetic::problems(),
            Self::Nli => builtin::nli::questions(),
            Self::Code => code::problems(),
            Self::Resets => builtin::resets::tasks(),
            Self::Tools => builtin::tools::errands(),
        };
        let tasks = splits.into_iter().flat_map(|(split, tasks): (&str, Vec<Task>)| {
            tasks.into_iter().map(move |task| (task, Some(split.to_owned())))
        });
        (1..)
            .zip(tasks)
            .map(|(line, (task, split))| Row { task, split, line, named: true })
            .collect()
    }
}
