//! Rows of data, as tasks.

use super::error::DataError;
use crate::task::Task;

/// A task, its split if the file states it, and its line or row, from 1.
pub(super) struct Row {
    pub(super) task: Task,
    pub(super) split: Option<String>,
    pub(super) line: usize,
    /// True if the id is that of the row, and not its line.
    pub(super) named: bool,
}

/// All rows of a data source, in file order.
pub(super) type Rows<'d> = Box<dyn Iterator<Item = Result<Row, DataError>> + 'd>;
