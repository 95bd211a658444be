//! Exclusive bounds of numbers that the lexer does not keep, moved inwards.
//!
//! The lexer of llguidance 1.9.1 (`json/numeric.rs`, `rx_float_range`) writes a range within two neighboring whole numbers as
//! `0(\\.digits)?` if it begins at the smaller one, also where that is excluded: a number above 0 and up to 0.5 may be `0`.

use serde_json::{Map, Value};

/// Keys whose values are data, not schemas.
pub(super) const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];
/// Keys that bound a number.
pub(super) const BOUNDS: [[&str; 2]; 2] =
    [["minimum", "exclusiveMinimum"], ["maximum", "exclusiveMaximum"]];
/// Numbers of decimals of a bound that was moved inwards: the first whose bound is within the range.
const DECIMALS: [usize; 15] = [6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 3, 2, 1];
/// Keys whose values are schemas by name.
const NAMED: [&str; 5] =
    ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
/// Keys of schemas that are combined with what is beside them.
const COMBINING: [&str; 3] = ["$ref", "anyOf", "oneOf"];
/// Keys that bound nothing.
const UNBOUNDING: [&str; 10] = [
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "default",
    "definitions",
    "description",
    "examples",
    "title",
    "type",
];

/// Moves whole exclusive bounds of numbers, such as 0, inwards to the next number with six decimals, 0.000001, where the lexer would
/// not keep them: if the other bound is in the same unit, or may come from another schema.
///
/// # Errors
///
/// If there is no such number in the range.
pub(super) fn narrow_bounds(schema: &mut Value) -> Result<(), String> {
    let combined = is_combined(schema);
    each_schema(schema, &mut |table| {
        [0, 1].into_iter().try_for_each(|side| narrow(table, side, combined))
    })
}

/// Change of one schema.
type SchemaChange<'c> = dyn FnMut(&mut Map<String, Value>) -> Result<(), String> + 'c;

/// Calls a function with each schema of a schema, and with itself.
fn each_schema(schema: &mut Value, change: &mut SchemaChange<'_>) -> Result<(), String> {
    match schema {
        Value::Array(schemas) => {
            schemas.iter_mut().try_for_each(|schema| each_schema(schema, change))
        }
        Value::Object(table) => {
            for (key, value) in table.iter_mut() {
                match value {
                    Value::Object(named) if NAMED.contains(&key.as_str()) => {
                        named.values_mut().try_for_each(|schema| each_schema(schema, change))?;
                    }
                    _ if DATA.contains(&key.as_str()) => {}
                    value => each_schema(value, change)?,
                }
            }
            change(table)
        }
        _ => Ok(()),
    }
}

/// Returns true if the bounds of a number may be in several schemas.
fn is_combined(schema: &Value) -> bool {
    match schema {
        Value::Array(schemas) => schemas.iter().any(is_combined),
        Value::Object(table) => {
            let bounding = table.keys().filter(|key| !UNBOUNDING.contains(&key.as_str())).count();
            table.contains_key("allOf")
                || table.contains_key("patternProperties")
                || bounding > 1 && COMBINING.iter().any(|key| table.contains_key(*key))
                || table.values().any(is_combined)
        }
        _ => false,
    }
}

/// Moves the lower bound (`side` 0) or the upper one (1) of a number inwards, where that is needed.
fn narrow(table: &mut Map<String, Value>, side: usize, combined: bool) -> Result<(), String> {
    let sign = if side == 0 { 1.0 } else { -1.0 };
    let (Some(bound), true) = bound(table, side) else { return Ok(()) };
    // Upper bounds are those of the negative range.
    let (from, to) = (sign * bound, self::bound(table, 1 - side).0.map(|to| sign * to));
    let same_unit = to.is_some_and(|to| to < from + 1.0);
    if is_integer(table) || from.fract() != 0.0 || from < 0.0 || !(combined || same_unit) {
        return Ok(());
    }
    let moved = DECIMALS.iter().filter_map(|&decimals| {
        let text = format!("{:.0}.{:0>decimals$}", from.abs(), 1);
        text.parse().ok().filter(|moved: &f64| *moved > from && to.is_none_or(|to| *moved < to))
    });
    let [inclusive, exclusive] = BOUNDS[side];
    let Some(moved) = moved.map(|moved| sign * moved).next() else {
        return Err(format!(
            "`{exclusive}` is {bound}, and the grammar has no number with up to 15 decimals between it and {}; write `{inclusive}`",
            to.map_or_else(|| "the next one".to_owned(), |to| (sign * to).to_string())
        ));
    };
    table.remove(exclusive);
    table.insert(inclusive.to_owned(), moved.into());
    Ok(())
}

