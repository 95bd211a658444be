//! Data sets from recorded episodes: rows for supervised training, preferences, verifiers and process rewards.
//!
//! Equal episodes and options make equal files: rows are in the order of tasks, and nothing is sampled.

mod card;
mod dedup;
mod example;
mod filter;
mod pairs;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod split;
mod steps;
mod write;

pub use example::Collected;
pub use filter::{Filters, Pattern};
pub use write::{RowSource, write};

use crate::IntoMap;
use std::collections::BTreeMap;

use serde_json::Value;

use example::{CollectedExample, examples};
use rows::{sft, verifier};

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
    fn name(self) -> &'static str {
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
    fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            #[cfg(feature = "parquet")]
            Self::Parquet => "parquet",
        }
    }
}

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

/// Rows of a data set.
#[derive(Debug, Clone, Default)]
pub struct DataSet {
    /// Rows of the training split.
    pub train: Vec<Row>,
    /// Rows of the test split.
    pub test: Vec<Row>,
    /// Number of removed rows by reason.
    pub removed: BTreeMap<&'static str, u64>,
}

/// A row of a data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Columns, of which `maverl` has the origin of the row.
    pub columns: Value,
    /// Replies of the row, for the removal of duplicates.
    replies: String,
    task: CollectedTask,
    seat: String,
    label: Option<bool>,
    /// True if the reply was asked for by a further instruction.
    asked: bool,
    /// Key of the question, which decides the split.
    question: String,
}

/// Source and id of a task.
type CollectedTask = (String, String);

/// Result of a collection.
#[derive(Debug, Clone)]
pub struct Collection {
    /// Data sets by kind.
    pub sets: BTreeMap<Kind, DataSet>,
    /// Number of episodes.
    pub episodes: u64,
    /// Number of episodes without a score, which give no rows.
    pub unscored: u64,
}

/// Makes data sets of episodes.
pub fn collect(mut episodes: Vec<Collected>, options: &CollectOptions) -> Collection {
    episodes.sort_by(|a, b| a.order().cmp(&b.order()));
    let all = episodes.len() as u64;
    episodes.retain(|collected| collected.episode.score().is_some());
    let unscored = all - episodes.len() as u64;
    let examples = examples(&episodes);
    let sets = options.kinds.iter().map(|&kind| (kind, set(kind, &examples, options)));
    Collection { sets: sets.into_map(), episodes: all, unscored }
}

fn set(kind: Kind, examples: &[CollectedExample<'_>], options: &CollectOptions) -> DataSet {
    let mut set = DataSet::default();
    let kept: Vec<&CollectedExample<'_>> = examples
        .iter()
        .filter(|example| match options.filters.reason(kind, example) {
            None => true,
            Some(reason) => {
                *set.removed.entry(reason).or_default() += 1;
                false
            }
        })
        .collect();
    let mut rows: Vec<Row> = match kind {
        Kind::Sft => kept.into_iter().map(sft).collect(),
        Kind::Verifier => {
            kept.into_iter().map(|example| verifier(example, options.label.as_deref())).collect()
        }
        Kind::Preference => pairs::pairs(&kept, options.margin, options.pairs),
        Kind::Steps => steps::steps(&kept, examples),
    };
    let count = |rows: &[Row]| rows.len() as u64;
    let before = count(&rows);
    dedup::dedup(&mut rows, options.dedup);
    let after = count(&rows);
    if before > after {
        set.removed.insert("duplicate", before - after);
    }
    if let (Kind::Verifier, Some(most)) = (kind, options.balance) {
        split::balance(&mut rows, most);
        if after > count(&rows) {
            set.removed.insert("balance", after - count(&rows));
        }
    }
    let tested = |row: &mut Row| split::is_test(&row.question, options.test_share);
    set.test = rows.extract_if(.., tested).collect();
    set.train = rows;
    // Rows of the same question cannot be trained on either.
    let asked = set.test.extract_if(.., |row| row.asked).count() as u64;
    if asked > 0 {
        set.removed.insert("asked", asked);
    }
    set
}

#[cfg(test)]
mod tests;
