//! Tasks that the team does not make use of.

use super::curriculum::curriculum_doubt;
use crate::check::choice::ChosenEnvironment;
use crate::config::{Config, TaskConfig};
use crate::registry::Registry;
use crate::task::{Task, TaskList};

/// Warnings about valid settings that are probably mistakes: data that an environment is not made for, and levels that no task
/// has.
pub(crate) fn task_doubts(
    config: &Config,
    environments: &[ChosenEnvironment],
    tasks: &TaskList,
    registry: &Registry,
) -> Vec<String> {
    let TaskConfig { data, mixture: components, max_level, harder_every, .. } = &config.task;
    let mut doubts = Vec::new();
    for ChosenEnvironment { chosen, component } in environments {
        let component = component.as_ref().and_then(|name| components.get_key_value(name));
        let (key, data) = match component {
            Some((name, its)) => (format!("task.mixture.{name}.data"), &its.data),
            None => ("task.data".to_owned(), data),
        };
        let name = chosen.name.as_str();
        let unsuited = registry.environments.get(name).and_then(|entry| (entry.unsuited)(data));
        doubts.extend(unsuited.map(|subject| {
            format!("`{key}` is {data:?}, {subject}, which environment `{name}` is not made for: name other data")
        }));
    }
    let used = [("max_level", max_level.is_some()), ("harder_every", *harder_every > 0)];
    let used: Vec<&str> = used.into_iter().filter_map(|(key, used)| used.then_some(key)).collect();
    let without = || !tasks.is_empty() && tasks.iter().all(|task| task.level().is_none());
    if !used.is_empty() && without() {
        let idle = |key| format!("`task.{key}` has no effect: no task has a `level`");
        doubts.extend(used.into_iter().map(idle));
    }
    doubts.extend(curriculum_doubt(config));
    doubts
}

/// Warnings about messages before the questions that no agent of the team has an input field for.
pub(crate) fn unread_messages(tasks: &TaskList, inputs: &[&str]) -> Vec<String> {
    /// Input field, what it is, and whether a task has it.
    type Part = (&'static str, &'static str, fn(&Task) -> bool);
    let parts: [Part; 2] = [
        ("system", "a system message", |task| !task.system().is_empty()),
        ("history", "messages", |task| !task.history().is_empty()),
    ];
    let mut warnings = Vec::new();
    let unread = |field: &str| tasks.keys().contains(field) && !inputs.contains(&field);
    for (field, what, has) in parts.into_iter().filter(|(field, ..)| unread(field)) {
        let n = tasks.iter().filter(has).count();
        if n > 0 {
            warnings.push(format!(
                "{n} of {} tasks have {what} before the question, and no agent of the team reads them: the model does not see \
                 them; give the input of an agent a field `{field}` with `task.{field}()`, or write `{{{{ {field} }}}}` in the \
                 prompt of a node of `workflow/graph`",
                tasks.len()
            ));
        }
    }
    warnings
}
