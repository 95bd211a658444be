//! `maverl schema`: the JSON Schema of a configuration of what is linked.

use serde_json::{Map, Value, json};

use crate::config::schema;
use crate::registry::{Declaration, Registry};

/// The schema of a configuration, with the options of the linked agents, orchestras and environments.
pub(super) fn schema(registry: &Registry) -> Value {
    let mut schema = schema::schema();
    let orchestras = registry.orchestras.values().map(|entry| &entry.declaration);
    let environments = registry.environments.values().map(|entry| &entry.declaration);
    let agents: Map<String, Value> = registry
        .agents
        .values()
        .map(|entry| (entry.declaration.name.to_owned(), agent(&entry.declaration)))
        .collect();
    let rewards: Map<String, Value> = registry
        .rewards
        .values()
        .map(|entry| (entry.declaration.name.to_owned(), reward(&entry.declaration)))
        .collect();
    rename(&mut schema, "#/$defs/Named", "#/$defs/Environment");
    if let Some(Value::Object(definitions)) = schema.get_mut("$defs") {
        definitions.remove("Named");
        definitions.insert("Environment".to_owned(), named("environment", environments));
        definitions.insert("Orchestra".to_owned(), named("orchestra", orchestras));
    }
    for (place, value) in [
        ("/properties/orchestra/$ref", json!("#/$defs/Orchestra")),
        ("/properties/agents", names("Agents by their registered name.", agents)),
        ("/properties/rewards", names("Reward functions by their registered name.", rewards)),
    ] {
        if let Some(found) = schema.pointer_mut(place) {
            *found = value;
        }
    }
    schema
}

/// A table whose keys are registered names.
fn names(description: &str, properties: Map<String, Value>) -> Value {
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

/// `[orchestra]` or `[environment]`: a name and its options; without a name, options of any.
fn named<'d>(kind: &str, declarations: impl Iterator<Item = &'d Declaration>) -> Value {
    let mut every = Map::new();
    let mut tables = Vec::new();
    for declaration in declarations {
        let mut properties = options(kind, declaration);
        every.extend(properties.keys().map(|key| (key.clone(), json!({}))));
        let name = json!({ "const": declaration.name, "description": declaration.summary });
        properties.insert("name".to_owned(), name);
        tables.push(json!({
            "title": declaration.name,
            "type": "object",
            "properties": properties,
            "required": ["name"],
            "additionalProperties": false,
        }));
    }
    tables.push(json!({ "type": "object", "properties": every, "additionalProperties": false }));
    json!({ "description": format!("A registered {kind}, and its options."), "anyOf": tables })
}

/// Options of a declaration, with their types and defaults.
fn options(kind: &str, declaration: &Declaration) -> Map<String, Value> {
    let Value::Object(defaults) = (declaration.defaults)() else { return Map::new() };
    let property = |(name, default): (String, Value)| {
        let description = format!("Option of the {kind} `{}`.", declaration.name);
        let mut property = json!({ "description": description });
        if let Some(name) = type_of(&default) {
            property["type"] = name.into();
            property["default"] = default;
        }
        (name, property)
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
