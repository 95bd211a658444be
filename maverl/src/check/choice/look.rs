//! Problems that an environment finds in its options and tasks, with their positions.

use std::path::Path;

use super::environments::Environment;
use super::options::option_path;
use crate::check::files::Loaded;
use crate::config::Config;
use crate::config::source::Problems;
use crate::plan::Chosen;
use crate::registry::Registry;
use crate::task::Task;

/// Validates an environment's options and tasks, those of evaluations too, and reports errors. Returns its warnings.
pub(super) fn look_at_tasks(
    environment: &Environment,
    (config, loaded): (&Config, &Loaded),
    base: &Path,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let Chosen { name, options } = &environment.chosen;
    let (table, look) = (environment.table_path(), registry.environments[name.as_str()].look);
    let own = |task: &&Task| {
        environment.component.as_deref().is_none_or(|component| task.component() == component)
    };
    let tasks: Vec<Task> = loaded.tasks.iter().filter(own).cloned().collect();
    let mut warnings: Vec<String> = match look(options, base, &tasks) {
        Ok(found) => found.iter().map(|it| loaded.placed(config, it)).collect(),
        Err(error) => {
            let message = format!("environment `{name}`: {}", loaded.placed(config, &error.0));
            problems.value(&option_path(&table, options, &error.0), message, None);
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
