//! Arguments that a form writes as text, with the types of their schemas.

use serde_json::{Map, Value};

use super::literal::read_literal;
use super::number::parse_exactly;

/// Types of JSON Schema.
const TYPES: [&str; 7] = ["integer", "number", "boolean", "null", "object", "array", "string"];

/// Returns the schemas of the arguments of a tool, by name; none for an unknown tool.
pub(super) fn argument_schemas<'t>(
    tools: &'t [Value],
    name: &str,
) -> Option<&'t Map<String, Value>> {
    let function = tools.iter().map(|tool| &tool["function"]).find(|it| it["name"] == name)?;
    function["parameters"]["properties"].as_object()
}

/// Returns the value that a text means for a schema: an integer, a number, a truth value, null, an object or a list if the
/// schema allows it and the text is one, as JSON or in Python's spelling. Any other text is itself: then the schema
/// rejects it in words. A text whose schema has no type is a text.
pub(super) fn typed_argument(text: &str, schema: Option<&Value>) -> Value {
    let types = schema.map(allowed_types).unwrap_or_default();
    let value = || Value::String(text.to_owned());
    if types.iter().all(|name| *name == "string") {
        return value();
    }
    let trimmed = text.trim();
    let parsed = parse_exactly(trimmed).ok().or_else(|| read_literal(trimmed));
    let fits = |parsed: &Value| types.iter().any(|name| has_type(parsed, name));
    parsed.filter(fits).unwrap_or_else(value)
}

/// Returns the types that a schema names, or those of its values and choices.
fn allowed_types(schema: &Value) -> Vec<&'static str> {
    let known = |name: &str| TYPES.iter().copied().find(|known| *known == name);
    let named: Vec<&str> = match &schema["type"] {
        Value::String(name) => known(name).into_iter().collect(),
        Value::Array(names) => names.iter().filter_map(|name| known(name.as_str()?)).collect(),
        _ => Vec::new(),
    };
    if !named.is_empty() {
        return named.into_iter().filter_map(known).collect();
    }
    let values = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
    let of_values = values.filter_map(|value| TYPES.into_iter().find(|name| has_type(value, name)));
    let choices = ["anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
    of_values.chain(choices.flat_map(allowed_types)).collect()
}

/// Returns true for a value of a type other than a text.
fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        _ => value.is_string(),
    }
}
