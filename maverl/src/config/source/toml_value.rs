//! Values of TOML as the values that layers are merged of.

use figment::value::{Dict, Value};
use toml_edit::{Item, TableLike};

use crate::IntoMap;

/// Returns the values of a table.
pub(super) fn table_value(table: &dyn TableLike) -> Dict {
    table.iter().map(|(key, item)| (key.to_owned(), item_value(item))).into_map()
}

fn item_value(item: &Item) -> Value {
    match item {
        Item::None => Dict::new().into(),
        Item::Value(value) => toml_value(value),
        Item::Table(table) => table_value(table).into(),
        Item::ArrayOfTables(tables) => {
            tables.iter().map(|table| table_value(table)).collect::<Vec<_>>().into()
        }
    }
}

/// Returns a value.
pub(super) fn toml_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(value) => value.value().clone().into(),
        Toml::Integer(value) => (*value.value()).into(),
        Toml::Float(value) => (*value.value()).into(),
        Toml::Boolean(value) => (*value.value()).into(),
        Toml::Datetime(value) => value.value().to_string().into(),
        Toml::Array(values) => values.iter().map(toml_value).collect::<Vec<_>>().into(),
        Toml::InlineTable(table) => table_value(table).into(),
    }
}
