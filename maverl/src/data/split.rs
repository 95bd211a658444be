//! Selection of the tasks of a split.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use sha2::{Digest, Sha256};

use super::error::DataError;
use super::ids::SeenIds;
use super::place::PlacedTasks;
use super::row::{Row, Rows};
use crate::config::{Ids, TaskConfig, Unsplit};
use crate::task::Task;

/// Name of the split with every task.
pub const ALL: &str = "all";

/// A choice of tasks: those of a split, at most so many.
#[derive(Debug, Clone, Copy)]
pub struct TaskChoice<'s> {
    /// Name of the split.
    pub split: &'s str,
    /// Maximum number of tasks, the first ones; all if `None`.
    pub limit: Option<NonZeroUsize>,
}

/// Tasks of a choice, or the error that there are none.
pub type ChosenTasks = Result<PlacedTasks, DataError>;

/// Tasks of a choice so far.
#[derive(Default)]
struct TaskSelection {
    placed: PlacedTasks,
    /// Lowest level of a task of the split.
    lowest: Option<u64>,
}

/// Selects tasks, for each choice. Ids are checked over all rows, and nothing else of the other rows is kept. The outer error
/// is of a row.
pub(super) fn choose(
    rows: Rows<'_>,
    choices: &[TaskChoice<'_>],
    config: &TaskConfig,
) -> Result<Vec<ChosenTasks>, DataError> {
    let mut ids = SeenIds::default();
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    let mut chosen: Vec<TaskSelection> = choices.iter().map(|_| TaskSelection::default()).collect();
    for row in rows {
        let (task, line, own) = divided(row?, config);
        check_row(&task, line, &mut ids, &config.data)?;
        for (choice, chosen) in choices.iter().zip(&mut chosen) {
            if is_of(own.as_deref(), choice.split) {
                chosen.add_task((&task, line), choice.limit, config.max_level);
            }
        }
        count_row(&mut sizes, own);
    }
    let chosen = choices.iter().zip(chosen);
    Ok(chosen.map(|(choice, chosen)| chosen.finish(choice.split, config, &sizes)).collect())
}

/// Returns the first tasks of a split, at most so many. Rows after them are not read.
///
/// # Errors
///
/// The error of a row, or that the split has no tasks.
pub(super) fn first_tasks(rows: Rows<'_>, config: &TaskConfig, most: usize) -> ChosenTasks {
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    let mut placed = PlacedTasks::default();
    for row in rows {
        let (task, line, own) = divided(row?, config);
        if is_of(own.as_deref(), &config.split) {
            placed.push(&task, line);
        }
        if placed.lines.len() >= most {
            break;
        }
        count_row(&mut sizes, own);
    }
    if placed.lines.is_empty() {
        return Err(no_tasks(&config.data, &config.split, &sizes));
    }
    Ok(placed)
}

/// Counts a row of a split, or of every split.
fn count_row(sizes: &mut BTreeMap<String, usize>, own: Option<String>) {
    *sizes.entry(own.unwrap_or_else(|| ALL.to_owned())).or_default() += 1;
}

/// Returns the task of a row with its line and its split; `None` if it is of every split.
fn divided(row: Row, config: &TaskConfig) -> (Task, usize, Option<String>) {
    let Row { mut task, split: own, line, .. } = row;
    if config.ids == Ids::Line {
        task.id = line.to_string();
    }
    let own = match (own, config.unsplit) {
        (Some(own), _) => Some(own),
        (None, Unsplit::Every) => None,
        (None, Unsplit::Hashed) => Some(hashed_split(&task.id).to_owned()),
    };
    (task, line, own)
}

/// Returns true if a row is of a split. One without a split of its own is of every split.
fn is_of(own: Option<&str>, split: &str) -> bool {
    split == ALL || own.is_none_or(|own| own == split)
}

impl TaskSelection {
    /// Adds a task of the split, if it is not too hard and there is room.
    fn add_task(
        &mut self,
        (task, line): (&Task, usize),
        limit: Option<NonZeroUsize>,
        max_level: Option<u64>,
    ) {
        let easy = match (task.level(), max_level) {
            (Some(level), Some(most)) => {
                self.lowest = Some(self.lowest.map_or(level, |lowest| lowest.min(level)));
                level <= most
            }
            _ => true,
        };
        if easy && self.placed.lines.len() < limit.map_or(usize::MAX, NonZeroUsize::get) {
            self.placed.push(task, line);
        }
    }

    fn finish(
        self,
        split: &str,
        config: &TaskConfig,
        sizes: &BTreeMap<String, usize>,
    ) -> ChosenTasks {
        let place = &config.data;
        match (self.placed.lines.is_empty(), self.lowest, config.max_level) {
            (false, ..) => Ok(self.placed),
            (true, Some(lowest), Some(most)) => {
                Err(DataError::TooHard { place: place.clone(), most, lowest })
            }
            (true, ..) => Err(no_tasks(place, split, sizes)),
        }
    }
}

/// Refuses a row whose id another row of its source has, or that has no question.
fn check_row(task: &Task, line: usize, ids: &mut SeenIds, place: &str) -> Result<(), DataError> {
    if let Some(first) = ids.insert(&task.source, &task.id, line) {
        return Err(DataError::Duplicate {
            place: place.to_owned(),
            id: task.id.clone(),
            lines: [first, line],
            remedy: "ids are part of every seed: give each its own, or write `task.ids = \"line\"`, and each is the \
                     number of its row",
        });
    }
    if task.question.trim().is_empty() {
        let place = place.to_owned();
        return Err(DataError::NoQuestion { place, id: task.id.clone(), line });
    }
    Ok(())
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
