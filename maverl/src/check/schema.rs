//! JSON Schema of a configuration, with the settings of the linked declarations.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::config::schema;
use crate::registry::{Declaration, Registry};

/// Returns the JSON Schema (draft 2020-12) of a configuration: every key with its type, default, range and description, and
/// the settings of the linked agents, orchestras, environments, estimators and surrogates.
pub fn schema(registry: &Registry) -> Value {
    let mut schema = schema::schema();
    rename(&mut schema, "#/$defs/Named", "#/$defs/Environment");
    let environments = all(&registry.environments, |entry| &entry.declaration);
    let orchestras = all(&registry.orchestras, |entry| &entry.declaration);
    let advantages = all(&registry.advantages, |entry| &entry.declaration);
    let surrogates = all(&registry.surrogates, |entry| &entry.declaration);
    if let Some(Value::Object(definitions)) = schema.get_mut("$defs") {
        definitions.remove("Named");
        definitions.remove("DeclaredConfig");
        definitions.insert("Environment".to_owned(), named("environment", &environments));
        definitions.insert("Orchestra".to_owned(), named("orchestra", &orchestras));
        definitions
            .insert("DeclaredAdvantage".to_owned(), tagged("advantage", "kind", &advantages));
        definitions
            .insert("DeclaredSurrogate".to_owned(), tagged("surrogate", "kind", &surrogates));
    }
    let agents = all(&registry.agents, |entry| &entry.declaration);
    let agents = agents.iter().map(|its| (its.name.to_owned(), agent(its))).collect();
    let rewards = all(&registry.rewards, |entry| &entry.declaration);
    let rewards = rewards.iter().map(|its| (its.name.to_owned(), reward(its))).collect();
    for (place, value) in [
        ("/properties/orchestra/$ref", json!("#/$defs/Orchestra")),
        ("/properties/agents", names("Agents by their registered name.", &agents)),
        ("/properties/rewards", names("Reward functions by their registered name.", &rewards)),
        ("/$defs/AlgorithmConfig/properties/advantage/$ref", json!("#/$defs/DeclaredAdvantage")),
        ("/$defs/AlgorithmConfig/properties/surrogate/$ref", json!("#/$defs/DeclaredSurrogate")),
    ] {
        if let Some(found) = schema.pointer_mut(place) {
            *found = value;
        }
    }
    schema
}

fn all<'r, E>(
    entries: &'r BTreeMap<&'static str, E>,
    of: fn(&'r E) -> &'r Declaration,
) -> Vec<&'r Declaration> {
    entries.values().map(of).collect()
}

/// A table whose keys are registered names.
fn names(description: &str, properties: &Map<String, Value>) -> Value {
    json!({
        "description": description,
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

fn agent(declaration: &Declaration) -> Value {
    let options = json!({
        "type": "object",
        "properties": options("agent", declaration),
        "additionalProperties": false,
    });
    json!({
        "description": declaration.summary,
        "$ref": "#/$defs/AgentConfig",
        "properties": { "options": options },
    })
}

fn reward(declaration: &Declaration) -> Value {
    json!({ "description": declaration.summary, "$ref": "#/$defs/RewardConfig" })
}

/// `[orchestra]` or `[environment]`: a name and its options; without a name, which may be left out, options of any.
fn named(kind: &str, declarations: &[&Declaration]) -> Value {
    let mut table = tagged(kind, "name", declarations);
    let every: Map<String, Value> = declarations
        .iter()
        .flat_map(|declaration| options(kind, declaration))
        .map(|(key, _)| (key, json!({})))
        .collect();
    let unnamed = json!({ "type": "object", "properties": every, "additionalProperties": false });
    if let Some(Value::Array(tables)) = table.get_mut("anyOf") {
        tables.push(unnamed);
    }
    table
}

/// A registered name under the key `tag`, and its settings beside it.
fn tagged(kind: &str, tag: &str, declarations: &[&Declaration]) -> Value {
    let table = |declaration: &&Declaration| {
        let mut properties = options(kind, declaration);
        let name = json!({ "const": declaration.name, "description": declaration.summary });
        properties.insert(tag.to_owned(), name);
        json!({
            "title": declaration.name,
            "type": "object",
            "properties": properties,
            "required": [tag],
            "additionalProperties": false,
        })
    };
    if declarations.is_empty() {
        // JSON Schema has no empty `anyOf`.
        let description = format!("A registered {kind}, and its settings; none is linked.");
        return json!({ "description": description, "type": "object", "maxProperties": 0 });
    }
    let tables: Vec<Value> = declarations.iter().map(table).collect();
    json!({ "description": format!("A registered {kind}, and its settings."), "anyOf": tables })
}

/// Options of a declaration, with their documentation, types, defaults and ranges.
fn options(kind: &str, declaration: &Declaration) -> Map<String, Value> {
    let Value::Object(defaults) = (declaration.defaults)() else { return Map::new() };
    let property = |(name, default): (String, Value)| {
        let mut property = Map::new();
        if let Some(name) = type_of(&default) {
            property.insert("type".to_owned(), name.into());
            property.insert("default".to_owned(), default);
        }
        let key = declaration.keys.iter().find(|key| key.name == name);
        let text = key.map_or("", |key| key.doc);
        let text = match text.is_empty() {
            true => format!("Option of the {kind} `{}`.", declaration.name),
            false => text.to_owned(),
        };
        property.insert("description".to_owned(), text.into());
        if let Some(range) = key.and_then(|key| key.range) {
            schema::limit(&mut property, range);
        }
        (name, property.into())
    };
    defaults.into_iter().map(property).collect()
}

/// Name of the type that a default has; `None` for an option without one.
fn type_of(default: &Value) -> Option<&'static str> {
    match default {
        Value::Null => None,
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) if number.is_f64() => Some("number"),
        Value::Number(_) => Some("integer"),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("array"),
        Value::Object(_) => Some("object"),
    }
}

/// Replaces a reference everywhere.
fn rename(schema: &mut Value, from: &str, to: &str) {
    match schema {
        Value::String(text) if text == from => to.clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, from, to)),
        Value::Object(object) => object.values_mut().for_each(|value| rename(value, from, to)),
        _ => {}
    }
}
