//! Description of data: splits, columns, the first row, and the task that it is.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::DataError;
use super::file::ROW;
use super::hub::{find_data, is_hub, preset, with_preset};
use super::jsonl;
use super::sources::{SourceFile, WantedRows, data_place, open_sources};
use crate::config::TaskConfig;
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

/// Describes the data of a configuration of tasks: its splits, and the first row of its split. Files of the split are
/// downloaded.
///
/// # Errors
///
/// See [`DataError`]; data without rows are one.
pub fn describe(task: &TaskConfig, base: &Path) -> Result<DataDescription, DataError> {
    let task = &*with_preset(task);
    let one = std::num::NonZeroUsize::MIN;
    let first_of = TaskConfig { limit: Some(one), ..task.clone() };
    let files = open(&first_of, base)?;
    let first = rows(&files, 1)?.into_iter().next().ok_or_else(|| DataError::Empty {
        place: task.data.clone(),
        what: "rows",
        wanted: "name other data",
    })?;
    let columns =
        first.iter().map(|(name, value)| DataColumn { name: name.clone(), kind: kind(value) });
    let columns = columns.collect();
    let read = match files.first() {
        Some(file) => jsonl::first_task(file, first.clone(), task),
        None => Err("there is no row".to_owned()),
    };
    let (found, no_task) = match read {
        Ok(task) => (Some(task), None),
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
    rows(&open(task, base)?, most)
}

fn open(task: &TaskConfig, base: &Path) -> Result<Vec<SourceFile>, DataError> {
    open_sources(&data_place(&task.data, base), &WantedRows::of_split(task, &task.split))
}

fn rows(files: &[SourceFile], most: usize) -> Result<Vec<Map<String, Value>>, DataError> {
    let mut found = Vec::new();
    for file in files {
        for row in file.rows(ROW)?.take(most - found.len()) {
            found.push(row?.1);
        }
        if found.len() == most {
            break;
        }
    }
    Ok(found)
}

/// Adds configurations and splits of a data set on the hub.
fn with_set(described: DataDescription, task: &TaskConfig) -> Result<DataDescription, DataError> {
    let set = find_data(&task.data)?;
    let mut splits = Vec::new();
    for name in set.splits() {
        let files = set.files(name);
        let bytes = files.iter().map(|(_, size)| size).sum();
        let rows = match set.listed_rows(name) {
            None if bytes <= COUNTED => Some(counted_rows(task, name)?),
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
        notes: converted.into_iter().collect(),
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
