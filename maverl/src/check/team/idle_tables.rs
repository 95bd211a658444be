//! Keys outside of the algorithm that are set and have no effect, because of the values of other keys of their table.

use std::iter::once;

use serde_json::Value;

use crate::config::Config;
use crate::config::reference::is_chosen;
use crate::config::source::key as full_name;
use crate::config::tables::{DeclaredTable, TABLES};
use crate::settings::{Key, json};

/// Places of the tables of optimizers; the first one declares the keys of all.
const OPTIM: [[&str; 3]; 3] = [
    ["models", "NAME", "optim"],
    ["agents", "TEAM/ROLE", "optim"],
    ["algorithm", "advantage", "optim"],
];

/// Returns a sentence for each key of these tables that was written and has no effect.
pub(super) fn idle_outside(config: &Config) -> Vec<String> {
    let (given, mut warnings) = (json(config), Vec::new());
    let outside = |table: &&DeclaredTable| table.place().first().is_none_or(|at| at != "algorithm");
    for table in TABLES.iter().filter(outside) {
        let place = table.place();
        let is_optim = place == OPTIM[0];
        let optim = OPTIM.map(|place| place.map(str::to_owned).to_vec());
        let places = if is_optim { Vec::from(optim) } else { vec![place] };
        for (at, values) in places.iter().flat_map(|place| written_tables(&given, place)) {
            let defaults = (table.defaults)();
            let tables = match at.first().map(String::as_str).filter(|_| is_optim) {
                Some("models") => with_agents(config, over(&defaults, values)),
                Some("agents") => with_models(config, &defaults, values),
                _ => vec![over(&defaults, values)],
            };
            warnings.extend(idle_in(
                table,
                (at.as_slice(), values),
                (&defaults, tables.as_slice()),
            ));
        }
    }
    warnings
}

/// Returns a sentence for each key of a table that was written and has no effect, whichever of the tables holds.
fn idle_in(
    table: &DeclaredTable,
    (at, values): (&[String], &Value),
    (defaults, tables): (&Value, &[Value]),
) -> Vec<String> {
    let is_changed =
        |name: &str| values.get(name).is_some() && values.get(name) != defaults.get(name);
    let changed = table.keys.iter().filter(|key| is_changed(key.name));
    let idle = changed.filter_map(|key| Some((key.name, reason(key, tables)?)));
    let sentences = idle.map(|(key, why)| {
        let name = full_name(&[at, &[key.to_owned()]].concat());
        format!("`{name}` has no effect: {why}")
    });
    sentences.collect()
}

/// Returns the tables of a configuration at a place, each with its path. Names that a user chooses may be any.
fn written_tables<'v>(config: &'v Value, place: &[String]) -> Vec<(Vec<String>, &'v Value)> {
    let mut found = vec![(Vec::new(), config)];
    for part in place {
        let inside = found.into_iter().flat_map(|(at, table): (Vec<String>, &'v Value)| {
            let entries = table.as_object().into_iter().flatten();
            let named = entries.filter(move |(name, _)| is_chosen(part) || *name == part);
            named.map(move |(name, value)| {
                ([at.as_slice(), std::slice::from_ref(name)].concat(), value)
            })
        });
        found = inside.collect();
    }
    found.retain(|(_, table)| table.is_object());
    found
}

/// Returns the values of a table, with those of another one where it has none.
fn over(defaults: &Value, values: &Value) -> Value {
    let mut all = defaults.as_object().cloned().unwrap_or_default();
    all.extend(values.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}

/// Returns the optimizer of a model, and those that agents and their seats make of it.
fn with_agents(config: &Config, model: Value) -> Vec<Value> {
    let agents = config.agents.values().flat_map(|agent| once(agent).chain(agent.seats.values()));
    let optims = agents.filter_map(|agent| agent.optim.as_ref());
    let changed: Vec<Value> = optims.map(|optim| over(&model, &json(optim))).collect();
    once(model).chain(changed).collect()
}

/// Returns the optimizers that an agent's table makes of those of the models.
fn with_models(config: &Config, defaults: &Value, agent: &Value) -> Vec<Value> {
    let models = config.models.values().map(|model| over(defaults, &json(&model.optim)));
    models.map(|model| over(&model, agent)).collect()
}

/// Returns the reason why a key has no effect in any of the tables that it is in, if it has none in all of them.
pub(super) fn reason(key: &Key, tables: &[Value]) -> Option<String> {
    let reasons = tables.iter().map(|table| key.idle.iter().find_map(|idle| idle.reason(table)));
    reasons.collect::<Option<Vec<String>>>()?.into_iter().next()
}
