//! Several data sets of tasks: components of a mixture, and named sets of evaluations.

use std::collections::BTreeMap;

use super::error::DataError;
use super::place::PlacedTasks;
use crate::config::{ComponentConfig, TaskConfig};

/// Returns the configuration of the tasks of one component.
pub(super) fn component_config(config: &TaskConfig, component: &ComponentConfig) -> TaskConfig {
    TaskConfig {
        data: component.data.clone(),
        format: component.format,
        keys: component.keys.clone(),
        ids: component.ids,
        environment: component.environment.clone(),
        mixture: BTreeMap::new(),
        ..config.clone()
    }
}

/// Loads the tasks of every set of an evaluation with `read`, one set after the other, each up to the limit. The source of a task is the
/// name of its set, so that each has its own line in a report; where a set has several sources, they are part of the ids.
pub(super) fn placed_sets(
    config: &TaskConfig,
    read: impl Fn(&TaskConfig) -> Result<PlacedTasks, DataError>,
) -> Result<PlacedTasks, DataError> {
    let mut all = PlacedTasks::default();
    for (name, component) in &config.mixture {
        let PlacedTasks { tasks, lines } = read(&component_config(config, component))?;
        let several = tasks.sources().len() > 1;
        for (mut task, line) in tasks.iter().zip(lines) {
            if several {
                task.id = format!("{}/{}", task.source, task.id);
            }
            task.source.clone_from(name);
            all.push(&task, line);
        }
    }
    Ok(all)
}
