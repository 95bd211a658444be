//! Description of data: splits, columns, the first row, and the task that it is.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::DataError;
use super::file::ROW;
use super::hub::{find_data, is_hub, preset, with_preset};
use super::sources::{SourceFile, WantedRows, data_place, open_sources};
use super::split::{ALL, first_tasks};
use super::{file_rows, is_served, load, task_form};
use crate::config::{DataFormat, TaskConfig};
use crate::task::Task;

/// Largest split whose rows are counted, in bytes.
const COUNTED: u64 = 64 << 20;

/// Description of data.
#[derive(Debug, Serialize)]
pub struct DataDescription {
    /// The name; of a data set on the hub, with its commit.
    pub data: String,
    /// Configurations of the data set; empty for a file.
    pub configs: Vec<String>,
    /// The configuration that is described; empty for a file.
    pub config: String,
    /// Splits of the data set; empty for a file.
    pub splits: Vec<DataSplit>,
    /// Columns of the first row.
    pub columns: Vec<DataColumn>,
    /// The first row.
    pub first: Map<String, Value>,
    /// The task that the first row is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// Reason that the first row is no task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_task: Option<String>,
    /// Known names of keys, and the environment, of a known data set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<String>,
    /// Notes about what is unusual in the data set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A split of a data set.
#[derive(Debug, Serialize)]
pub struct DataSplit {
    /// Its name.
    pub name: String,
    /// Number of its files.
    pub files: usize,
    /// Size of its files in bytes.
    pub bytes: u64,
    /// Number of its rows; `None` if neither the card says it nor its files are small.
    pub rows: Option<u64>,
}

/// A column.
#[derive(Debug, Serialize)]
pub struct DataColumn {
    /// Its name.
    pub name: String,
    /// Type of its value in the first row.
    pub kind: String,
}

/// First rows of a split, and the tasks that they are.
struct FirstRows {
    /// Rows as the files have them; where a file has no rows, and of data without files, the tasks.
    rows: Vec<Map<String, Value>>,
    /// The tasks, or the reason that the first rows are none.
    tasks: Result<Vec<Task>, String>,
}

/// Describes the data of a configuration of tasks: its splits, and the first row of its split. Files of the split are
/// downloaded.
///
/// # Errors
///
/// See [`DataError`]; data without rows are one.
pub fn describe(task: &TaskConfig, base: &Path) -> Result<DataDescription, DataError> {
    let task = &*with_preset(task);
    let FirstRows { rows, tasks } = first_rows(task, base, 1)?;
    let first = rows.into_iter().next().ok_or_else(|| DataError::Empty {
        place: task.data.clone(),
        what: "rows",
        wanted: "name other data",
    })?;
    let columns =
        first.iter().map(|(name, value)| DataColumn { name: name.clone(), kind: kind(value) });
    let columns = columns.collect();
    let (found, no_task) = match tasks {
        Ok(tasks) => (tasks.into_iter().next(), None),
        Err(reason) => (None, Some(reason)),
    };
    let described = DataDescription {
        data: task.data.clone(),
        configs: Vec::new(),
        config: String::new(),
        splits: Vec::new(),
        columns,
        first,
        task: found,
        no_task,
        known: known(&task.data),
        notes: Vec::new(),
    };
    if is_hub(&task.data) { with_set(described, task) } else { Ok(described) }
}

/// Returns the first rows of the split of a configuration of tasks, as the files have them.
///
/// # Errors
///
/// See [`DataError`].
pub fn raw_rows(
    task: &TaskConfig,
    base: &Path,
    most: usize,
) -> Result<Vec<Map<String, Value>>, DataError> {
    Ok(first_rows(&with_preset(task), base, most)?.rows)
}

/// Reads the first rows of the split of a configuration of tasks: those whose tasks a run reads. Rows that are no tasks, such as
/// demonstrations, are chosen by their key `split`.
fn first_rows(task: &TaskConfig, base: &Path, most: usize) -> Result<FirstRows, DataError> {
    let task = &TaskConfig { limit: std::num::NonZero::new(most), ..task.clone() };
    if task.data.starts_with("builtin:") || is_served(&task.data) {
        let tasks = load(task, &task.split, base)?;
        return Ok(FirstRows { rows: as_rows(&tasks), tasks: Ok(tasks) });
    }
    let wanted = WantedRows::of_split(task, &task.split);
    let files = open_sources(&data_place(&task.data, base), &wanted)?;
    let read = file_rows(&files, task).and_then(|rows| first_tasks(rows, task, most));
    let placed = match read {
        Ok(placed) => placed,
        Err(DataError::Damaged { message, .. }) => {
            return Ok(FirstRows { rows: unread_rows(&files, task, most)?, tasks: Err(message) });
        }
        Err(error) => return Err(error),
    };
    let mut has_rows = true;
    for file in &files {
        has_rows &= task_form(file, task)? != DataFormat::Squad;
    }
    let lines: BTreeSet<usize> = placed.lines.into_iter().collect();
    let tasks: Vec<Task> = placed.tasks.iter().collect();
    let rows = if has_rows { numbered_rows(&files, &lines)? } else { as_rows(&tasks) };
    Ok(FirstRows { rows, tasks: Ok(tasks) })
}

/// Returns tasks as rows.
fn as_rows(tasks: &[Task]) -> Vec<Map<String, Value>> {
    let rows = tasks.iter().map(|task| match serde_json::to_value(task) {
        Ok(Value::Object(row)) => row,
        _ => Map::new(),
    });
    rows.collect()
}

/// Returns the rows with these numbers: in a file, those of lines; in a data set, in the order in which its files are read.
fn numbered_rows(
    files: &[SourceFile],
    lines: &BTreeSet<usize>,
) -> Result<Vec<Map<String, Value>>, DataError> {
    let (mut found, mut number) = (Vec::new(), 0);
    for file in files {
        for row in file.rows(ROW)? {
            let (line, row) = row?;
            number += 1;
            if lines.contains(if file.set.is_some() { &number } else { &line }) {
                found.push(row);
            }
            if found.len() == lines.len() {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Returns the first rows of a split of data that are no tasks.
fn unread_rows(
    files: &[SourceFile],
    task: &TaskConfig,
    most: usize,
) -> Result<Vec<Map<String, Value>>, DataError> {
    let (mut found, mut others) = (Vec::new(), false);
    for file in files {
        for row in file.rows::<Map<String, Value>>(ROW)? {
            let row = row?.1;
            let own = row.get("split").and_then(Value::as_str);
            let is_chosen = match &file.set {
                Some(set) => set.has_row(own.map(str::to_owned), &task.split, task.unsplit),
                None => task.split == ALL || own.is_none_or(|own| own == task.split),
            };
            if is_chosen {
                found.push(row);
            }
            others |= !is_chosen;
            if found.len() == most {
                return Ok(found);
            }
        }
    }
    if found.is_empty() && others {
        let (place, split) = (task.data.clone(), task.split.clone());
        let found = "rows of other splits".to_owned();
        return Err(DataError::NoTasks { place, split, found });
    }
    Ok(found)
}

/// Adds configurations and splits of a data set on the hub.
fn with_set(described: DataDescription, task: &TaskConfig) -> Result<DataDescription, DataError> {
    let set = find_data(&task.data)?;
    let (mut splits, mut notes) = (Vec::new(), set.notes().to_vec());
    for name in set.splits() {
        let files = set.files(name);
        let bytes = files.iter().map(|(_, size)| size).sum();
        let rows = match set.listed_rows(name) {
            None if bytes <= COUNTED => match counted_rows(task, name) {
                // Offline, another split may not be there.
                Err(DataError::Hub { message }) => {
                    notes.push(message);
                    None
                }
                counted => Some(counted?),
            },
            listed => listed,
        };
        splits.push(DataSplit { name: name.to_owned(), files: files.len(), bytes, rows });
    }
    let converted = set.is_converted.then(|| {
        "its own files are in a form that is not read; these are those of the hub's conversion, `refs/convert/parquet`"
            .to_owned()
    });
    Ok(DataDescription {
        data: set.pinned(),
        configs: set.configs().to_vec(),
        config: set.config().to_owned(),
        splits,
        notes: converted.into_iter().chain(notes).collect(),
        ..described
    })
}

fn counted_rows(task: &TaskConfig, split: &str) -> Result<u64, DataError> {
    let wanted = WantedRows { limit: None, ..WantedRows::of_split(task, split) };
    let mut count = 0;
    for file in &open_sources(Path::new(&task.data), &wanted)? {
        for row in file.rows::<Map<String, Value>>(ROW)? {
            row?;
            count += 1;
        }
    }
    Ok(count)
}

/// Says what is known about a data set.
fn known(data: &str) -> Vec<String> {
    let Some(preset) = preset(data) else { return Vec::new() };
    let keys = preset.keys.iter().map(|(ours, theirs)| format!("{ours} = {theirs:?}"));
    let keys = keys.collect::<Vec<_>>().join(", ");
    let mut known = Vec::new();
    if !keys.is_empty() {
        known.push(format!("task.keys = {{ {keys} }}"));
    }
    if !preset.ignore.is_empty() {
        known.push(format!("task.ignore = {:?}", preset.ignore));
    }
    if !preset.environment.is_empty() {
        known.push(format!("environment.name = {:?}", preset.environment));
    }
    known
}

/// Describes the type of a value.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "truth value".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "text".to_owned(),
        Value::Array(items) => match items.first() {
            Some(first) => format!("list of {}", kind(first)),
            None => "empty list".to_owned(),
        },
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}: {}", kind(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}
