//! Options of declarations: their defaults, and values from them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::settings::Table;

/// Returns empty options.
pub fn no_options() -> Value {
    Value::Object(Map::new())
}

/// Refuses every option.
pub fn refuse_options(options: &Value) -> Result<(), String> {
    let keys: Vec<String> = table(options)?.keys().map(|key| format!("`{key}`")).collect();
    match keys.as_slice() {
        [] => Ok(()),
        keys => Err(format!("unknown option {}: it has no options", keys.join(", "))),
    }
}

/// Returns the options with their defaults.
pub fn default_options<T: Serialize + DeserializeOwned>() -> Value {
    let value: T = from_options(&no_options()).expect("every option has a default");
    serde_json::to_value(value).expect("options are made of what JSON can say")
}

/// Returns the first number out of its declared range as an error in serde's words.
pub fn in_range<T: Table>(value: &T) -> Result<(), String> {
    match value.out_of_range().first() {
        Some(wrong) => Err(format!("invalid value: {}, expected {}", wrong.found, wrong.expected)),
        None => Ok(()),
    }
}

/// Creates the value, or lists the problem of each key.
pub fn from_options<T: DeserializeOwned>(options: &Value) -> Result<T, String> {
    let table = table(options)?;
    T::deserialize(options).map_err(|error| {
        // All keys have defaults, so each can be validated alone.
        let alone = table.iter().filter_map(|(key, value)| {
            let option = Map::from_iter([(key.clone(), value.clone())]);
            let error = T::deserialize(&Value::Object(option)).err()?.to_string();
            let named = error.contains(&format!("`{key}`"));
            Some(if named { error } else { format!("`{key}`: {error}") })
        });
        let alone: Vec<String> = alone.collect();
        if alone.is_empty() { error.to_string() } else { alone.join("; ") }
    })
}

fn table(options: &Value) -> Result<&Map<String, Value>, String> {
    options.as_object().ok_or_else(|| format!("options are a table, not {options}"))
}
