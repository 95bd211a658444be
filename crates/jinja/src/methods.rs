//! Methods of texts and dictionaries.

use crate::arguments::CallArguments;
use crate::meter::{Failure, Meter, Outcome, refused, unknown};
use crate::texts;
use crate::value::{Dict, Value};

/// Names of the methods of dictionaries.
const OF_DICTS: &[&str] = &["get", "items", "keys", "values"];

/// Returns true if values of this type have the method.
pub(crate) fn has_method(value: &Value, name: &str) -> bool {
    match value {
        Value::Str(_) => texts::METHODS.contains(&name),
        Value::Dict(_) => OF_DICTS.contains(&name),
        _ => false,
    }
}

/// Calls a method of a text or a dictionary.
pub(crate) fn call_method(
    value: &Value,
    name: &str,
    given: CallArguments,
    meter: &Meter,
) -> Outcome<Value> {
    meter.step()?;
    match value {
        Value::Str(text) => texts::call_method(text, name, given, meter),
        Value::Dict(dict) => of_dict(value, dict, name, given, meter),
        Value::Undefined(missing) => Err(missing.failure()),
        Value::List(_) => Err(Failure {
            reason: format!("'{}' has no method `{name:.60}`", value.kind()),
            remedy: Some("a template changes no list; `a + [b]` is a longer one".to_owned()),
        }),
        other => refused(format!("'{}' has no method `{name:.60}`", other.kind())),
    }
}

fn of_dict(
    value: &Value,
    dict: &Dict,
    name: &str,
    given: CallArguments,
    meter: &Meter,
) -> Outcome<Value> {
    match name {
        "get" => {
            let [key, default] = given.bind(name, ["key", "default"])?;
            let Some(key) = key else { return refused("`get` lacks an argument") };
            let found = dict.get(&key, meter)?.cloned();
            Ok(found.or(default).unwrap_or(Value::None))
        }
        "items" => {
            let [] = given.bind(name, [])?;
            Value::list(entries(dict, meter)?)
        }
        "keys" => {
            let [] = given.bind(name, [])?;
            Ok(Value::List(value.items(meter)?))
        }
        "values" => {
            let [] = given.bind(name, [])?;
            meter.product(dict.entries.len(), size_of::<Value>())?;
            Value::list(dict.entries.iter().map(|(_, value)| value.clone()).collect())
        }
        _ => unknown("method of dictionaries", name, OF_DICTS),
    }
}

/// Returns the entries of a dictionary as pairs.
pub(crate) fn entries(dict: &Dict, meter: &Meter) -> Outcome<Vec<Value>> {
    // A pair, its allocation, and two values.
    meter.product(dict.entries.len(), 4 * size_of::<Value>())?;
    let pair = |(key, value): &(Value, Value)| Value::tuple(vec![key.clone(), value.clone()]);
    dict.entries.iter().map(pair).collect()
}
