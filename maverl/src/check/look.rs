//! Problems that an orchestra finds in its own options, and an environment in its options and tasks, with their places.

use std::path::Path;

use serde_json::Value;

use super::choice::Environment;
use super::data::Loaded;
use super::diagnostic::{Problems, path, within};
use crate::config::Config;
use crate::plan::Chosen;
use crate::registry::{OrchestraEntry, Registry};
use crate::task::Task;

/// Validates the options of an orchestra, and reports its problems. Returns its warnings.
pub(super) fn orchestra(
    name: &str,
    options: &Value,
    entry: &OrchestraEntry,
    base: &Path,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let table = path(["orchestra"]);
    (entry.look)(options, base).unwrap_or_else(|found| {
        for problem in found {
            let at = place(&table, options, &problem);
            problems.value(&at, format!("orchestra `{name}`: {problem}"), None);
        }
        Vec::new()
    })
}

/// Validates an environment's options and tasks, those of evaluations too, and reports errors. Returns its warnings.
pub(super) fn environment(
    environment: &Environment,
    (config, loaded): (&Config, &Loaded),
    base: &Path,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let Chosen { name, options } = &environment.chosen;
    let (table, look) = (environment.table(), registry.environments[name.as_str()].look);
    let own = |task: &&Task| {
        environment.component.as_deref().is_none_or(|component| task.component() == component)
    };
    let tasks: Vec<Task> = loaded.tasks.iter().filter(own).cloned().collect();
    let mut warnings: Vec<String> = match look(options, base, &tasks) {
        Ok(found) => found.iter().map(|it| loaded.placed(config, it)).collect(),
        Err(error) => {
            let message = format!("environment `{name}`: {}", loaded.placed(config, &error.0));
            problems.value(&place(&table, options, &error.0), message, None);
            return Vec::new();
        }
    };
    for held_out in &loaded.held_out {
        let all = held_out.tasks.iter().map(|placed| &placed.task);
        let tasks: Vec<Task> = all.filter(own).cloned().collect();
        match look(options, base, &tasks) {
            Ok(found) => {
                let mut found: Vec<String> = found.iter().map(|it| held_out.placed(it)).collect();
                found.retain(|warning| !warnings.contains(warning));
                warnings.extend(found);
            }
            Err(error) => {
                let at = held_out.key.clone().unwrap_or_else(|| table.clone());
                let message = format!("environment `{name}`: {}", held_out.placed(&error.0));
                problems.value(&at, message, None);
                break;
            }
        }
    }
    warnings
}

/// Returns the path of the option that a message begins with, or that of the table.
pub(super) fn place(table: &[String], options: &Value, message: &str) -> Vec<String> {
    let quoted = message.strip_prefix('`').and_then(|rest| rest.split_once('`'));
    let option = quoted.map(|(option, _)| option).filter(|option| options.get(option).is_some());
    option.map_or(table.to_vec(), |option| within(table, option))
}
