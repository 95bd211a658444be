//! Schemas of tool arguments: the subset of JSON Schema that tools are declared with.
//!
//! `type` (one or several), `properties`, `required`, `additionalProperties` (true, false or a schema), `items`,
//! `enum`, `const`, `anyOf`, `oneOf`, `minimum`, `maximum`, `minLength`, `maxLength`, `minItems`, `maxItems`. Any other
//! keyword is rejected when the schema is created, because an unsupported rule would not be enforced; only descriptive
//! keywords (`title`, `description`, `default`, `examples`, `format`, `$schema`) are accepted. If a tool server
//! enforces the rules itself, [`Schema::of_server`] accepts any keyword.

use serde_json::{Map, Value};

const RULES: [&str; 15] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
];
const WORDS: [&str; 6] = ["title", "description", "default", "examples", "format", "$schema"];
const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// A supported schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema(Value);

/// An unsupported schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the schema at `{at}` {what}")]
pub struct SchemaError {
    /// Path in the schema, from the root.
    pub at: String,
    /// Problem, and its remedy.
    pub what: String,
}

impl Schema {
    /// Creates a schema from JSON.
    ///
    /// # Errors
    ///
    /// The first keyword that is unsupported, or has an invalid value.
    pub fn new(schema: Value) -> Result<Self, SchemaError> {
        understood(&schema, "$")?;
        Ok(Self(schema))
    }

    /// Creates a schema that its server enforces: unsupported keywords are not checked here.
    pub fn of_server(schema: Value) -> Self {
        Self(schema)
    }

    /// Returns the schema as JSON.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// Checks a value against the schema.
    ///
    /// # Errors
    ///
    /// The first violation: its place, the value found, and the expected value.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        check_allowed(&self.0, value, "")
    }
}

fn understood(schema: &Value, at: &str) -> Result<(), SchemaError> {
    let object = known_keys(schema).map_err(|what| SchemaError { at: at.to_owned(), what })?;
    for (name, inner) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        understood(inner, &format!("{at}.{name}"))?;
    }
    for inner in ["anyOf", "oneOf"].iter().filter_map(|key| object.get(*key)?.as_array()).flatten()
    {
        understood(inner, &format!("{at}|"))?;
    }
    if let Some(others) = object.get("additionalProperties").filter(|others| others.is_object()) {
        understood(others, &format!("{at}.*"))?;
    }
    object.get("items").map_or(Ok(()), |items| understood(items, &format!("{at}[]")))
}

/// Returns the keys of a schema, which are all known and have values that fit them.
fn known_keys(schema: &Value) -> Result<&Map<String, Value>, String> {
    let Some(object) = schema.as_object() else {
        return Err(format!("is {schema}; write an object"));
    };
    for (key, value) in object {
        let right = match key.as_str() {
            "type" => {
                types(value).is_some_and(|types| types.iter().all(|name| TYPES.contains(name)))
            }
            "properties" => value.is_object(),
            "required" => texts(value).is_some(),
            "additionalProperties" => value.is_boolean() || value.is_object(),
            "items" => value.is_object(),
            "enum" | "anyOf" | "oneOf" => value.as_array().is_some_and(|values| !values.is_empty()),
            "minimum" | "maximum" => value.is_number(),
            "minLength" | "maxLength" | "minItems" | "maxItems" => value.is_u64(),
            other => other == "const" || WORDS.contains(&other),
        };
        if !right && !RULES.contains(&key.as_str()) {
            return Err(format!("has `{key}`, which is not kept here; write {}", RULES.join(", ")));
        }
        if !right {
            return Err(format!("has `{key}` = {value}, which is no value of it"));
        }
    }
    Ok(object)
}

fn check_allowed(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    check_itself(schema, value).map_err(|wanted| {
        let place = if at.is_empty() { "the value".to_owned() } else { format!("`{at}`") };
        format!("{place} is {value}; {wanted}")
    })?;
    match value {
        Value::Object(object) => fields(schema, object, at),
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return Ok(()) };
            let mut items = items.iter().enumerate();
            items.try_for_each(|(i, item)| check_allowed(schema, item, &format!("{at}[{i}]")))
        }
        _ => Ok(()),
    }
}

/// Checks a value without its fields and items. Returns what is wanted in its place.
fn check_itself(schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(types) = schema.get("type").and_then(types)
        && !types.iter().any(|name| is(value, name))
    {
        return Err(format!("write {}", types.join(" or ")));
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array)
        && !values.contains(value)
    {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        return Err(format!("write one of {}", values.join(", ")));
    }
    if let Some(only) = schema.get("const")
        && only != value
    {
        return Err(format!("write {only}"));
    }
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array)
        && !choices.iter().any(|choice| check_allowed(choice, value, "").is_ok())
    {
        return Err("it is none of what is allowed".to_owned());
    }
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array)
        && choices.iter().filter(|choice| check_allowed(choice, value, "").is_ok()).count() != 1
    {
        let only = choices.iter().filter_map(|choice| choice.get("const"));
        let only: Vec<String> = only.map(Value::to_string).collect();
        return if only.len() == choices.len() {
            Err(format!("write one of {}", only.join(", ")))
        } else {
            Err("it is not exactly one of what is allowed".to_owned())
        };
    }
    check_within(schema, value)
}

/// Checks bounds of numbers, and of the lengths of texts and lists.
fn check_within(schema: &Value, value: &Value) -> Result<(), String> {
    let (size, low, high, what) = match value {
        Value::Number(number) => (number.as_f64(), "minimum", "maximum", "a number"),
        Value::String(text) => {
            (Some(text.chars().count() as f64), "minLength", "maxLength", "a length")
        }
        Value::Array(items) => (Some(items.len() as f64), "minItems", "maxItems", "a length"),
        _ => return Ok(()),
    };
    let Some(size) = size else { return Ok(()) };
    match [low, high].map(|key| schema.get(key).and_then(Value::as_f64)) {
        [Some(low), _] if size < low => Err(format!("write {what} of at least {low}")),
        [_, Some(high)] if size > high => Err(format!("write {what} of at most {high}")),
        _ => Ok(()),
    }
}

fn fields(schema: &Value, object: &Map<String, Value>, at: &str) -> Result<(), String> {
    let inside = if at.is_empty() { String::new() } else { format!("{at}.") };
    let required = schema.get("required").and_then(texts).unwrap_or_default();
    if let Some(name) = required.iter().find(|name| !object.contains_key(**name)) {
        return Err(format!("`{inside}{name}` is missing"));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, value) in object {
        match properties.and_then(|properties| properties.get(name)) {
            Some(schema) => check_allowed(schema, value, &format!("{inside}{name}"))?,
            None => match schema.get("additionalProperties") {
                Some(Value::Bool(false)) => {
                    let known: Vec<&String> =
                        properties.into_iter().flatten().map(|(k, _)| k).collect();
                    return Err(format!("`{inside}{name}` is not known; there is {known:?}"));
                }
                Some(others) => check_allowed(others, value, &format!("{inside}{name}"))?,
                None => {}
            },
        }
    }
    Ok(())
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        // In JSON Schema 1.0 is an integer.
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        _ => value.is_null(),
    }
}

/// Reads one name, or a list of names.
fn types(value: &Value) -> Option<Vec<&str>> {
    value.as_str().map(|name| vec![name]).or_else(|| texts(value))
}

fn texts(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}
