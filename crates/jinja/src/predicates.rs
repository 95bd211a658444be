//! Tests of templates: `value is name(argument)`.

use crate::arguments::CallArguments;
use crate::ast::ComparisonOperator;
use crate::meter::{RenderMeter, RenderResult, refuse_operation, unknown_name};
use crate::operators::compare_values;
use crate::value::TemplateValue;

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
pub(crate) fn test_holds(
    name: &str,
    value: &TemplateValue,
    given: CallArguments,
    meter: &RenderMeter,
) -> RenderResult<bool> {
    meter.charge_step()?;
    let comparison = match name {
        "eq" | "equalto" | "==" => ComparisonOperator::Equal,
        "ne" | "!=" => ComparisonOperator::NotEqual,
        "in" => ComparisonOperator::In,
        _ => {
            let Some(holds) = has_type(name, value) else {
                return unknown_name("test", name, NAMES);
            };
            let [] = given.bind_parameters(name, [])?;
            return Ok(holds);
        }
    };
    match given.bind_parameters(name, ["other"])? {
        [Some(other)] => compare_values(comparison, value, &other, meter),
        [None] => refuse_operation(format!("`{name}` lacks an argument")),
    }
}

/// Evaluates a test without an argument; `None` if the name is unknown.
fn has_type(name: &str, value: &TemplateValue) -> Option<bool> {
    Some(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, TemplateValue::None),
        "boolean" => matches!(value, TemplateValue::Bool(_)),
        "true" => matches!(value, TemplateValue::Bool(true)),
        "false" => matches!(value, TemplateValue::Bool(false)),
        "integer" => matches!(value, TemplateValue::Int(_)),
        "float" => matches!(value, TemplateValue::Float(_)),
        "number" => value.is_number(),
        "string" => value.as_str().is_some(),
        "mapping" => matches!(value, TemplateValue::Dict(_)),
        // An undefined value has no items and the length 0.
        "sequence" | "iterable" => {
            matches!(
                value,
                TemplateValue::Str(_)
                    | TemplateValue::List(_)
                    | TemplateValue::Dict(_)
                    | TemplateValue::Undefined(_)
            )
        }
        _ => return None,
    })
}
