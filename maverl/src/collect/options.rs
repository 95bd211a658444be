//! Options of a collection.

use crate::collect::filter::Filters;
use crate::collect::kind::{Dedup, Kind, RowFormat};

/// Choice of rows.
#[derive(Debug, Clone)]
pub struct CollectOptions {
    /// Kinds of data sets.
    pub kinds: Vec<Kind>,
    /// Conditions of rows.
    pub filters: Filters,
    /// Removal of duplicates.
    pub dedup: Dedup,
    /// Maximum number of verifier rows of a task with each label.
    pub balance: Option<usize>,
    /// Part of the reward of a turn whose sign is the label of a verifier row; the outcome of the episode without one.
    pub label: Option<String>,
    /// Minimum difference of the rewards of a preference pair.
    pub margin: f64,
    /// Maximum number of preference pairs of a prompt.
    pub pairs: usize,
    /// Share of the tasks whose rows are in the test split.
    pub test_share: f64,
    /// Format of the files.
    pub format: RowFormat,
}

impl CollectOptions {
    /// Returns the name of the file of a split.
    pub(super) fn file_name(&self, kind: Kind, split: &str) -> String {
        let (kind, format) = (kind.name(), self.format.name());
        if self.test_share > 0.0 {
            format!("{kind}-{split}.{format}")
        } else {
            format!("{kind}.{format}")
        }
    }
}
