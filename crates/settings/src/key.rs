//! Keys of tables.

use serde_json::Value;

use super::{Range, json};

/// A key of a table of settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Key {
    /// Its name in the table.
    pub name: &'static str,
    /// Its documentation.
    pub doc: &'static str,
    /// `agent`, `policy`, `team`, or `run`, which may change when a run is resumed.
    pub level: &'static str,
    /// Numbers that are accepted, if not all of the type.
    pub range: Option<Range>,
    /// It is a table of settings.
    pub table: bool,
    /// Value that the reference shows for a key without a default, or for a table.
    pub example: Option<&'static str>,
    /// Conditions on other keys of the table under which this one has no effect.
    pub idle: &'static [Idle],
}

impl Key {
    /// A key with its documentation alone.
    pub const fn documented(name: &'static str, doc: &'static str) -> Self {
        let (range, table, example) = (None, false, None);
        Self { name, doc, level: "team", range, table, example, idle: &[] }
    }
}

/// A condition on another key of a table, under which a key has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// The key has no effect where the condition holds; otherwise where it does not hold.
    pub holds: bool,
    /// The other key with its value or with a list of values, as TOML.
    pub condition: &'static str,
}

impl Idle {
    /// Returns the other key and its values, an empty list as a value; `None` if the condition is no TOML, which a test excludes.
    pub fn parts(&self) -> Option<(String, Vec<Value>)> {
        let condition: toml::Table = self.condition.parse().ok()?;
        let (key, value) = condition.into_iter().next()?;
        match json(&value) {
            Value::Array(values) if !values.is_empty() => Some((key, values)),
            value => Some((key, vec![value])),
        }
    }

    /// Returns the reason why the key has no effect in a table with these values, if it has none.
    pub fn reason(&self, table: &Value) -> Option<String> {
        let (key, values) = self.parts()?;
        // An empty list may be left out.
        let empty = Value::Array(Vec::new());
        let found = table.get(&key).or_else(|| values.contains(&empty).then_some(&empty))?;
        let holds = values.iter().find(|value| is_equal(value, found));
        match (self.holds, holds) {
            (true, Some(value)) => Some(format!("`{key}` is {}", show_value(value))),
            (false, None) => {
                let values: Vec<String> = values.iter().map(show_value).collect();
                Some(format!("`{key}` is not {}", values.join(" or ")))
            }
            _ => None,
        }
    }
}

/// Returns true for equal values; 1 and 1.0 are equal.
fn is_equal(value: &Value, other: &Value) -> bool {
    match (value.as_f64(), other.as_f64()) {
        (Some(value), Some(other)) => value == other,
        _ => value == other,
    }
}

/// Formats a value; 1.0 as 1.
fn show_value(value: &Value) -> String {
    value.as_f64().map_or_else(|| value.to_string(), |number| number.to_string())
}
