//! State of one episode, as data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::IntoMap;
use crate::env::EnvError;
use crate::task::Task;

/// Effects of an episode's calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub(super) struct State {
    /// Number of calls so far.
    pub(super) calls: u32,
    /// Number of rejected calls: no call, an unknown tool, wrong arguments, too many calls.
    pub(super) refused: u32,
    /// Number of executed calls that failed.
    pub(super) failed: u32,
    /// Contents of files that differ from the directory; `None` for deleted files.
    pub(super) files: BTreeMap<String, Option<String>>,
    /// The episode's own database, once a statement has changed it: its file in base 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database: Option<String>,
}

impl State {
    /// Returns the initial state of an episode: the files of the task.
    pub(super) fn open(task: &Task) -> Self {
        Self { files: files(task), ..Self::default() }
    }

    /// Reads the output of [`State::json`].
    pub(super) fn read(json: &Value) -> Result<Self, EnvError> {
        Self::deserialize(json).map_err(|error| EnvError(format!("the episode's state: {error}")))
    }

    pub(super) fn json(&self) -> Value {
        serde_json::to_value(self).expect("a state is texts and numbers")
    }
}

/// Returns the files with which a task's episodes begin.
pub(super) fn files(task: &Task) -> BTreeMap<String, Option<String>> {
    let files = task.data.get("files").and_then(Value::as_object);
    let files = files.into_iter().flatten();
    files
        .filter_map(|(path, text)| Some((path.clone(), Some(text.as_str()?.to_owned()))))
        .into_map()
}
