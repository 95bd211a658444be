//! Declared estimators and surrogates: the instance that a configuration names, with its settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::options::filled_options;
use crate::IntoMap;
use crate::config::source::{Problems, path, path_within};
use crate::config::{AdvantagePlan, AlgorithmConfig, CriticPlan, LossPlan, SurrogatePlan};
use crate::plan::{AlgorithmPlan, Chosen, Instance};
use crate::registry::{Declaration, Registry};
use crate::settings::{TableKind, Tagged, TaggedConfig};

/// Returns the algorithm, with the declared estimator and surrogate if it names some.
pub(crate) fn declared_algorithm(
    config: &AlgorithmConfig,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> AlgorithmPlan {
    let plan = AlgorithmPlan::from(config);
    let advantage = advantage(config, registry, problems);
    let surrogate = surrogate(config, registry, problems);
    let critic = match &advantage {
        Some(advantage) => advantage.critic(),
        None => plan.critic,
    };
    let loss = LossPlan { surrogate: surrogate.unwrap_or(plan.loss.surrogate), ..plan.loss };
    AlgorithmPlan { advantage: advantage.unwrap_or(plan.advantage), critic, loss, ..plan }
}

/// Returns the declared estimator, if the configuration names one.
fn advantage(
    config: &AlgorithmConfig,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Option<AdvantagePlan> {
    if is_own(AdvantagePlan::KINDS, config.advantage.kind.as_deref()) {
        return None;
    }
    let at = path(["algorithm", "advantage"]);
    let entries = entries(&registry.advantages, |entry| (&entry.declaration, entry.build));
    let declared = instance(&at, &config.advantage, &entries, problems)?;
    check_critic(&at, &declared.chosen, problems);
    Some(AdvantagePlan::Declared(declared))
}

/// Returns the declared surrogate, if the configuration names one.
fn surrogate(
    config: &AlgorithmConfig,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Option<SurrogatePlan> {
    let given = &config.loss.surrogate;
    if is_own(SurrogatePlan::KINDS, given.kind.as_deref()) {
        return None;
    }
    let at = path(["algorithm", "loss", "surrogate"]);
    let entries = entries(&registry.surrogates, |entry| (&entry.declaration, entry.build));
    instance(&at, given, &entries, problems).map(SurrogatePlan::Declared)
}

/// Reports a setting `critic` of a declared estimator that describes no critic: none would be trained for it.
fn check_critic(at: &[String], chosen: &Chosen, problems: &mut Problems<'_>) {
    let Some(given) = chosen.options.get("critic").filter(|given| !given.is_null()) else { return };
    if let Err(error) = CriticPlan::deserialize(given) {
        let message =
            format!("the setting `critic` of `{}` is not that of a critic: {error}", chosen.name);
        let help =
            "give the field the type `maverl::config::CriticPlan`, or another name".to_owned();
        problems.value(&path_within(at, "critic"), message, help);
    }
}

/// Returns true for a kind of the table itself, or none.
pub(crate) fn is_own(kinds: &[TableKind], kind: Option<&str>) -> bool {
    kind.is_none_or(|kind| kinds.iter().any(|own| own.name == kind))
}

/// Declarations of one kind: documentation and constructor, by name.
type InstanceEntries<'r, T> = BTreeMap<&'static str, (&'r Declaration, Constructor<T>)>;

/// Makes a value from its settings.
type Constructor<T> = fn(&Value) -> Result<Arc<T>, String>;

fn entries<'r, E, T: ?Sized>(
    all: &'r BTreeMap<&'static str, E>,
    of: impl Fn(&'r E) -> (&'r Declaration, Constructor<T>),
) -> InstanceEntries<'r, T> {
    all.iter().map(|(name, entry)| (*name, of(entry))).into_map()
}

/// Returns the declared instance of a table. A kind that does not exist is reported elsewhere.
fn instance<T: ?Sized>(
    at: &[String],
    given: &TaggedConfig,
    entries: &InstanceEntries<'_, T>,
    problems: &mut Problems<'_>,
) -> Option<Instance<T>> {
    let name = given.kind.as_deref()?;
    let (declaration, build) = entries.get(name)?;
    let options = filled_options(at, &given.settings, declaration, build, problems);
    // Settings that cannot be built are reported.
    let value = build(&options).ok()?;
    Some(Instance { chosen: Chosen { name: name.to_owned(), options }, value })
}
