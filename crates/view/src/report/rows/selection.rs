//! Selection of rows of episodes.

/// Selection and order of rows.
#[derive(Debug, Default)]
pub(crate) struct RowSelection {
    pub(crate) steps: (Option<u32>, Option<u32>),
    pub(crate) score: (Option<f64>, Option<f64>),
    pub(crate) stage: Option<String>,
    pub(crate) seat: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) solved: Option<bool>,
    pub(crate) flag: Option<Flag>,
    /// Key, and true for descending order.
    pub(crate) sort: (SortKey, bool),
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

/// Property of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    Malformed,
    Truncated,
    Unscored,
}

/// Order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SortKey {
    #[default]
    Step,
    Score,
    Turns,
    Tokens,
    Reward,
}

impl RowSelection {
    /// Selects all fitting rows instead of a page of them.
    pub(crate) fn select_all(&mut self) {
        (self.offset, self.limit) = (0, usize::MAX);
    }
}
