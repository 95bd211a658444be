//! Settings on which the seats of a policy must agree.

use serde::Serialize;
use serde_json::{Map, Value};

use super::groups::PolicySeats;
use crate::check::choice::{ConfiguredSeat, setting_path};
use crate::check::resolve::apart_help;
use crate::config::Config;
use crate::config::source::Problems;

/// Returns the values of a table by key.
pub(crate) fn values(table: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(table) {
        Ok(Value::Object(values)) => values,
        _ => Map::new(),
    }
}

/// Reports every key of a table that two members of a policy set differently.
pub(crate) fn agree(
    config: &Config,
    policy: &str,
    group: &PolicySeats<'_>,
    table: &str,
    found: &[(&ConfiguredSeat, Map<String, Value>); 2],
    problems: &mut Problems<'_>,
) {
    let [(one, ours), (other, theirs)] = found;
    for (name, value) in ours.iter().filter(|(name, value)| theirs[*name] != **value) {
        let found = [(*one, value), (*other, &theirs[name])];
        disagreement(config, (policy, &group.model), &format!("{table}.{name}"), found, problems);
    }
}

/// Formats a value as a user writes it: 1e-5, not 0.00001.
fn written_value(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or_else(String::new, |number| format!("{number:?}"))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(written_value).collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

pub(crate) fn disagreement(
    config: &Config,
    (policy, model): (&str, &str),
    name: &str,
    found: [(&ConfiguredSeat, &Value); 2],
    problems: &mut Problems<'_>,
) {
    let parts = ["models", model].into_iter().chain(name.split('.')).map(str::to_owned);
    let shared: Vec<String> = parts.collect();
    let mut found = found.map(|(member, value)| {
        let at = setting_path(problems, &member.seat, name, Some(shared.clone()));
        (at, member, value)
    });
    if found[0].0 == shared {
        found.swap(0, 1);
    }
    let [(_, one, a), (_, other, b)] = &found;
    let (a, b) = (written_value(a), written_value(b));
    let message = format!(
        "`{name}` is {a} for `{}` and {b} for `{}`, but both are policy `{policy}`",
        one.seat, other.seat
    );
    let apart = apart_help(config, model, one);
    let help = format!("a policy has one value of it: write the same for both, or {apart}");
    let notes = found.map(|(at, member, _)| (at, format!("for `{}`", member.seat)));
    problems.values(&notes, message, help);
}
