//! Declared estimators and surrogates: their names and settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::choice;
use super::diagnostic::{Problems, did_you_mean, key, list, path, within};
use crate::IntoMap;
use crate::config::{AdvantagePlan, Config, CriticPlan, KlIn, LossConfig, SurrogatePlan};
use crate::plan::{AlgorithmPlan, Chosen, Instance, RewardPlan, SeatPlan};
use crate::registry::{Declaration, Registry};
use crate::settings::{Settings, TableKind, Tagged, TaggedConfig};
use crate::trajectory::RewardPart;

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
    if let Err(error) = CriticPlan::deserialize(given) {
        let message =
            format!("the setting `critic` of `{}` is not that of a critic: {error}", chosen.name);
        let help =
            "give the field the type `maverl::config::CriticPlan`, or another name".to_owned();
        problems.value(&within(at, "critic"), message, help);
    }
}

/// Reports estimators where nothing is estimated, and agents with another surrogate than a declared one, which holds for the
/// run.
///
/// Returns warnings about parts of the reward that settings of the estimator name.
pub(super) fn check(
    config: &Config,
    algorithm: &AlgorithmPlan,
    (rewards, seats): (&[RewardPlan], &[SeatPlan]),
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let unset = config.algorithm.name.parts().advantage;
    let unset = AdvantagePlan::resolve(&unset, AdvantagePlan::default());
    let preset = algorithm.preset;
    let (without, replies) = match preset.compares_pairs() && !preset.is_supervised() {
        true => (true, "pairs of replies"),
        false => (preset.is_supervised(), "given replies"),
    };
    let tables = [
        ("algorithm.advantage", algorithm.advantage != unset),
        (
            "algorithm.loss.surrogate",
            matches!(algorithm.loss.surrogate, SurrogatePlan::Declared(_)),
        ),
    ];
    for (table, _) in tables.into_iter().filter(|(_, given)| *given && without) {
        let at: Vec<String> = table.split('.').map(str::to_owned).collect();
        let message = format!("`{table}` has no effect: {replies} have no advantages");
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
    parts(algorithm, (rewards, seats), problems)
}

/// Reports parts of the reward that settings of the declared estimator name, and that are a misspelt part of the
/// configuration. Returns a warning about other unknown ones, which the orchestra may add.
fn parts(
    algorithm: &AlgorithmPlan,
    (rewards, seats): (&[RewardPlan], &[SeatPlan]),
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let AdvantagePlan::Declared(declared) = &algorithm.advantage else { return Vec::new() };
    let configured = configured_parts(rewards, seats);
    let there = || configured.iter().copied();
    let mut warnings = Vec::new();
    for name in declared.value.named_parts() {
        if name == RewardPart::OTHER || configured.contains(&name.as_str()) {
            continue;
        }
        let at = place(&declared.chosen, &name);
        if let Some(close) = did_you_mean(&name, there()) {
            let message = format!("`{}`: no part of the reward is called `{name}`", key(&at));
            let help =
                format!("did you mean `{close}`? the parts of the reward are {}", list(there()));
            problems.key(&at, message, help);
        } else {
            warnings.push(format!(
                "`{}` names no part of the reward that the configuration has ({}); it has an effect only if the orchestra \
                 adds a part of this name",
                key(&at),
                list(there())
            ));
        }
    }
    warnings
}

/// Returns the parts of the reward that a configuration has: the score, the tables in `[rewards]`, and penalties.
fn configured_parts<'r>(rewards: &'r [RewardPlan], seats: &[SeatPlan]) -> Vec<&'r str> {
    let any = |has: fn(&SeatPlan) -> bool| seats.iter().any(has);
    let penalties = [
        (RewardPart::INVALID_REPLY, any(|seat| seat.loss.invalid_reply_penalty > 0.0)),
        (RewardPart::OVERLONG_REPLY, any(|seat| seat.overlong().is_some())),
        (RewardPart::KL, any(|seat| seat.loss.kl_in == KlIn::Reward && seat.loss.kl_coef > 0.0)),
    ];
    let penalties = penalties.into_iter().filter(|(_, there)| *there).map(|(name, _)| name);
    let rewards = rewards.iter().map(|reward| reward.name.as_str());
    [RewardPart::SCORE].into_iter().chain(rewards).chain(penalties).collect()
}

/// Returns the key under which a setting of an estimator names a part.
fn place(chosen: &Chosen, part: &str) -> Vec<String> {
    let table = path(["algorithm", "advantage"]);
    let settings = chosen.options.as_object().into_iter().flatten();
    let mut tables = settings.filter(|(_, value)| value.get(part).is_some());
    match tables.next() {
        Some((setting, _)) => within(&within(&table, setting), part),
        None => table,
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
    all.iter().map(|(name, entry)| (*name, of(entry))).into_map()
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
