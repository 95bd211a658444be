//! Tasks of a served environment. Clients are told ids and questions, never references.

use serde_json::{Value, json};

use crate::task::Task;

/// Tasks by split, of which the first is played if a reset names none. None is empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskSet(pub(crate) Vec<(String, Vec<Task>)>);

impl TaskSet {
    /// Returns the names of the splits with their kinds.
    pub(super) fn splits(&self) -> Value {
        let kind = |name: &str| match name {
            "train" | "test" => name.to_owned(),
            _ => "validation".to_owned(),
        };
        let splits = self.0.iter().map(|(name, _)| json!({"name": name, "type": kind(name)}));
        splits.collect()
    }

    /// Returns the tasks of a split; of the first without a name.
    pub(super) fn split(&self, name: &str) -> Result<&[Task], String> {
        let found = match name {
            "" => self.0.first(),
            name => self.0.iter().find(|(other, _)| other == name),
        };
        found.map(|(_, tasks)| tasks.as_slice()).ok_or_else(|| {
            let names: Vec<String> = self.0.iter().map(|(name, _)| format!("`{name}`")).collect();
            let shown: String = name.chars().take(80).collect();
            format!("there is no split {shown:?}; there is {}", names.join(", "))
        })
    }

    /// Returns a task of any split by its id.
    pub(super) fn find(&self, id: &str) -> Option<&Task> {
        self.0.iter().flat_map(|(_, tasks)| tasks).find(|task| task.id == id)
    }
}

/// Returns the part of a task that clients are told.
pub(super) fn description(task: &Task) -> Value {
    json!({"id": task.id, "source": task.source, "question": task.question})
}

pub(super) fn described(tasks: &[Task]) -> Vec<Value> {
    tasks.iter().map(description).collect()
}
