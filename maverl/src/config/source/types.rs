//! Types of keys, in a user's terms.

use figment::error::{Error, Kind};
use figment::value::{Dict, Value};

use super::kinds::tagged_table;
use super::wrong;
use crate::config::{Config, tables};
use crate::settings::read;

/// The type of a key in a user's terms; `None` if no configuration has the key.
pub fn type_of(path: &[String]) -> Option<String> {
    if let Some((table, key)) = tagged_table(path) {
        let value = nested(key);
        return table.kinds.iter().find_map(|kind| type_in((kind.read)(&value).err()));
    }
    if let Some(table) = tables::tagged_table(path) {
        let names: Vec<String> = table.names().iter().map(|name| format!("{name:?}")).collect();
        let declared = if table.open { ", the name of a declared one" } else { "" };
        return Some(format!("one of {}{declared}, or a table with `kind`", names.join(", ")));
    }
    type_in(read::<Config>(&nested(path)).err())
}

/// Returns tables with a text at a path that is no value of any key but those that take every text.
fn nested(path: &[String]) -> Value {
    let keys = path.iter().rev();
    keys.fold(Value::from("\0"), |inner, key| Dict::from([(key.clone(), inner)]).into())
}

/// The type of a setting of a declaration in a user's terms. `build` makes the declared value from settings.
pub fn type_of_option(
    build: impl Fn(&serde_json::Value) -> Result<(), String>,
    name: &str,
) -> String {
    // A text that is no value of any setting but those that take every text.
    let settings = serde_json::json!({ name: "\0" });
    let Err(error) = build(&settings) else { return wrong::plain_type("a string").to_owned() };
    let expected = error.split_once(", expected ").map(|(_, expected)| wrong::plain_type(expected));
    expected.unwrap_or("any value of TOML").to_owned()
}

/// The type of a key in a user's terms, from the error about its impossible value.
fn type_in(error: Option<Box<Error>>) -> Option<String> {
    let Some(error) = error else { return Some(wrong::plain_type("a string").to_owned()) };
    match error.kind {
        Kind::UnknownField(..) => None,
        Kind::UnknownVariant(_, known) => {
            let known: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
            Some(format!("one of {}", known.join(", ")))
        }
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => {
            Some(wrong::plain_type(&expected).to_owned())
        }
        // What is missing beside it is missing after it was read.
        _ => Some(wrong::plain_type("a string").to_owned()),
    }
}
