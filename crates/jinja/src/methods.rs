//! Methods of Python's texts, lists and dictionaries.

pub(crate) mod text;

use std::sync::Arc;

use super::arguments::CallArguments;
use super::meter::{Meter, Outcome, refused};
use super::value::Value;

const OF_LISTS: &[&str] = &["copy", "count", "index"];
const OF_TUPLES: &[&str] = &["count", "index"];
const OF_DICTS: &[&str] = &["copy", "get", "items", "keys", "values"];
/// Methods that modify a list or a dictionary, which templates may not call.
const CHANGE_LISTS: &[&str] =
    &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];
const CHANGE_DICTS: &[&str] = &["clear", "pop", "popitem", "setdefault", "update"];

/// Returns true if values of this type have the method.
pub(crate) fn has(value: &Value, name: &str) -> bool {
    match value {
        Value::Str(_) => text::NAMES.contains(&name),
        Value::List(_) => OF_LISTS.contains(&name) || CHANGE_LISTS.contains(&name),
        Value::Tuple(_) => OF_TUPLES.contains(&name),
        Value::Dict(_) => OF_DICTS.contains(&name) || CHANGE_DICTS.contains(&name),
        Value::Loop(_) => ["changed", "cycle"].contains(&name),
        Value::Cycler(_) => ["next", "reset"].contains(&name),
        Value::Float(_) => name == "is_integer",
        _ => false,
    }
}

/// Calls a method of a text, a list or a dictionary.
pub(crate) fn call(
    value: &Value,
    name: &str,
    given: CallArguments,
    meter: &Meter,
) -> Outcome<Value> {
    meter.step()?;
    match value {
        Value::Str(text) => text::call(text, name, given, meter),
        Value::List(_) if CHANGE_LISTS.contains(&name) => unsafe_method(value, name),
        Value::Dict(_) if CHANGE_DICTS.contains(&name) => unsafe_method(value, name),
        Value::Float(number) if name == "is_integer" => Ok(Value::Bool(number.fract() == 0.0)),
        Value::List(list) | Value::Tuple(list) => {
            if name == "copy" {
                return Ok(value.clone());
            }
            let [wanted] = given.bind(name, ["value"])?;
            let Some(wanted) = wanted else {
                return refused(format!("`{name}` lacks an argument"));
            };
            let mut places = Vec::new();
            for (at, item) in list.items.iter().enumerate() {
                if item.equals(&wanted, meter)? {
                    meter.bytes(size_of::<i128>())?;
                    places.push(at as i128);
                }
            }
            match (name, places.first()) {
                ("count", _) => Ok(Value::Int(places.len() as i128)),
                (_, Some(first)) => Ok(Value::Int(*first)),
                (_, None) => refused("the value is not in the list"),
            }
        }
        Value::Dict(dict) => {
            let n = dict.entries.len();
            match name {
                "copy" => Ok(value.clone()),
                "get" => {
                    let [key, default] = given.bind(name, ["key", "default"])?;
                    let Some(key) = key else { return refused("`get` lacks an argument") };
                    let found = dict.get(&key, meter)?.cloned();
                    Ok(found.or(default).unwrap_or(Value::None))
                }
                "keys" => Ok(Value::List(value.items(meter)?)),
                "values" => {
                    meter.product(n, size_of::<Value>())?;
                    Value::list(dict.entries.iter().map(|(_, value)| value.clone()).collect())
                }
                _ => items(value, meter),
            }
        }
        other => refused(format!("'{}' has no method `{name}`", other.kind())),
    }
}

/// Returns the entries of a dictionary as pairs.
pub(crate) fn items(value: &Value, meter: &Meter) -> Outcome<Value> {
    let Value::Dict(dict) = value else {
        return refused(format!("'{}' has no `items`", value.kind()));
    };
    // A pair, its allocation, and two values.
    meter.product(dict.entries.len(), 4 * size_of::<Value>())?;
    let pair = |(key, value): &(Value, Value)| Value::tuple(vec![key.clone(), value.clone()]);
    Value::list(dict.entries.iter().map(pair).collect::<Outcome<_>>()?)
}

fn unsafe_method<T>(value: &Value, name: &str) -> Outcome<T> {
    refused(format!("a template may not change a value: `{name}` of '{}'", value.kind()))
}

/// Returns texts as a list.
pub(crate) fn texts<'t>(parts: impl Iterator<Item = &'t str>, meter: &Meter) -> Outcome<Value> {
    let mut items = Vec::new();
    for part in parts {
        meter.bytes(part.len() + 2 * size_of::<Value>())?;
        items.push(Value::Str(Arc::from(part)));
    }
    Value::list(items)
}
