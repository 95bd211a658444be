//! Values of `adapter_config.json`.

use serde_json::{Map, Value};

/// The file that makes a directory an adapter.
pub const CONFIG_FILE: &str = "adapter_config.json";

/// Ranks above this are a damaged file or a slip of the pen.
pub const MAX_RANK: u64 = 1 << 16;

/// Returns true if a value means that an option is not used.
pub(super) fn off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(items) => items.is_empty(),
        _ => false,
    }
}

/// Returns the value of a key; null if it is missing.
pub(super) fn value_of<'a>(json: &'a Map<String, Value>, key: &str) -> &'a Value {
    json.get(key).unwrap_or(&Value::Null)
}

/// Returns what a key has in place of what is expected.
pub(super) fn found_value(json: &Map<String, Value>, key: &str, wanted: &str) -> String {
    match json.get(key) {
        None => format!("`{key}` is missing; expected {wanted}"),
        Some(value) => format!("`{key}` is {value}; expected {wanted}"),
    }
}
