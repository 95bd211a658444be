//! Selection of the orchestra and the environments, and their options.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value};

use super::data::Loaded;
use super::diagnostic::{Problems, did_you_mean, key, list, path, within};
use super::wrong::{self, plain};
use super::{alias, counts, look, nested, unlinked};
use crate::IntoMap;
use crate::config::{Config, Named};
use crate::plan::Chosen;
use crate::registry::{ANY, Declaration, EnvironmentEntry, Registry};
use crate::trajectory::Seat;

/// The orchestra of a run.
pub(super) struct Orchestra {
    pub(super) chosen: Chosen,
    pub(super) members: BTreeSet<Seat>,
    /// Names of the components that it acts in beside its own.
    environments: Vec<String>,
    /// Messages of a task that it passes on.
    pub(super) passes_on: Vec<&'static str>,
    /// Warnings about its options.
    warnings: Vec<String>,
}

/// The environment of a run, or of one of its components.
pub(super) struct Environment {
    pub(super) chosen: Chosen,
    /// Name of the component, in a run of several.
    pub(super) component: Option<String>,
}

impl Environment {
    pub(super) fn table(&self) -> Vec<String> {
        table(self.component.as_deref())
    }
}

/// Returns the path of an environment's table.
fn table(component: Option<&str>) -> Vec<String> {
    match component {
        None => path(["environment"]),
        Some(component) => path(["task", "mixture", component, "environment"]),
    }
}

pub(super) fn orchestra(
    named: &Named,
    base: &Path,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Option<Orchestra> {
    let table = path(["orchestra"]);
    let (name, entry) = choose("orchestra", &table, named, &registry.orchestras, problems)?;
    let build = |options: &Value| (entry.build)(options).map(drop);
    let options = options(&table, &named.options, &entry.declaration, build, problems);
    // Options that cannot be built are reported elsewhere.
    let built = (entry.build)(&options).ok()?;
    let warnings = look::orchestra(&name, &options, entry, base, problems);
    let chosen = Chosen { name, options };
    let members = counts::seats(&chosen, &*built, problems)?.into_iter().collect();
    let (environments, passes_on) = (built.environments(), built.passes_on());
    Some(Orchestra { chosen, members, environments, passes_on, warnings })
}

/// Returns the environment of a run, or those of its components; `None` if one is ambiguous.
pub(super) fn environments(
    config: &Config,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Option<Vec<Environment>> {
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
) -> Option<Environment> {
    let table = table(component);
    let needs = needs(&config.orchestra, registry);
    let fits = |entry: &EnvironmentEntry| needs.iter().all(|need| entry.declares(need));
    let fitting = registry.environments.iter().filter(|(_, entry)| fits(entry));
    let fitting: BTreeMap<_, _> = fitting.map(|(name, entry)| (*name, *entry)).into_map();
    let entries = match (&named.name, fitting.len()) {
        (None, 1) => &fitting,
        _ => &registry.environments,
    };
    let (name, entry) = choose("environment", &table, named, entries, problems)?;
    let options = options(&table, &named.options, &entry.declaration, entry.check, problems);
    Some(Environment { chosen: Chosen { name, options }, component: component.map(str::to_owned) })
}

/// Returns the environments that the orchestra acts in beside its component. Reports a missing one, and one that the
/// orchestra does not act in.
pub(super) fn beside(
    config: &Config,
    orchestra: &Orchestra,
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
            choose("environment", &table, named, &registry.environments, problems)
        else {
            continue;
        };
        let options = options(&table, &named.options, &entry.declaration, entry.check, problems);
        // The task is scored elsewhere, so it need not be one of this environment.
        if let Err(error) = (entry.look)(&options, base, &[]) {
            problems.key(&table, format!("environment `{kind}`: {error}"), None);
        }
        chosen.insert(name.clone(), Chosen { name: kind, options });
    }
    chosen
}

/// Returns the actions of a run's orchestra; empty if the orchestra is ambiguous.
fn needs(named: &Named, registry: &Registry) -> &'static [&'static str] {
    let mut entries = registry.orchestras.iter();
    let entry = match (&named.name, registry.orchestras.len()) {
        (Some(name), _) => registry.orchestras.get(name.as_str()),
        (None, 1) => entries.next().map(|(_, entry)| entry),
        (None, _) => None,
    };
    entry.map_or(&[], |entry| entry.needs)
}

/// Checks the orchestra against its environments: reports actions and options that do not fit. Returns the
/// environments' warnings.
pub(super) fn meet(
    environments: &[Environment],
    orchestra: Option<&Orchestra>,
    (config, loaded): (&Config, &Loaded),
    base: &Path,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let mut warnings = orchestra.map(|orchestra| orchestra.warnings.clone()).unwrap_or_default();
    if let Some(orchestra) = orchestra {
        look::orchestra_tasks(&orchestra.chosen, (config, loaded), registry, problems);
    }
    for environment in environments {
        if let Some(orchestra) = orchestra {
            fit(environment, orchestra, registry, problems);
        }
        warnings.extend(look::environment(environment, (config, loaded), base, registry, problems));
    }
    warnings
}

/// Reports actions of the orchestra that the environment does not understand.
fn fit(
    environment: &Environment,
    orchestra: &Orchestra,
    registry: &Registry,
    problems: &mut Problems<'_>,
) {
    let (component, flow) = (environment.chosen.name.as_str(), orchestra.chosen.name.as_str());
    let entry = &registry.environments[component];
    for need in registry.orchestras[flow].needs.iter().filter(|need| !entry.understands(need)) {
        let others = registry.environments.iter().filter(|(_, entry)| entry.understands(need));
        let help = format!("environments that do: {}", list(others.map(|(name, _)| *name)));
        let message = match *need {
            ANY => {
                format!(
                    "orchestra `{flow}` acts, and environment `{component}` understands no action"
                )
            }
            need => format!(
                "orchestra `{flow}` sends `{need}` actions, and environment `{component}` does not understand them"
            ),
        };
        problems.value(&within(&environment.table(), "name"), message, help);
    }
}

