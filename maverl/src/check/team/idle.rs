//! Keys that are set and have no effect, because of the values of other keys: those of the algorithm here, the others in
//! [`idle_tables`](super::idle_tables).
//!
//! The declaration of a key states the values of other keys of its table that disable it (`idle_when`, `idle_unless`). Only
//! `reference.every` and `preference.threshold` are checked by code: they depend on the preset, on other tables, and on the loss
//! of every seat.

use serde_json::Value;

use super::idle_tables::{idle_outside, reason};
use crate::config::tables::{DeclaredTable, TABLES};
use crate::config::{AlgorithmConfig, Config, KlIn, LossConfig, Preset};
use crate::plan::{AlgorithmPlan, LossPlan, PolicyPlan, SeatPlan};
use crate::settings::json;

/// Returns a sentence for each key that was written and has no effect.
pub(crate) fn idle_keys(
    config: &Config,
    algorithm: &AlgorithmPlan,
    (policies, seats): (&[PolicyPlan], &[SeatPlan]),
) -> Vec<String> {
    let unset = AlgorithmConfig { name: config.algorithm.name, ..AlgorithmConfig::default() };
    let unset = AlgorithmPlan::from(&unset);
    let [given, defaults] = [algorithm, &unset].map(|plan| json(&AlgorithmConfig::from(plan)));
    let trained: Vec<Value> = seats
        .iter()
        .filter(|seat| seat.trained)
        .map(|seat| json(&LossConfig::from(&seat.loss)))
        .collect();
    let mut warnings = Vec::new();
    for table in
        TABLES.iter().filter(|table| table.place().first().is_some_and(|at| at == "algorithm"))
    {
        let place = &table.place()[1..];
        let Some(values) = table_at(&given, place, table) else { continue };
        let defaults =
            table_at(&defaults, place, table).cloned().unwrap_or_else(|| (table.defaults)());
        let is_loss = place == ["loss"];
        // Supervised training has a loss of its own.
        if is_loss && algorithm.preset.is_supervised() {
            continue;
        }
        // Agents may have losses of their own.
        let beside = if is_loss { trained.as_slice() } else { std::slice::from_ref(values) };
        let of_pairs = is_loss && algorithm.preset == Preset::OnlineDpo;
        let changed =
            table.keys.iter().filter(|key| values.get(key.name) != defaults.get(key.name));
        let idle = changed.filter_map(|key| {
            let no_term = if of_pairs { no_pair_term(key.name, &algorithm.loss) } else { None };
            Some((key.name, no_term.or_else(|| reason(key, beside))?))
        });
        let place: String = place.iter().map(|part| format!("{part}.")).collect();
        warnings.extend(idle.map(|(key, why)| sentence(&format!("{place}{key}"), &why)));
    }
    warnings.extend(idle_outside(config));
    let labels = algorithm.preference.loss.labels_replies();
    if labels
        && algorithm.preset != Preset::OnlineDpo
        && algorithm.preference.threshold != unset.preference.threshold
    {
        let why = "given replies have labels: the chosen one is good, the rejected one bad";
        warnings.push(sentence("preference.threshold", why));
    }
    if algorithm.reference != unset.reference {
        let why = no_reference(algorithm, policies);
        warnings.extend(why.map(|why| sentence("reference.every", why)));
    }
    warnings
}

fn sentence(key: &str, why: &str) -> String {
    format!("`algorithm.{key}` has no effect: {why}")
}

/// Returns the table at a place of the algorithm, if it is of the declared kind.
fn table_at<'v>(
    algorithm: &'v Value,
    place: &[String],
    table: &DeclaredTable,
) -> Option<&'v Value> {
    let found = place.iter().try_fold(algorithm, |table, key| table.get(key))?;
    let is_kind = table.kind.is_none_or(|kind| found.get("kind").is_some_and(|own| own == kind));
    Some(found).filter(|found| is_kind && found.is_object())
}

/// Returns the reason why a key of `loss` has no effect on pairs of sampled replies: only what changes a reward has one.
fn no_pair_term(key: &str, loss: &LossPlan) -> Option<String> {
    let rewards = matches!(
        (key, loss.kl_in),
        ("invalid_reply_penalty" | "overlong_buffer" | "overlong_penalty", _)
            | ("kl_coef" | "kl" | "kl_in", KlIn::Reward)
    );
    (!rewards).then(|| "the loss of pairs has no such term".to_owned())
}

/// Returns the reason why no policy has a reference, if none has.
fn no_reference(given: &AlgorithmPlan, policies: &[PolicyPlan]) -> Option<&'static str> {
    let (none, why) = match given.preset {
        Preset::Sft => (true, "`name = \"sft\"` has no reference"),
        preset if preset.compares_pairs() => {
            (given.preference.reference_free, "`preference.reference_free` is true")
        }
        _ => {
            let mut policies = policies.iter();
            (!policies.any(|policy| policy.reference), "`loss.kl_coef` is 0")
        }
    };
    none.then_some(why)
}
