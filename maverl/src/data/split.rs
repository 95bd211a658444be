//! Selection of the tasks of a split.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::error::DataError;
use super::place::Placed;
use super::row::{Row, Rows};
use crate::config::{Ids, TaskConfig, Unsplit};

/// Name of the split with every task.
pub const ALL: &str = "all";

/// Selects the tasks of a split. Ids are checked over all rows, and nothing else of the other rows is kept.
pub(super) fn choose(
    rows: Rows<'_>,
    split: &str,
    config: &TaskConfig,
) -> Result<Vec<Placed>, DataError> {
    let place = &config.data;
    let limit = config.limit.map_or(usize::MAX, std::num::NonZero::get);
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    let mut lowest: Option<u64> = None;
    let mut tasks = Vec::new();
    for row in rows {
        let Row { mut task, split: own, line, .. } = row?;
        if config.ids == Ids::Line {
            task.id = line.to_string();
        }
        if let Some(first) = seen.insert((task.source.clone(), task.id.clone()), line) {
            return Err(DataError::Duplicate {
                place: place.clone(),
                id: task.id,
                lines: [first, line],
                remedy: "ids are part of every seed: give each its own, or write `task.ids = \"line\"`, and each is the \
                         number of its row",
            });
        }
        if task.question.trim().is_empty() {
            return Err(DataError::NoQuestion { place: place.clone(), id: task.id, line });
        }
        let everywhere = own.is_none() && config.unsplit == Unsplit::Every;
        let own = match own {
            Some(own) => own,
            None if everywhere => ALL.to_owned(),
            None => hashed_split(&task.id).to_owned(),
        };
        if split == ALL || everywhere || split == own {
            let easy = match (task.level(), config.max_level) {
                (Some(level), Some(most)) => {
                    lowest = Some(lowest.map_or(level, |lowest| lowest.min(level)));
                    level <= most
                }
                _ => true,
            };
            if easy && tasks.len() < limit {
                tasks.push(Placed { task, line });
            }
        }
        *sizes.entry(own).or_default() += 1;
    }
    match (tasks.is_empty(), lowest, config.max_level) {
        (false, ..) => Ok(tasks),
        (true, Some(lowest), Some(most)) => {
            Err(DataError::TooHard { place: place.clone(), most, lowest })
        }
        (true, ..) => Err(no_tasks(place, split, &sizes)),
    }
}

/// Returns the error of a split without tasks, with the number of tasks of the others.
fn no_tasks(place: &str, split: &str, sizes: &BTreeMap<String, usize>) -> DataError {
    let found: Vec<String> = sizes.iter().map(|(name, n)| format!("`{name}`: {n}")).collect();
    let found = if found.is_empty() { "none at all".to_owned() } else { found.join(", ") };
    DataError::NoTasks { place: place.to_owned(), split: split.to_owned(), found }
}

/// Returns the split of a task whose file has no splits.
fn hashed_split(id: &str) -> &'static str {
    let digest = Sha256::digest(id.as_bytes());
    match u16::from_be_bytes([digest[0], digest[1]]) % 10 {
        0..=7 => "train",
        8 => "validation",
        _ => "test",
    }
}
