//! JSON Schema (draft 2020-12) of a configuration: types and descriptions from schemars, defaults, ranges and levels from
//! declared settings.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::tables::{DeclaredTable, TABLES, TAGGED};
use super::{AnchorPlan, Config};
use crate::settings::TableKind;

/// A table that several kinds of estimators have.
static ANCHOR: DeclaredTable =
    DeclaredTable::of::<AnchorPlan>("algorithm.advantage.anchor", "`anchor`");

/// The schema of a configuration, whatever is linked.
pub(crate) fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    for kind in TAGGED.iter().flat_map(|table| table.kinds) {
        (kind.define)(&mut generator);
    }
    let mut schema = generator.into_root_schema_for::<Config>().to_value();
    tidy(&mut schema);
    for table in TABLES.iter().chain([&ANCHOR]) {
        for key in table.descriptions() {
            let place = format!("{}/properties/{}", definition(table.name), key.name);
            if let Some(Value::Object(property)) = schema.pointer_mut(&place) {
                key.annotate(property);
            }
        }
    }
    schema
}

/// A table for each of these kinds, from the definitions of a schema.
pub(crate) fn kinds(schema: &Value, kinds: &[TableKind]) -> Vec<Value> {
    kinds.iter().filter_map(|kind| kind_table(schema, kind)).collect()
}

fn kind_table(schema: &Value, kind: &TableKind) -> Option<Value> {
    let mut table = schema.pointer(&definition(kind.table))?.clone();
    let name = json!({ "const": kind.name, "description": kind.doc });
    table.get_mut("properties")?.as_object_mut()?.insert("kind".to_owned(), name);
    table["title"] = kind.name.into();
    table["required"] = json!(["kind"]);
    Some(table)
}

/// Place of a table's definition in the schema.
pub(crate) fn definition(name: &str) -> String {
    if name == "Config" { String::new() } else { format!("/$defs/{name}") }
}

/// Removes `null`, which TOML does not have, and the widths of Rust's numbers.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.retain(|key, value| {
                let width = key == "format" && value.is_string();
                !(width || key == "default" && value.is_null())
            });
            if let Some(Value::Array(types)) = object.get("type").cloned() {
                let mut types = types.into_iter().filter(|name| name != "null");
                if let Some(only) = types.next() {
                    object.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(any)) = object.get("anyOf").cloned() {
                let null = json!({ "type": "null" });
                let others: Vec<Value> = any.into_iter().filter(|one| *one != null).collect();
                match others.as_slice() {
                    [Value::Object(only)] => {
                        object.remove("anyOf");
                        for (key, value) in only {
                            object.entry(key).or_insert_with(|| value.clone());
                        }
                    }
                    _ => drop(object.insert("anyOf".to_owned(), others.into())),
                }
            }
            object.values_mut().for_each(tidy);
        }
        Value::Array(values) => values.iter_mut().for_each(tidy),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_type_default_range_and_description() {
        let schema = schema();
        let at = |place: &str| schema.pointer(place).cloned().unwrap_or_default();
        let clip = at("/$defs/ClipOptions/properties/clip_low");
        let expected = json!({
            "description": "Lower clip: the ratio is at least 1 minus this number. Level: agent.",
            "type": "number",
            "default": 0.2,
            "exclusiveMinimum": 0.0,
            "maximum": 1.0,
        });
        assert_eq!(clip, expected);
        assert_eq!(at("/$defs/AlgorithmConfig/properties/name/default"), "drmas");
        assert_eq!(at("/$defs/LoraConfig/properties/rank/maximum"), 65536);
        assert_eq!(at("/properties/steps/default"), 100);
        assert_eq!(at("/$defs/LossConfig/additionalProperties"), false);
        assert_eq!(at("/$schema"), "https://json-schema.org/draft/2020-12/schema");
        assert!(!schema.to_string().contains("null"), "TOML has no null");
    }

    #[test]
    fn every_declared_key_is_in_the_schema() {
        let schema = schema();
        for table in &TABLES {
            let place = definition(table.name) + "/properties";
            let properties = schema.pointer(&place).cloned().unwrap_or_default();
            for key in table.keys {
                assert!(properties[key.name]["description"].is_string(), "{}", key.name);
            }
        }
    }
}
