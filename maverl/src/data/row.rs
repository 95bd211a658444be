//! Rows of data, as tasks.

use super::error::DataError;
use crate::task::Task;

/// A task, its split if the file states it, and its line or row, from 1.
pub(super) struct Row {
    pub(super) task: Task,
    pub(super) split: Option<String>,
    pub(super) line: usize,
}

/// All rows of a data source, in file order.
pub(super) type Rows<'d> = Box<dyn Iterator<Item = Result<Row, DataError>> + 'd>;
