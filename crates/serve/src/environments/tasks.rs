//! Tasks of a served environment. Clients are told ids and questions, never references.

use maverl::task::Task;

/// Tasks by split, of which the first is played if a reset names none. None is empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskSet(pub Vec<(String, Vec<Task>)>);

impl TaskSet {
    /// Returns the tasks of a split; of the first without a name.
    pub(crate) fn split(&self, name: &str) -> Result<&[Task], String> {
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
    pub(crate) fn find(&self, id: &str) -> Option<&Task> {
        self.0.iter().flat_map(|(_, tasks)| tasks).find(|task| task.id == id)
    }
}
