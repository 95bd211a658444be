//! Declared estimators and surrogates: their names, their settings, and what has no effect beside them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::choice;
use super::diagnostic::{Problems, key, list, path, suggestion, within};
use crate::config::{AdvantagePlan, Config};
use crate::plan::{AlgorithmPlan, Chosen, Instance, LossPlan};
use crate::registry::{Declaration, Registry};
use crate::settings::{OpenKind, Settings, Tagged, TaggedConfig};

/// Builds the declared estimator and surrogate of the algorithm, if it names some.
pub(super) fn settle(
    config: &Config,
    registry: &Registry,
    algorithm: &mut AlgorithmPlan,
    problems: &mut Problems<'_>,
) {
    let given = &config.algorithm;
    let advantages = entries(&registry.advantages, |entry| (&entry.declaration, entry.build));
    let kind = given.advantage.kind.as_deref();
    let own = |kind: &str| AdvantagePlan::KINDS.iter().any(|own| own.name == kind);
    if kind.is_some_and(|kind| !own(kind)) {
        let declared = instance("advantage", Some(&given.advantage), &advantages, problems);
        if let Some(declared) = declared {
            algorithm.advantage = AdvantagePlan::Declared(declared);
            algorithm.critic = algorithm.advantage.critic();
        }
    }
    let surrogates = entries(&registry.surrogates, |entry| (&entry.declaration, entry.build));
    algorithm.declared.surrogate =
        instance("surrogate", given.surrogate.as_ref(), &surrogates, problems);
    algorithm.surrogate = algorithm.declared.surrogate.as_ref().map(OpenKind::written);
}

/// Reports tables that cannot have an effect. Gives warnings of keys that have none beside them.
pub(super) fn check(
    config: &Config,
    algorithm: &AlgorithmPlan,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let unset = config.algorithm.name.parts().advantage;
    let unset = AdvantagePlan::resolve(&unset, AdvantagePlan::default());
    let tables = [
        ("advantage", algorithm.advantage != unset),
        ("surrogate", algorithm.declared.surrogate.is_some()),
    ];
    for (table, _) in tables.iter().filter(|(_, given)| *given && algorithm.preset.is_supervised())
    {
        let message =
            format!("`algorithm.{table}` has no effect: given replies have no advantages");
        problems.conflict(&path(["algorithm", table]), message, "remove it".to_owned());
    }
    match algorithm.declared.surrogate {
        Some(_) => idle_bounds(config),
        None => Vec::new(),
    }
}

/// Bounds of the ratio that have another value than without them, and no effect beside a declared surrogate.
fn idle_bounds(config: &Config) -> Vec<String> {
    let whole = &config.algorithm.loss;
    let preset = LossPlan::from(&config.algorithm.name.parts().loss);
    let mut warnings =
        changed_bounds(&path(["algorithm", "loss"]), &LossPlan::from(whole), &preset);
    for (name, agent) in &config.agents {
        let own = agent.loss.as_ref().map(|loss| LossPlan::from(&loss.over(whole)));
        let at = path(["agents", name, "loss"]);
        warnings
            .extend(own.iter().flat_map(|own| changed_bounds(&at, own, &LossPlan::from(whole))));
    }
    warnings
}

fn changed_bounds(table: &[String], given: &LossPlan, unset: &LossPlan) -> Vec<String> {
    let keys = [
        ("surrogate", given.surrogate != unset.surrogate),
        ("gate", given.gate != unset.gate),
        ("clip_low", given.clip_low != unset.clip_low),
        ("clip_high", given.clip_high != unset.clip_high),
        ("clip_dual", given.clip_dual != unset.clip_dual),
    ];
    let idle = keys.into_iter().filter(|(_, changed)| *changed);
    idle.map(|(name, _)| idle_beside(&within(table, name), "surrogate")).collect()
}

fn idle_beside(path: &[String], table: &str) -> String {
    format!("`{}` has no effect beside `[algorithm.{table}]`", key(path))
}

/// Declarations of one kind: documentation and constructor, by name.
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
    given: Option<&TaggedConfig>,
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
