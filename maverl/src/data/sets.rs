//! Several data sets of tasks: components of a mixture, and named sets of evaluations.

use std::collections::{BTreeMap, BTreeSet};

use super::error::DataError;
use super::place::Placed;
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
    read: impl Fn(&TaskConfig) -> Result<Vec<Placed>, DataError>,
) -> Result<Vec<Placed>, DataError> {
    let mut all = Vec::new();
    for (name, component) in &config.mixture {
        let mut tasks = read(&component_config(config, component))?;
        let sources: BTreeSet<&str> = tasks.iter().map(|it| it.task.source.as_str()).collect();
        let several = sources.len() > 1;
        for Placed { task, .. } in &mut tasks {
            if several {
                task.id = format!("{}/{}", task.source, task.id);
            }
            task.source.clone_from(name);
        }
        all.extend(tasks);
    }
    Ok(all)
}
