//! Kinds and formats of data sets.

/// Kind of a data set, in TRL's names of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `messages`: prompt and reply.
    Sft,
    /// `prompt`, `chosen`, `rejected`: replies to equal prompts.
    Preference,
    /// `prompt`, `completion`, `label`, `score`.
    Verifier,
    /// `prompt`, `completions`, `labels`, `scores`, `counts`: the turns of an episode.
    Steps,
}

impl Kind {
    /// Returns the name, which is that of the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sft => "sft",
            Self::Preference => "preference",
            Self::Verifier => "verifier",
            Self::Steps => "steps",
        }
    }
}

/// Removal of duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dedup {
    /// None.
    None,
    /// Of equal rows, the first is kept.
    #[default]
    Exact,
    /// Of rows of a seat and a task whose replies are nearly equal, the first is kept.
    Near,
}

impl Dedup {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exact => "exact",
            Self::Near => "near",
        }
    }
}

/// Format of the files of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RowFormat {
    /// One JSON object a line.
    #[default]
    Jsonl,
    /// Parquet, with lists and structs as columns, and the origin of a row as JSON.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl RowFormat {
    /// Returns the name, which is the extension of files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            #[cfg(feature = "parquet")]
            Self::Parquet => "parquet",
        }
    }
}
