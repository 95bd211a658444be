//! The environments of a run, and their options.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::entries::choose_entry;
use super::options::filled_options;
use super::orchestra::{ChosenOrchestra, needed_actions};
use crate::IntoMap;
use crate::config::source::{Problems, key, path};
use crate::config::{Config, Named};
use crate::data::preset;
use crate::plan::Chosen;
use crate::registry::Registry;
use crate::task::TaskList;

/// The environment of a run, or of one of its components.
pub(crate) struct ChosenEnvironment {
    pub(crate) chosen: Chosen,
    /// Name of the component, in a run of several.
    pub(crate) component: Option<String>,
}

impl ChosenEnvironment {
    pub(crate) fn table_path(&self) -> Vec<String> {
        path_of(self.component.as_deref())
    }
}

/// Returns the path of an environment's table.
fn path_of(component: Option<&str>) -> Vec<String> {
    match component {
        None => path(["environment"]),
        Some(component) => path(["task", "mixture", component, "environment"]),
    }
}

/// Returns the environment of a run, or those of its components; `None` if one is ambiguous.
pub(crate) fn choose_environments(
    config: &Config,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Option<Vec<ChosenEnvironment>> {
    let components = &config.task.mixture;
    if components.is_empty() {
        let environment = environment(config, None, &config.environment, registry, problems);
        return environment.map(|environment| vec![environment]);
    }
    if config.environment != Named::default() {
        let message = "`environment` has no effect: each of `task.mixture` has its own";
        problems.key(&path(["environment"]), message.to_owned(), None);
    }
    let chosen: Vec<_> = components
        .iter()
        .map(|(name, component)| {
            environment(config, Some(name), &component.environment, registry, problems)
        })
        .collect();
    chosen.into_iter().collect()
}

/// Returns the environment that understands the orchestra's actions, if none is named.
fn environment(
    config: &Config,
    component: Option<&str>,
    named: &Named,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Option<ChosenEnvironment> {
    let table = path_of(component);
    let needs = needed_actions(&config.orchestra, registry);
    let fitting = registry.environments.iter();
    let fitting = fitting.filter(|(_, entry)| needs.iter().all(|need| entry.declares(need)));
    let mut fitting: BTreeMap<_, _> = fitting.map(|(name, entry)| (*name, *entry)).into_map();
    // A known data set says which environment judges its tasks.
    let data = component.map_or(&config.task.data, |name| &config.task.mixture[name].data);
    let known = preset(data).map(|preset| preset.environment);
    if let Some((name, entry)) = known.and_then(|known| fitting.remove_entry(known)) {
        fitting = BTreeMap::from([(name, entry)]);
    }
    let entries = match (&named.name, fitting.len()) {
        (None, 1) => &fitting,
        _ => &registry.environments,
    };
    let (name, entry) = choose_entry("environment", &table, named, entries, problems)?;
    let options = filled_options(&table, &named.options, &entry.declaration, entry.check, problems);
    Some(ChosenEnvironment {
        chosen: Chosen { name, options },
        component: component.map(str::to_owned),
    })
}

/// Returns the environments that the orchestra acts in beside its component. Reports a missing one, and one that the
/// orchestra does not act in.
pub(crate) fn other_environments(
    config: &Config,
    orchestra: &ChosenOrchestra,
    base: &Path,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> BTreeMap<String, Chosen> {
    let (flow, wanted) = (&orchestra.chosen.name, &orchestra.environments);
    for name in wanted.iter().filter(|name| !config.environments.contains_key(*name)) {
        let message =
            format!("orchestra `{flow}` acts in `{name}`, and there is no `[environments.{name}]`");
        let help = format!("write `[environments.{name}]` with a `name`, as in `[environment]`");
        problems.key(&path(["orchestra"]), message, help);
    }
    let mut chosen = BTreeMap::new();
    for (name, named) in &config.environments {
        let table = path(["environments", name]);
        if !wanted.contains(name) {
            let message = format!("`{}` has no effect: `{flow}` does not act in it", key(&table));
            problems.key(&table, message, "remove it".to_owned());
        }
        let Some((kind, entry)) =
            choose_entry("environment", &table, named, &registry.environments, problems)
        else {
            continue;
        };
        let options =
            filled_options(&table, &named.options, &entry.declaration, entry.check, problems);
        // The task is scored elsewhere, so it need not be one of this environment.
        if let Err(error) = (entry.look)(&options, base, &TaskList::default()) {
            problems.key(&table, format!("environment `{kind}`: {error}"), None);
        }
        chosen.insert(name.clone(), Chosen { name: kind, options });
    }
    chosen
}

/// Returns the environment of the run (the names of its components, if it has several), and that of each component.
pub(crate) fn split_components(
    environments: Vec<ChosenEnvironment>,
) -> (Chosen, BTreeMap<String, Chosen>) {
    let (mut one, mut components) = (None, BTreeMap::new());
    for ChosenEnvironment { chosen, component } in environments {
        match component {
            None => one = Some(chosen),
            Some(name) => drop(components.insert(name, chosen)),
        }
    }
    let names = components.keys().cloned().collect::<Vec<_>>().join(", ");
    (one.unwrap_or_else(|| Chosen { name: names, options: Value::Null }), components)
}
