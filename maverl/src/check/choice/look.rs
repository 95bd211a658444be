//! Problems that an environment finds in its options and tasks, with their positions.

use std::borrow::Cow;
use std::path::Path;

use serde_json::Value;

use super::environments::ChosenEnvironment;
use super::options::option_path;
use crate::check::files::LoadedTasks;
use crate::config::Config;
use crate::config::source::{Problems, path};
use crate::plan::Chosen;
use crate::registry::Registry;
use crate::task::TaskList;

/// Reads the tasks as the type that the orchestra declares, those of evaluations too, and reports errors.
pub(super) fn read_tasks(
    Chosen { name, options }: &Chosen,
    data: (&Config, &LoadedTasks),
    registry: &Registry,
    problems: &mut Problems<'_>,
) {
    let read = registry.orchestras[name.as_str()].read_tasks;
    let title = format!("orchestra `{name}`");
    let reader = TaskReader { title, table: path(["orchestra"]), options, component: None };
    reader.validate(
        |tasks| read(tasks).map(|()| Vec::new()).map_err(|error| error.to_string()),
        data,
        problems,
    );
}

/// Validates an environment's options and tasks, those of evaluations too, and reports errors. Returns its warnings.
pub(super) fn look_at_tasks(
    environment: &ChosenEnvironment,
    data: (&Config, &LoadedTasks),
    base: &Path,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let Chosen { name, options } = &environment.chosen;
    let look = registry.environments[name.as_str()].look;
    let (title, table) = (format!("environment `{name}`"), environment.table_path());
    let reader = TaskReader { title, table, options, component: environment.component.as_deref() };
    reader.validate(|tasks| look(options, base, tasks).map_err(|error| error.0), data, problems)
}

/// A declaration that reads tasks.
struct TaskReader<'r> {
    /// Its kind and name.
    title: String,
    table: Vec<String>,
    options: &'r Value,
    /// Component whose tasks it reads, in a run of several.
    component: Option<&'r str>,
}

impl TaskReader<'_> {
    /// Validates the tasks of training and of evaluations, and reports errors. Returns the warnings.
    fn validate(
        &self,
        validate: impl Fn(&TaskList) -> Result<Vec<String>, String>,
        (config, loaded): (&Config, &LoadedTasks),
        problems: &mut Problems<'_>,
    ) -> Vec<String> {
        let mut warnings: Vec<String> = match validate(&self.own_tasks(loaded.tasks())) {
            Ok(found) => found.iter().map(|it| loaded.place_message(config, it)).collect(),
            Err(error) => {
                let message = format!("{}: {}", self.title, loaded.place_message(config, &error));
                problems.value(&option_path(&self.table, self.options, &error), message, None);
                return Vec::new();
            }
        };
        for held_out in &loaded.held_out {
            match validate(&self.own_tasks(held_out.tasks())) {
                Ok(found) => {
                    let mut found: Vec<String> =
                        found.iter().map(|it| held_out.place_message(it)).collect();
                    found.retain(|warning| !warnings.contains(warning));
                    warnings.extend(found);
                }
                Err(error) => {
                    let at = held_out.key.clone().unwrap_or_else(|| self.table.clone());
                    let message = format!("{}: {}", self.title, held_out.place_message(&error));
                    problems.value(&at, message, None);
                    break;
                }
            }
        }
        warnings
    }

    /// Returns the tasks of its component.
    fn own_tasks<'t>(&self, tasks: &'t TaskList) -> Cow<'t, TaskList> {
        match self.component {
            Some(component) => Cow::Owned(tasks.of_component(component)),
            None => Cow::Borrowed(tasks),
        }
    }
}
