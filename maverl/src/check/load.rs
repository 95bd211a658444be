//! The merged layers as a typed configuration, every unknown key and wrong type reported.

use figment::error::{Error, Kind};
use figment::value::{Dict, Value};

use super::diagnostic::{Problems, key, within};
use super::{tagged, wrong};
use crate::config::{Config, tables};
use crate::data::is_served;
use crate::settings::read;

/// Maximum number of wrong keys and values that are looked for: after each, the configuration is read again.
const MOST: usize = 1000;

/// The configuration of the merged layers. What is wrong is reported, taken out, and so has its default.
pub(super) fn config(problems: &mut Problems<'_>) -> Config {
    let mut value = problems.layers().merged().clone();
    let mut config: Config = repaired(&mut value, &[], read, problems).unwrap_or_default();
    let held_out = config.eval.data.as_deref().unwrap_or_default();
    if [config.task.data.as_str(), held_out].into_iter().any(is_served) {
        config.task.environment = config.environment.clone();
    }
    config
}

/// Reads a table at a place with `read`. Wrong values are reported and taken out; `None` if nothing can be read then.
pub(super) fn repaired<T>(
    value: &mut Value,
    table: &[String],
    read: fn(&Value) -> Result<T, Box<Error>>,
    problems: &mut Problems<'_>,
) -> Option<T> {
    for _ in 0..MOST {
        let error = match read(value) {
            Ok(read) => return Some(read),
            Err(error) => error,
        };
        if let Kind::MissingField(field) = &error.kind {
            missing(problems, &error.path, field);
            if put(value, &within(&error.path, field), "".into()) {
                continue;
            }
        } else if let Some((depth, taken)) = take(value, &error.path) {
            let path = [table, &error.path].concat();
            let depth = table.len() + depth;
            wrong::report(problems, &path, depth, (&error.kind, &taken));
            problems.gone(&path[..depth]);
            continue;
        }
        problems.whole(error.kind.to_string(), None);
        return None;
    }
    problems
        .whole(format!("{MOST} keys and values are wrong; the others were not looked at"), None);
    None
}

fn missing(problems: &mut Problems<'_>, table: &[String], field: &str) {
    let message = format!("`{}` has no `{field}`", key(table));
    let help = "write `path = \"builtin:tiny\"`, or the path of a Hugging Face model directory";
    problems.key(&within(table, field), message, help.to_owned());
}

/// The type of a key in a user's terms; `None` if no configuration has the key.
pub fn type_of(path: &[String]) -> Option<String> {
    // A text that is no value of any key but those that take every text.
    let nested = |path: &[String]| {
        let keys = path.iter().rev();
        keys.fold(Value::from("\0"), |inner, key| Dict::from([(key.clone(), inner)]).into())
    };
    if let Some((table, key)) = tagged::of(path) {
        let value = nested(key);
        return table.kinds.iter().find_map(|kind| type_in((kind.read)(&value).err()));
    }
    if let Some(table) = tables::tagged(path) {
        let names: Vec<String> = table.names().iter().map(|name| format!("{name:?}")).collect();
        let declared = if table.open { ", the name of a declared one" } else { "" };
        return Some(format!("one of {}{declared}, or a table with `kind`", names.join(", ")));
    }
    type_in(read::<Config>(&nested(path)).err())
}

/// The type of a setting of a declaration in a user's terms. `build` makes the declared value from settings.
pub fn type_of_option(
    build: impl Fn(&serde_json::Value) -> Result<(), String>,
    name: &str,
) -> String {
    // A text that is no value of any setting but those that take every text.
    let settings = serde_json::json!({ name: "\0" });
    let Err(error) = build(&settings) else { return wrong::plain("a string").to_owned() };
    let expected = error.split_once(", expected ").map(|(_, expected)| wrong::plain(expected));
    expected.unwrap_or("any value of TOML").to_owned()
}

/// The type of a key in a user's terms, from the error about its impossible value.
fn type_in(error: Option<Box<Error>>) -> Option<String> {
    let Some(error) = error else { return Some(wrong::plain("a string").to_owned()) };
    match error.kind {
        Kind::UnknownField(..) => None,
        Kind::UnknownVariant(_, known) => {
            let known: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
            Some(format!("one of {}", known.join(", ")))
        }
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => {
            Some(wrong::plain(&expected).to_owned())
        }
        // What is missing beside it is missing after it was read.
        _ => Some(wrong::plain("a string").to_owned()),
    }
}

/// Takes out the innermost value on a path (a whole list for an item of it), with how many keys lead to it.
fn take(value: &mut Value, path: &[String]) -> Option<(usize, Value)> {
    let (first, rest) = path.split_first()?;
    let Value::Dict(_, dict) = value else { return None };
    if let Some((depth, taken)) = dict.get_mut(first).and_then(|inner| take(inner, rest)) {
        return Some((depth + 1, taken));
    }
    dict.remove(first).map(|taken| (1, taken))
}

fn put(value: &mut Value, path: &[String], new: Value) -> bool {
    let Value::Dict(_, dict) = value else { return false };
    match path {
        [] => false,
        [last] => dict.insert(last.clone(), new).is_none(),
        [first, rest @ ..] => dict.get_mut(first).is_some_and(|inner| put(inner, rest, new)),
    }
}
