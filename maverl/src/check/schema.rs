//! JSON Schema of a configuration, with the settings of the linked declarations.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::IntoMap;
use crate::config::schema;
use crate::config::source::DeclaredKinds;
use crate::config::tables::{TAGGED, TaggedTable};
use crate::registry::{Declaration, Registry};
use crate::settings::Description;

/// Returns the JSON Schema (draft 2020-12) of a configuration: every key with its type, default, range and description, and
/// the settings of the linked agents, orchestras, environments, estimators and surrogates.
pub fn schema(registry: &Registry) -> Value {
    let mut schema = schema::schema();
    rename(&mut schema, "#/$defs/Named", "#/$defs/Environment");
    let environments = all_declarations(&registry.environments, |entry| &entry.declaration);
    let orchestras = all_declarations(&registry.orchestras, |entry| &entry.declaration);
    let tagged: Vec<Value> = TAGGED.iter().map(|table| kinds(table, &schema, registry)).collect();
    if let Some(Value::Object(definitions)) = schema.get_mut("$defs") {
        definitions.remove("Named");
        definitions.remove("TaggedConfig");
        definitions.insert("Environment".to_owned(), named_schema("environment", &environments));
        definitions.insert("Orchestra".to_owned(), named_schema("orchestra", &orchestras));
        for (table, schema) in TAGGED.iter().zip(tagged) {
            definitions.insert(table.definition.to_owned(), schema);
        }
    }
    let agents = all_declarations(&registry.agents, |entry| &entry.declaration);
    let agents = agents.iter().map(|its| (its.name.to_owned(), agent(its))).collect();
    let rewards = all_declarations(&registry.rewards, |entry| &entry.declaration);
    let rewards = rewards.iter().map(|its| (its.name.to_owned(), reward(its))).collect();
    for (place, value) in [
        ("/properties/orchestra/$ref", json!("#/$defs/Orchestra")),
        ("/properties/agents", names("Agents by their registered name.", &agents)),
        ("/properties/rewards", parts_of_the_reward(&rewards)),
    ] {
        if let Some(found) = schema.pointer_mut(place) {
            *found = value;
        }
    }
    for table in &TAGGED {
        let (parent, key) = table.header.rsplit_once('.').unwrap_or_default();
        let parent = if parent == "algorithm.loss" { "LossConfig" } else { "AlgorithmConfig" };
        let place = format!("/$defs/{parent}/properties/{key}");
        if let Some(found) = schema.pointer_mut(&place) {
            rename(found, "#/$defs/TaggedConfig", &format!("#/$defs/{}", table.definition));
        }
    }
    schema
}

fn all_declarations<'r, E>(
    entries: &'r BTreeMap<&'static str, E>,
    of: fn(&'r E) -> &'r Declaration,
) -> Vec<&'r Declaration> {
    entries.values().map(of).collect()
}

/// The registered declarations of kinds of a table, built-in ones included.
fn kinds_of<'r>(table: &TaggedTable, registry: &'r Registry) -> Vec<&'r Declaration> {
    match table.definition {
        "Advantage" => registry.advantages.values().map(|entry| &entry.declaration).collect(),
        "Surrogate" => registry.surrogates.values().map(|entry| &entry.declaration).collect(),
        _ => Vec::new(),
    }
}

/// Returns the names of the declared kinds of every table.
pub(super) fn declared_kinds(registry: &Registry) -> DeclaredKinds {
    let declared = TAGGED.iter().map(|table| (table.definition, kinds_of(table, registry)));
    declared.map(|(table, kinds)| (table, kinds.iter().map(|its| its.name).collect())).into_map()
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

/// Reward functions by their registered name; parts that are given by something else have any other.
fn parts_of_the_reward(functions: &Map<String, Value>) -> Value {
    let mut parts = names(
        "Parts of the reward: functions, servers, Python files, judges, verifiers and prices.",
        functions,
    );
    let given = ["server", "python", "judge", "verifier", "usage"];
    parts["additionalProperties"] = json!({
        "$ref": "#/$defs/RewardConfig",
        "anyOf": given.map(|table| json!({ "required": [table] })),
    });
    parts
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
fn named_schema(kind: &str, declarations: &[&Declaration]) -> Value {
    let mut table = tagged_schema(kind, "name", declarations);
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

/// A table with a `kind`: the name of a kind, or its table; a table without a `kind`, which is then inherited, has the keys of
/// any.
fn kinds(table: &TaggedTable, schema: &Value, registry: &Registry) -> Value {
    let own = schema::kinds(schema, table.kinds);
    let others: Vec<&Declaration> = kinds_of(table, registry)
        .into_iter()
        .filter(|its| table.kinds.iter().all(|kind| kind.name != its.name))
        .collect();
    let names = table.names().into_iter().chain(others.iter().map(|its| its.name));
    let names = json!({ "enum": names.collect::<Vec<_>>() });
    let mut every = Map::new();
    for properties in own.iter().filter_map(|table| table["properties"].as_object()) {
        for (key, value) in properties.iter().filter(|(key, _)| *key != "kind") {
            // Kinds may have different keys of one name.
            let either = match every.get(key) {
                Some(other) if other != value => json!({ "anyOf": [other, value] }),
                _ => value.clone(),
            };
            every.insert(key.clone(), either);
        }
    }
    let unnamed = json!({ "type": "object", "properties": every, "additionalProperties": false });
    let others = others.into_iter().map(|its| declaration_schema(table.noun, "kind", its));
    let tables: Vec<Value> =
        [names].into_iter().chain(own).chain(others).chain([unnamed]).collect();
    let description = format!("Kind of `{}`, and its settings.", table.header);
    json!({ "description": description, "anyOf": tables })
}

/// A registered name under the key `tag`, and its settings beside it.
fn tagged_schema(kind: &str, tag: &str, declarations: &[&Declaration]) -> Value {
    if declarations.is_empty() {
        // JSON Schema has no empty `anyOf`.
        let description = format!("A registered {kind}, and its settings; none is linked.");
        return json!({ "description": description, "type": "object", "maxProperties": 0 });
    }
    let tables: Vec<Value> =
        declarations.iter().map(|its| declaration_schema(kind, tag, its)).collect();
    json!({ "description": format!("A registered {kind}, and its settings."), "anyOf": tables })
}

/// The table of one declaration.
fn declaration_schema(kind: &str, tag: &str, declaration: &Declaration) -> Value {
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
}

/// Options of a declaration, with their documentation, types, defaults and ranges.
fn options(kind: &str, declaration: &Declaration) -> Map<String, Value> {
    let options = declaration.descriptions().into_iter();
    options.map(|it| (it.name.clone(), option_schema(kind, declaration, &it))).collect()
}

fn option_schema(kind: &str, declaration: &Declaration, option: &Description) -> Value {
    let mut property = Map::new();
    let text = match option.doc {
        "" => format!("Option of the {kind} `{}`.", declaration.name),
        text => text.to_owned(),
    };
    if let Some(name) = type_of(&option.default) {
        property.insert("type".to_owned(), name.into());
        property.insert("default".to_owned(), option.default.clone());
    }
    property.insert("description".to_owned(), text.into());
    option.limit(&mut property);
    property.into()
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
