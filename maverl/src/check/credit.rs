//! Declared estimators and surrogates: their names and settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::choice;
use super::diagnostic::{Problems, key, path, within};
use crate::config::{AdvantagePlan, Config, CriticPlan, LossConfig, SurrogatePlan};
use crate::plan::{AlgorithmPlan, Chosen, Instance, SeatPlan};
use crate::registry::{Declaration, Registry};
use crate::settings::{Settings, TableKind, Tagged, TaggedConfig};

/// Builds the declared estimator and surrogate of the algorithm, if it names some.
pub(super) fn settle(
    config: &Config,
    registry: &Registry,
    (algorithm, seats): (&mut AlgorithmPlan, &mut [SeatPlan]),
    problems: &mut Problems<'_>,
) {
    let advantages = entries(&registry.advantages, |entry| (&entry.declaration, entry.build));
    let given = &config.algorithm.advantage;
    if !is_own(AdvantagePlan::KINDS, given.kind.as_deref()) {
        let at = path(["algorithm", "advantage"]);
        if let Some(declared) = instance(&at, given, &advantages, problems) {
            critic(&at, &declared.chosen, problems);
            algorithm.advantage = AdvantagePlan::Declared(declared);
            algorithm.critic = algorithm.advantage.critic();
        }
    }
    let surrogates = entries(&registry.surrogates, |entry| (&entry.declaration, entry.build));
    let given = &config.algorithm.loss.surrogate;
    if !is_own(SurrogatePlan::KINDS, given.kind.as_deref()) {
        let at = path(["algorithm", "loss", "surrogate"]);
        if let Some(declared) = instance(&at, given, &surrogates, problems) {
            algorithm.loss.surrogate = SurrogatePlan::Declared(declared);
            for seat in seats {
                seat.loss.surrogate = algorithm.loss.surrogate.clone();
            }
        }
    }
}

/// Reports a setting `critic` of a declared estimator that describes no critic: none would be trained for it.
fn critic(at: &[String], chosen: &Chosen, problems: &mut Problems<'_>) {
    let Some(given) = chosen.options.get("critic").filter(|given| !given.is_null()) else { return };
    if let Err(error) = serde_json::from_value::<CriticPlan>(given.clone()) {
        let message =
            format!("the setting `critic` of `{}` is not that of a critic: {error}", chosen.name);
        let help =
            "give the field the type `maverl::config::CriticPlan`, or another name".to_owned();
        problems.value(&within(at, "critic"), message, help);
    }
}

/// Reports estimators where nothing is estimated, and agents with another surrogate than a declared one, which holds for the
/// run.
pub(super) fn check(config: &Config, algorithm: &AlgorithmPlan, problems: &mut Problems<'_>) {
    let unset = config.algorithm.name.parts().advantage;
    let unset = AdvantagePlan::resolve(&unset, AdvantagePlan::default());
    let supervised = algorithm.preset.is_supervised();
    let tables = [
        ("algorithm.advantage", algorithm.advantage != unset),
        (
            "algorithm.loss.surrogate",
            matches!(algorithm.loss.surrogate, SurrogatePlan::Declared(_)),
        ),
    ];
    for (table, _) in tables.into_iter().filter(|(_, given)| *given && supervised) {
        let at: Vec<String> = table.split('.').map(str::to_owned).collect();
        let message = format!("`{table}` has no effect: given replies have no advantages");
        problems.conflict(&at, message, "remove it".to_owned());
    }
    let run = config.algorithm.loss.surrogate.kind.as_deref();
    let mut agree = |loss: Option<&LossConfig>, table: Vec<String>| {
        let own = loss.and_then(|loss| loss.surrogate.kind.as_deref());
        let declared = [own, run].iter().any(|kind| !is_own(SurrogatePlan::KINDS, *kind));
        if let Some(name) = own.filter(|_| declared && own != run) {
            let at = within(&within(&table, "loss"), "surrogate");
            let message =
                format!("`{}` is {name:?}, and a declared surrogate holds for the run", key(&at));
            let help = "set `algorithm.loss.surrogate`, and remove those of agents".to_owned();
            problems.conflict(&at, message, help);
        }
    };
    for (name, agent) in &config.agents {
        let at = path(["agents", name]);
        agree(agent.loss.as_ref(), at.clone());
        for (number, seat) in &agent.seats {
            agree(seat.loss.as_ref(), within(&within(&at, "seats"), &number.to_string()));
        }
    }
}

/// Returns true for a kind of the table itself, or none.
fn is_own(kinds: &[TableKind], kind: Option<&str>) -> bool {
    kind.is_none_or(|kind| kinds.iter().any(|own| own.name == kind))
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

/// Returns the declared instance of a table. A kind that does not exist is reported elsewhere.
fn instance<T: ?Sized>(
    at: &[String],
    given: &TaggedConfig,
    entries: &Entries<'_, T>,
    problems: &mut Problems<'_>,
) -> Option<Instance<T>> {
    let name = given.kind.as_deref()?;
    let (declaration, build) = entries.get(name)?;
    let valid = |settings: &Value| build(settings).map(drop);
    let options = choice::options(at, &given.settings, declaration, valid, problems);
    // Settings that cannot be built are reported.
    let value = build(&options).ok()?;
    Some(Instance { chosen: Chosen { name: name.to_owned(), options }, value })
}
