//! Rows by the location of their episode, and by their task.

use super::{IndexRow, RowIndex, SCORED, SOLVED};

/// The file of an episode, and where it is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowLocation {
    /// Number of the stage.
    pub(crate) stage: u16,
    pub(crate) step: u32,
    /// Offset of the frame in the file.
    pub(crate) frame: u64,
    /// Offset of the episode in the frame.
    pub(crate) at: u32,
    /// Index of the episode in its file.
    pub(crate) n: u32,
}

/// An episode of a task.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(crate) struct TaskRow {
    pub(crate) step: u64,
    pub(crate) n: u64,
    pub(crate) index: u32,
    pub(crate) solved: Option<bool>,
    pub(crate) score: Option<f64>,
}

impl RowIndex {
    /// Returns the location of the episode of a row.
    pub(crate) fn location(&self, at: usize) -> Option<RowLocation> {
        let IndexRow { stage, step, n, frame, at, .. } = *self.rows.get(at)?;
        Some(RowLocation { stage, step, frame, at, n })
    }

    /// Returns the name of a stage by its number.
    pub(crate) fn stage_name(&self, number: u16) -> &str {
        &self.stages.names[usize::from(number)]
    }

    /// Returns the rows of the same task in a stage, ascending by step and index.
    pub(crate) fn of_task(&self, at: usize) -> Vec<TaskRow> {
        let given = self.rows[at];
        self.rows
            .iter()
            .filter(|row| (row.task, row.stage) == (given.task, given.stage))
            .map(|row: &IndexRow| TaskRow {
                step: u64::from(row.step),
                n: u64::from(row.n),
                index: row.index,
                solved: row.has_flag(SCORED).then_some(row.has_flag(SOLVED)),
                score: row.has_flag(SCORED).then_some(row.score),
            })
            .collect()
    }

    /// Returns the step and the index of the first episode of a task in a stage with an outcome.
    pub(crate) fn with_outcome(&self, stage: &str, task: &str, solved: bool) -> Option<(u32, u32)> {
        let (stage, task) = (self.stages.find_number(stage)?, self.tasks.find_number(task)?);
        self.rows
            .iter()
            .find(|row: &&IndexRow| {
                (u32::from(row.stage), row.task) == (stage, task)
                    && row.has_flag(SCORED)
                    && row.has_flag(SOLVED) == solved
            })
            .map(|row| (row.step, row.n))
    }
}
