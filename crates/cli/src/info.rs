//! `maverl list`.

use serde_json::Value;

use maverl::registry::{Declaration, Registry, lacking_gates};
use maverl::table::{NO_BREAK, Table};

fn add_row(table: &mut Table, kind: &str, declaration: &Declaration) {
    table.row([kind, declaration.name, declaration.summary, &options_of(declaration)]);
}

/// Lists all linked components.
pub(super) fn list(registry: &Registry) -> Table {
    let header = ["kind", "name", "what it is", "options"];
    let mut table = Table::without_frame(header).prose(&[2, 3]).title(2);
    registry.orchestras.values().for_each(|e| add_row(&mut table, "orchestra", &e.declaration));
    registry.agents.values().for_each(|e| add_row(&mut table, "agent", &e.declaration));
    registry.environments.values().for_each(|e| add_row(&mut table, "environment", &e.declaration));
    registry.rewards.values().for_each(|e| add_row(&mut table, "reward", &e.declaration));
    registry.tools.values().for_each(|e| add_row(&mut table, "tool", &e.declaration));
    registry.advantages.values().for_each(|e| add_row(&mut table, "advantage", &e.declaration));
    registry.surrogates.values().for_each(|e| add_row(&mut table, "surrogate", &e.declaration));
    table
}

/// Returns the options of a component with their defaults.
fn options_of(declaration: &Declaration) -> String {
    let defaults = (declaration.defaults)();
    let options = defaults.as_object().into_iter().flatten();
    let options: Vec<String> = options
        .map(|(name, value)| format!("{name}{NO_BREAK}={NO_BREAK}{}", in_toml(value)))
        .collect();
    options.join(", ")
}

/// Returns a line about orchestras and environments that need a feature which this program lacks; none if it has all.
pub(super) fn lacking() -> Option<String> {
    let names: Vec<String> = lacking_gates()
        .iter()
        .map(|gate| format!("`{}` (feature `{}`)", gate.name, gate.feature))
        .collect();
    (!names.is_empty()).then(|| format!("This program was built without {}.", names.join(", ")))
}

/// Formats a value as TOML in one line, without the keys that have no value.
pub(super) fn in_toml(value: &Value) -> String {
    match toml::Value::try_from(without_null(value)) {
        Ok(written) => written.to_string(),
        Err(_) => "none".to_owned(),
    }
}

/// Returns a copy of a value without the nulls inside it: TOML has none.
fn without_null(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_null(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_null).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_written_as_a_configuration_has_them() {
        assert_eq!(in_toml(&json!([0.0, 0.5])), "[0.0, 0.5]");
        assert_eq!(
            in_toml(&json!({ "a": "b", "c": { "d": 1 }, "e": null })),
            "{ a = \"b\", c = { d = 1 } }"
        );
        assert_eq!(in_toml(&json!("own")), "\"own\"");
        assert_eq!(in_toml(&json!(null)), "none");
    }

    #[test]
    fn what_a_program_was_built_without_is_named_with_its_feature() {
        let told = lacking().unwrap_or_default();
        let grpc = "without `grpc` (feature `grpc`)";
        assert_eq!(told.contains(grpc), cfg!(not(feature = "grpc")), "{told}");
        assert_eq!(told.contains("`openenv`"), cfg!(not(feature = "openenv")), "{told}");
    }
}