/// Returns the environment of the run (the names of its components, if it has several), and that of each component.
pub(super) fn by_component(environments: Vec<Environment>) -> (Chosen, BTreeMap<String, Chosen>) {
    let (mut one, mut components) = (None, BTreeMap::new());
    for Environment { chosen, component } in environments {
        match component {
            None => one = Some(chosen),
            Some(name) => drop(components.insert(name, chosen)),
        }
    }
    let names = components.keys().cloned().collect::<Vec<_>>().join(", ");
    (one.unwrap_or_else(|| Chosen { name: names, options: Value::Null }), components)
}

/// Fills in the name of each environment that the configuration omits.
pub(super) fn named(config: &Config, environments: &[Environment]) -> Config {
    let mut named = config.clone();
    for Environment { chosen, component } in environments {
        let environment = match component {
            None => Some(&mut named.environment),
            Some(component) => {
                named.task.mixture.get_mut(component).map(|component| &mut component.environment)
            }
        };
        if let Some(environment) = environment {
            environment.name = Some(chosen.name.clone());
        }
    }
    named
}

/// Returns the choice as a user would write it.
pub(super) fn written(chosen: &Chosen) -> Named {
    Named {
        name: Some(chosen.name.clone()),
        options: without_nulls(chosen.options.as_object().cloned().unwrap_or_default()),
    }
}

/// Removes null values, which TOML does not have.
pub(super) fn without_nulls(options: Map<String, Value>) -> Map<String, Value> {
    options
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key, within_without_nulls(value)))
        .collect()
}

fn within_without_nulls(value: Value) -> Value {
    match value {
        Value::Object(inner) => Value::Object(without_nulls(inner)),
        Value::Array(items) => items.into_iter().map(within_without_nulls).collect(),
        value => value,
    }
}

/// Returns the named entry, or the only existing one.
fn choose<'r, E>(
    kind: &str,
    table: &[String],
    named: &Named,
    entries: &'r BTreeMap<&'static str, E>,
    problems: &mut Problems<'_>,
) -> Option<(String, &'r E)> {
    let at = within(table, "name");
    if problems.reported(&at) {
        return None;
    }
    let names = || entries.keys().copied();
    match (&named.name, entries.len()) {
        (Some(name), _) => match entries.get(name.as_str()) {
            Some(entry) => Some((name.clone(), entry)),
            None => {
                let message = format!("no {kind} is called `{name}`");
                problems.value(&at, message, unlinked::help(kind, name, names()));
                None
            }
        },
        (None, 1) => entries.iter().next().map(|(name, entry)| ((*name).to_owned(), entry)),
        (None, 0) => {
            let message = format!("no {kind} is linked");
            let help = format!("declare one with `#[{kind}]`, or link a crate that does");
            problems.key(&at, message, help);
            None
        }
        (None, n) => {
            let message =
                format!("`{}` is not set, and {n} are linked: {}", key(&at), list(names()));
            let first = names().next().unwrap_or_default();
            problems.key(&at, message, format!("write `name = \"{first}\"` in `[{}]`", key(table)));
            None
        }
    }
}

/// Fills in the default options. Every unknown key and wrong type is reported and left out.
pub(super) fn options(
    table: &[String],
    given: &Map<String, Value>,
    declaration: &Declaration,
    build: impl Fn(&Value) -> Result<(), String>,
    problems: &mut Problems<'_>,
) -> Value {
    let defaults = match (declaration.defaults)() {
        Value::Object(defaults) => defaults,
        _ => Map::new(),
    };
    let known = || defaults.keys().map(String::as_str);
    let mut all = defaults.clone();
    for (name, value) in given {
        let at = within(table, name);
        let value = &nested::without_unknown(&at, value, &build, problems);
        let alone = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
        if !defaults.contains_key(name) {
            let message =
                format!("unknown key `{}`: `{}` has no such option", key(&at), declaration.name);
            let help = match (did_you_mean(name, known()), wrong::home(name)) {
                (Some(close), _) => format!("did you mean `{close}`?"),
                (None, Some(home)) => home,
                (None, None) => alias::help(&at.join("."), None)
                    .unwrap_or_else(|| format!("its options are {}", list(known()))),
            };
            problems.key(&at, message, help);
        } else if let Err(error) = build(&alone) {
            let help = wrong::option_help(&at, value, &error);
            problems.value(&at, wrong_type(&key(&at), value, &error), help);
        } else {
            all.insert(name.clone(), value.clone());
        }
    }
    let all = Value::Object(all);
    match build(&all) {
        Ok(()) => all,
        Err(error) => {
            let message =
                format!("the options of `{}` do not go together: {error}", declaration.name);
            problems.key(table, message, None);
            Value::Object(defaults)
        }
    }
}

/// Rewrites serde's message about a wrong type in the style of this module; other messages are unchanged.
fn wrong_type(key: &str, value: &Value, error: &str) -> String {
    // The wrong option is the last part of the key.
    let named = error.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
    let error = named.map_or(error, |(_, rest)| rest);
    match error.split_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => {
            format!("`{key}` is {value}; expected {}", plain(expected))
        }
        _ => format!("`{key}`: {error}"),
    }
}
