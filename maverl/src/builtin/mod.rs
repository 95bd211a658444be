//! Built-in data: generated corpora and tasks that need no download.

pub mod arithmetic;
pub mod code;
pub mod facts;
pub mod nli;
pub mod resets;
pub mod tools;

use serde::{Deserialize, Serialize};

use crate::task::Task;

/// Generates tasks of a built-in data source from another seed than that of the shipped tasks, by split. `None` for a
/// name without a generator.
pub fn invent(name: &str, seed: u64) -> Option<Vec<(&'static str, Vec<Task>)>> {
    match name {
        arithmetic::NAME => Some(arithmetic::invent(seed)),
        code::NAME => Some(code::invent(seed)),
        nli::NAME => Some(nli::invent(seed)),
        tools::NAME => Some(tools::invent(seed)),
        _ => None,
    }
}

/// Returns the tasks of each split, `(name, rounds)`, numbered within it. `round` generates one task of each kind.
fn splits(
    splits: &[(&'static str, usize)],
    mut round: impl FnMut() -> Vec<Task>,
) -> Vec<(&'static str, Vec<Task>)> {
    let tasks = |&(split, rounds): &(&'static str, usize)| {
        let mut tasks: Vec<Task> = (0..rounds).flat_map(|_| round()).collect();
        for (number, task) in tasks.iter_mut().enumerate() {
            task.id = format!("{split}-{number:04}");
        }
        (split, tasks)
    };
    splits.iter().map(tasks).collect()
}

/// A document of a corpus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Unique in its corpus; breaks ties between equally good matches.
    pub key: String,
    /// May be empty.
    pub title: String,
    /// Text of the document.
    pub text: String,
}

impl Document {
    /// Creates a document whose title is the quoted first line of its contents, as in Search-R1's corpora.
    pub fn from_contents(key: impl Into<String>, contents: &str) -> Self {
        let (title, text) = contents.split_once('\n').unwrap_or(("", contents));
        Self {
            key: key.into(),
            title: title.trim().trim_matches('"').to_owned(),
            text: text.trim().to_owned(),
        }
    }

    /// Formats `(title) text` on one line.
    pub fn line(&self) -> String {
        let words = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.title.is_empty() { words } else { format!("({}) {words}", self.title) }
    }
}

/// Asserts that generated problems are deterministic, have the sizes of their splits, and are unique.
#[cfg(test)]
fn assert_splits(problems: fn() -> Vec<(&'static str, Vec<Task>)>, sizes: &[(&str, usize)]) {
    let splits = problems();
    assert_eq!(splits, problems());
    let found: Vec<(&str, usize)> =
        splits.iter().map(|(split, tasks)| (*split, tasks.len())).collect();
    assert_eq!(found, sizes);
    let mut asked = std::collections::BTreeSet::new();
    for task in splits.iter().flat_map(|(_, tasks)| tasks) {
        assert!(asked.insert(&task.question), "{}", task.question);
    }
}
