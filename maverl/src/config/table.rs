//! Configurations as tables.
//!
//! A configuration is read from a table, and a table from a configuration, by way of the values that it is read from when
//! sources are merged and of the text that is written into a run. So the code that reads and writes every setting is compiled
//! once and not for each format.

use figment::value::Value;
use serde::Serialize;

use super::Config;
use crate::settings::read;

impl Config {
    /// Reads a configuration from a table of TOML or an object of JSON.
    ///
    /// # Errors
    ///
    /// If a key is unknown, or a value has a type that its key does not take: the key, and what it takes.
    pub fn of_table(table: &impl Serialize) -> Result<Self, String> {
        let value = Value::serialize(table).map_err(|error| error.to_string())?;
        read(&value).map_err(|error| error.to_string())
    }
}

/// Returns a part of a configuration as TOML.
///
/// # Errors
///
/// If a value has no form in TOML.
pub fn text_of(part: &impl Serialize) -> Result<String, toml::ser::Error> {
    let mut value = serde_json::to_value(part).map_err(serde::ser::Error::custom)?;
    remove_nulls(&mut value);
    toml::to_string_pretty(&value)
}

/// Returns the keys that a part of a configuration writes.
///
/// # Errors
///
/// If a value has no form in TOML.
pub fn table_of(part: &impl Serialize) -> Result<toml::Table, toml::ser::Error> {
    text_of(part)?.parse().map_err(serde::ser::Error::custom)
}

/// Removes keys without a value, which TOML cannot write.
fn remove_nulls(value: &mut serde_json::Value) {
    let Some(table) = value.as_object_mut() else { return };
    table.retain(|_, value| !value.is_null());
    table.values_mut().for_each(remove_nulls);
}
