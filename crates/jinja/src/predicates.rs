//! Tests of templates: `value is name(argument)`.

use super::arguments::CallArguments;
use super::ast::{Comparison, Operator};
use super::meter::{Meter, Outcome, refused};
use super::operators::{compare, contains, operate};
use super::print;
use super::value::Value;

/// Evaluates a test; `None` if the name is unknown.
pub(crate) fn apply(
    name: &str,
    value: &Value,
    given: CallArguments,
    meter: &Meter,
) -> Option<Outcome<bool>> {
    let comparison = match name {
        "eq" | "equalto" | "==" => Some(Comparison::Equal),
        "ne" | "!=" => Some(Comparison::NotEqual),
        "lt" | "lessthan" | "<" => Some(Comparison::Less),
        "le" | "<=" => Some(Comparison::LessOrEqual),
        "gt" | "greaterthan" | ">" => Some(Comparison::Greater),
        "ge" | ">=" => Some(Comparison::GreaterOrEqual),
        "in" | "divisibleby" | "sameas" => None,
        "lower" | "upper" => {
            return Some(print::text(value, meter).map(|text| cased(&text, name == "upper")));
        }
        "odd" => return Some(rest(value, &Value::Int(2), 1, meter)),
        "even" => return Some(rest(value, &Value::Int(2), 0, meter)),
        _ => {
            let holds = plain(name, value)?;
            return Some(given.bind(name, []).map(|[]| holds));
        }
    };
    Some(given.bind(name, ["other"]).and_then(|[other]| {
        let Some(other) = other else { return refused(format!("`{name}` lacks an argument")) };
        match (comparison, name) {
            (Some(comparison), _) => compare(comparison, value, &other, meter),
            (None, "in") => contains(&other, value, meter),
            (None, "divisibleby") => rest(value, &other, 0, meter),
            // Values of templates have no identity other than their type and content.
            (None, _) => Ok(value.kind() == other.kind() && value.equals(&other, meter)?),
        }
    }))
}

/// Compares the remainder of a division with `wanted`.
fn rest(value: &Value, divisor: &Value, wanted: i128, meter: &Meter) -> Outcome<bool> {
    operate(Operator::Modulo, value, divisor, meter)?.equals(&Value::Int(wanted), meter)
}

/// Evaluates a test without an argument.
fn plain(name: &str, value: &Value) -> Option<bool> {
    let text = value.as_str();
    let sequence =
        matches!(value, Value::Str(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_));
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
        "string" => text.is_some(),
        "mapping" => matches!(value, Value::Dict(_)),
        "sequence" => sequence || value.is_undefined(),
        "iterable" => sequence || value.is_undefined() || matches!(value, Value::Loop(_)),
        "callable" => matches!(
            value,
            Value::Macro(_)
                | Value::Function(_)
                | Value::Method(_)
                | Value::Joiner(_)
                | Value::Loop(_)
                | Value::Undefined(_)
        ),
        "escaped" => false,
        _ => return None,
    })
}

/// Returns true if a text has letters, all of them of one case.
fn cased(text: &str, upper: bool) -> bool {
    let mut letters = text.chars().filter(|c| c.is_uppercase() || c.is_lowercase()).peekable();
    letters.peek().is_some() && letters.all(|char| char.is_uppercase() == upper)
}
