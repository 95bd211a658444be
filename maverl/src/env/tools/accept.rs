//! Validation of tasks: an episode can begin, its goal can be reached, and it can be missed.

use std::borrow::Borrow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::ToolsEnvironment;
use super::files::check_clean;
use super::goal::Goal;
use super::start::BUILT_IN;
use crate::env::EnvError;
use crate::task::Task;
use crate::tools::declared_tools;

impl ToolsEnvironment {
    /// Checks that every task can begin, and that its goal can be reached and missed.
    pub(super) fn accept(
        &self,
        tasks: impl IntoIterator<Item = impl Borrow<Task>>,
    ) -> Result<(), EnvError> {
        let functions = declared_tools();
        let given = self.tools.iter().chain(self.mcp.keys()).map(String::as_str);
        let given: BTreeSet<&str> = given.collect();
        let known = given.iter().chain(&BUILT_IN).chain(functions.keys()).copied().collect();
        tasks.into_iter().try_for_each(|task| {
            let task: &Task = task.borrow();
            let goal = Goal::read(task)?;
            check_named_tools(task, &given, &known)
                .and_then(|()| begins(task))
                .and_then(|()| goal.can_be_reached())
                .and_then(|()| goal.can_be_missed(task))
                .map_err(|what| EnvError::of_task(task, what))
        })
    }

    /// Returns true if the task names tools, and the options have none of them.
    pub(super) fn leaves_none(&self, task: &Task) -> bool {
        let named = task.data.get("tools").and_then(Value::as_array);
        let Some(named) = named.filter(|named| !named.is_empty()) else { return false };
        let mut given = self.tools.iter().chain(self.mcp.keys());
        !given.any(|one| named.iter().any(|name| name == one))
    }
}

/// Checks that the tools that a task names exist.
fn check_named_tools(
    task: &Task,
    given: &BTreeSet<&str>,
    known: &BTreeSet<&str>,
) -> Result<(), String> {
    let wrong = match task.data.get("tools") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(names)) => {
            let mut names = names.iter();
            match names.find(|name| !name.as_str().is_some_and(|name| known.contains(name))) {
                None => return Ok(()),
                Some(name) => format!("`tools` has {name}, which is none; there is"),
            }
        }
        Some(other) => format!("`tools` is {other}; write a list of"),
    };
    let given: Vec<String> = given.iter().map(|name| format!("`{name}`")).collect();
    Err(format!("{wrong} {}", given.join(", ")))
}

/// Checks that an episode can begin with the data of a task.
fn begins(task: &Task) -> Result<(), String> {
    match task.data.get("files") {
        None | Some(Value::Null) => {}
        Some(Value::Object(files)) if files.values().all(Value::is_string) => {
            files.keys().try_for_each(|path| check_clean(path, "files"))?;
        }
        Some(other) => return Err(format!("`files` is {other}; write texts by path")),
    }
    match task.data.get("database") {
        None | Some(Value::String(_)) => Ok(()),
        Some(other) => Err(format!("`database` is {other}; write SQL, a text")),
    }
}
