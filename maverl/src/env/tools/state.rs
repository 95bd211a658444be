//! What belongs to one episode, as data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::env::EnvError;
use crate::task::Task;

/// What an episode's calls have done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub(super) struct State {
    /// Calls so far.
    pub(super) calls: u32,
    /// Those that were not carried out: no call, an unknown tool, wrong arguments, too many.
    pub(super) refused: u32,
    /// Those that were, and failed.
    pub(super) failed: u32,
    /// What files say that are not as the directory has them; `None` for those that are deleted.
    pub(super) files: BTreeMap<String, Option<String>>,
    /// The episode's own database, once a statement changed it: its file in base 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database: Option<String>,
}

impl State {
    /// The state an episode begins with: the files of the task.
    pub(super) fn open(task: &Task) -> Self {
        Self { files: files(task), ..Self::default() }
    }

    /// Reads what [`State::json`] wrote.
    pub(super) fn read(json: &Value) -> Result<Self, EnvError> {
        Self::deserialize(json)
            .map_err(|error| EnvError::new(format!("the episode's state: {error}")))
    }

    pub(super) fn json(&self) -> Value {
        serde_json::to_value(self).expect("a state is texts and numbers")
    }
}

/// The files that a task's episodes begin with.
pub(super) fn files(task: &Task) -> BTreeMap<String, Option<String>> {
    let files = task.data.get("files").and_then(Value::as_object);
    let text =
        |(path, text): (&String, &Value)| Some((path.clone(), Some(text.as_str()?.to_owned())));
    files.into_iter().flatten().filter_map(text).collect()
}
