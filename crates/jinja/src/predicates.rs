//! Tests of templates: `value is name(argument)`.

use crate::arguments::CallArguments;
use crate::ast::Comparison;
use crate::meter::{Meter, Outcome, refused, unknown};
use crate::operators::compare;
use crate::value::Value;

const NAMES: &[&str] = &[
    "boolean",
    "defined",
    "eq",
    "equalto",
    "false",
    "float",
    "in",
    "integer",
    "iterable",
    "mapping",
    "ne",
    "none",
    "number",
    "sequence",
    "string",
    "true",
    "undefined",
];

/// Evaluates a test.
pub(crate) fn holds(
    name: &str,
    value: &Value,
    given: CallArguments,
    meter: &Meter,
) -> Outcome<bool> {
    meter.step()?;
    let comparison = match name {
        "eq" | "equalto" | "==" => Comparison::Equal,
        "ne" | "!=" => Comparison::NotEqual,
        "in" => Comparison::In,
        _ => {
            let Some(holds) = has_type(name, value) else { return unknown("test", name, NAMES) };
            let [] = given.bind(name, [])?;
            return Ok(holds);
        }
    };
    match given.bind(name, ["other"])? {
        [Some(other)] => compare(comparison, value, &other, meter),
        [None] => refused(format!("`{name}` lacks an argument")),
    }
}

/// Evaluates a test without an argument; `None` if the name is unknown.
fn has_type(name: &str, value: &Value) -> Option<bool> {
    Some(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.is_number(),
        "string" => value.as_str().is_some(),
        "mapping" => matches!(value, Value::Dict(_)),
        // An undefined value has no items and the length 0.
        "sequence" | "iterable" => {
            matches!(value, Value::Str(_) | Value::List(_) | Value::Dict(_) | Value::Undefined(_))
        }
        _ => return None,
    })
}