/// Returns a bound of a number, and true if it is exclusive.
fn bound(table: &Map<String, Value>, side: usize) -> (Option<f64>, bool) {
    let [inclusive, exclusive] = BOUNDS[side].map(|key| table.get(key));
    let inclusive = inclusive.and_then(Value::as_f64);
    // A draft 4 schema has true or false.
    let exclusive = match exclusive {
        Some(Value::Bool(true)) => inclusive,
        other => other.and_then(Value::as_f64),
    };
    match (inclusive, exclusive) {
        (Some(inclusive), Some(exclusive)) => {
            let tighter = if side == 0 { exclusive >= inclusive } else { exclusive <= inclusive };
            (Some(if tighter { exclusive } else { inclusive }), tighter)
        }
        (inclusive, exclusive) => (exclusive.or(inclusive), exclusive.is_some()),
    }
}

/// Returns true for a schema whose numbers are integers.
pub(super) fn is_integer(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == "integer",
        Some(Value::Array(names)) => {
            let has = |name: &str| names.iter().any(|one| one == name);
            has("integer") && !has("number")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn narrowed(mut schema: Value) -> Value {
        narrow_bounds(&mut schema).unwrap();
        schema
    }

    #[test]
    fn a_whole_exclusive_bound_is_moved_inwards_where_the_lexer_does_not_keep_it() {
        for (schema, expected) in [
            (
                json!({"exclusiveMinimum": 0, "maximum": 0.5}),
                json!({"minimum": 0.000_001, "maximum": 0.5}),
            ),
            (
                json!({"minimum": -0.5, "exclusiveMaximum": 0}),
                json!({"minimum": -0.5, "maximum": -0.000_001}),
            ),
            (
                json!({"exclusiveMinimum": 1, "exclusiveMaximum": 1.5}),
                json!({"minimum": 1.000_001, "exclusiveMaximum": 1.5}),
            ),
            (
                json!({"minimum": 0, "exclusiveMinimum": true, "maximum": 1e-9}),
                json!({"minimum": 1e-10, "maximum": 1e-9}),
            ),
            (
                json!({"minimum": -1, "exclusiveMinimum": 0, "maximum": 0.5}),
                json!({"minimum": 0.000_001, "maximum": 0.5}),
            ),
        ] {
            assert_eq!(narrowed(schema), expected);
        }
        let nested =
            json!({"properties": {"default": {"items": {"exclusiveMinimum": 0, "maximum": 0.5}}}});
        assert_eq!(narrowed(nested)["properties"]["default"]["items"]["minimum"], json!(0.000_001));
        let parts = json!({"allOf": [{"exclusiveMinimum": 1e12}, {"maximum": 1e12}]});
        assert_eq!(narrowed(parts)["allOf"][0]["minimum"], json!(1_000_000_000_000.000_1));
    }

    #[test]
    fn other_bounds_stay_as_they_are() {
        for schema in [
            json!({"exclusiveMinimum": 0}),
            json!({"exclusiveMinimum": 0, "maximum": 1}),
            json!({"exclusiveMinimum": -1, "maximum": -0.5}),
            json!({"exclusiveMinimum": 0.5, "exclusiveMaximum": 0.75}),
            json!({"minimum": 0, "exclusiveMaximum": 1}),
            json!({"minimum": 0.1, "exclusiveMinimum": 0, "maximum": 0.5}),
            json!({"type": "integer", "exclusiveMinimum": 0, "maximum": 0.5}),
            json!({"const": {"exclusiveMinimum": 0, "maximum": 0.5}}),
            json!({"title": "x", "anyOf": [{"exclusiveMinimum": 0}, {"type": "null"}]}),
        ] {
            assert_eq!(narrowed(schema.clone()), schema);
        }
    }

    #[test]
    fn a_range_too_narrow_for_the_grammar_is_refused_by_name() {
        let error = narrow_bounds(&mut json!({"exclusiveMinimum": 0, "maximum": 1e-300}));
        let error = error.unwrap_err();
        assert!(
            error.starts_with("`exclusiveMinimum` is 0, and the grammar has no number"),
            "{error}"
        );
    }
}
