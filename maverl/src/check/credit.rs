//! Declared estimators and surrogates: their names, their settings, and what has no effect beside them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::choice;
use super::diagnostic::{Problems, key, list, path, suggestion, within};
use crate::config::{Baseline, Config, DeclaredConfig};
use crate::plan::{AlgorithmPlan, Chosen, Instance};
use crate::registry::{Declaration, Registry};

/// Keys of `[algorithm]` that a declared estimator replaces.
const ESTIMATED: [&str; 7] = [
    "deviation_by",
    "normalize_std",
    "advantage_eps",
    "singleton",
    "anchor_weight",
    "anchor_similarity",
    "discount",
];

/// Keys of `[algorithm.loss]` that a declared surrogate replaces.
const BOUNDS: [&str; 5] = ["surrogate", "gate", "clip_low", "clip_high", "clip_dual"];

/// Builds the declared estimator and surrogate of the algorithm, if it names some.
pub(super) fn settle(
    config: &Config,
    registry: &Registry,
    algorithm: &mut AlgorithmPlan,
    problems: &mut Problems<'_>,
) {
    let given = &config.algorithm;
    let advantages = entries(&registry.advantages, |entry| (&entry.declaration, entry.build));
    algorithm.declared.advantage =
        instance("advantage", given.advantage.as_ref(), &advantages, problems);
    let surrogates = entries(&registry.surrogates, |entry| (&entry.declaration, entry.build));
    algorithm.declared.surrogate =
        instance("surrogate", given.surrogate.as_ref(), &surrogates, problems);
}

/// Reports tables that cannot have an effect. Gives warnings of keys that have none beside them.
pub(super) fn check(
    config: &Config,
    algorithm: &AlgorithmPlan,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let tables = [
        ("advantage", algorithm.declared.advantage.is_some()),
        ("surrogate", algorithm.declared.surrogate.is_some()),
    ];
    for (table, _) in tables.iter().filter(|(_, given)| *given && algorithm.preset.is_supervised())
    {
        let message =
            format!("`algorithm.{table}` has no effect: given replies have no advantages");
        problems.conflict(&path(["algorithm", table]), message, "remove it".to_owned());
    }
    let mixed =
        algorithm.critic.as_ref().is_some_and(|critic| critic.mixer != crate::config::Mixer::None);
    if mixed && algorithm.declared.advantage.is_some() {
        let message = "`algorithm.advantage` is set, and advantages come from a mixer".to_owned();
        let help = "remove one of the two: set `algorithm.critic.mixer = \"none\"`".to_owned();
        problems.conflict(&path(["algorithm", "advantage"]), message, help);
    }
    let mut idle: Vec<Vec<String>> = Vec::new();
    if algorithm.declared.advantage.is_some() {
        idle.extend(ESTIMATED.map(|name| path(["algorithm", name])));
        let before =
            matches!(config.algorithm.baseline, Some(Baseline::Greedy | Baseline::MovingAverage));
        idle.extend((!before).then(|| path(["algorithm", "baseline"])));
    }
    if algorithm.declared.surrogate.is_some() {
        idle.extend(BOUNDS.map(|name| path(["algorithm", "loss", name])));
        for agent in config.agents.keys() {
            idle.extend(BOUNDS.map(|name| path(["agents", agent, "loss", name])));
        }
    }
    let written = |path: &&Vec<String>| problems.layers().has(path);
    let warning = |path: &Vec<String>| {
        let table = if path.iter().any(|part| part == "loss") { "surrogate" } else { "advantage" };
        format!("`{}` has no effect beside `[algorithm.{table}]`", key(path))
    };
    idle.iter().filter(written).map(warning).collect()
}

/// What is declared of one kind: documentation and constructor, by name.
type Entries<'r, T> = BTreeMap<&'static str, (&'r Declaration, Constructor<T>)>;

/// Makes a value from its settings.
type Constructor<T> = fn(&Value) -> Result<Arc<T>, String>;

fn entries<'r, E, T: ?Sized>(
    all: &'r BTreeMap<&'static str, E>,
    of: impl Fn(&'r E) -> (&'r Declaration, Constructor<T>),
) -> Entries<'r, T> {
    all.iter().map(|(name, entry)| (*name, of(entry))).collect()
}

fn instance<T: ?Sized>(
    table: &str,
    given: Option<&DeclaredConfig>,
    entries: &Entries<'_, T>,
    problems: &mut Problems<'_>,
) -> Option<Instance<T>> {
    let given = given?;
    let at = path(["algorithm", table]);
    let names = || entries.keys().copied();
    let Some(name) = &given.kind else {
        let message = format!("`{}` has no `kind`", key(&at));
        problems.key(&at, message, format!("write `kind` with one of {}", list(names())));
        return None;
    };
    let Some((declaration, build)) = entries.get(name.as_str()) else {
        let message = format!("no {table} is called `{name}`");
        let help = suggestion(name, names());
        problems.value(&within(&at, "kind"), message, help);
        return None;
    };
    let valid = |settings: &Value| build(settings).map(drop);
    let options = choice::options(&at, &given.settings, declaration, valid, problems);
    // Settings that cannot be built are reported.
    let value = build(&options).ok()?;
    Some(Instance { chosen: Chosen { name: name.clone(), options }, value })
}

/// As a user would write it.
pub(super) fn written<T: ?Sized>(instance: &Instance<T>) -> DeclaredConfig {
    let settings = instance.chosen.options.as_object().cloned().unwrap_or_default();
    let settings = choice::without_nulls(settings);
    DeclaredConfig { kind: Some(instance.chosen.name.clone()), settings }
}
