//! Options of what is declared: its defaults, under what the configuration sets.

use serde_json::{Map, Value, json};

use super::nested;
use crate::config::Named;
use crate::config::source::{
    Problems, alias, did_you_mean, home_of, key, list, option_help, path_within, plain_type,
};
use crate::plan::Chosen;
use crate::registry::Declaration;

/// Fills in the default options. Every unknown key and wrong type is reported and left out.
pub(crate) fn filled_options<T>(
    table: &[String],
    given: &Map<String, Value>,
    declaration: &Declaration,
    build: impl Fn(&Value) -> Result<T, String>,
    problems: &mut Problems<'_>,
) -> Value {
    let defaults = match (declaration.defaults)() {
        Value::Object(defaults) => defaults,
        _ => Map::new(),
    };
    let known = defaults.keys().map(String::as_str);
    let mut all = defaults.clone();
    for (name, value) in given {
        let at = path_within(table, name);
        let value = &nested::without_unknown(&at, value, &build, problems);
        if !defaults.contains_key(name) {
            let message =
                format!("unknown key `{}`: `{}` has no such option", key(&at), declaration.name);
            let help = match (did_you_mean(name, known.clone()), home_of(name)) {
                (Some(close), _) => format!("did you mean `{close}`?"),
                (None, Some(home)) => home,
                (None, None) => alias::help(&at.join("."), None)
                    .unwrap_or_else(|| format!("its options are {}", list(known.clone()))),
            };
            problems.key(&at, message, help);
        } else if let Err(error) = build(&json!({ name: value })) {
            let help = option_help(&at, value, &error);
            problems.value(&at, wrong_type(&key(&at), value, &error), help);
        } else {
            all.insert(name.clone(), value.clone());
        }
    }
    let all = Value::Object(all);
    match build(&all) {
        Ok(_) => all,
        Err(error) => {
            let message =
                format!("the options of `{}` do not go together: {error}", declaration.name);
            problems.key(table, message, None);
            Value::Object(defaults)
        }
    }
}

/// Rewrites serde's message about a wrong type in the style of this module; other messages are unchanged.
fn wrong_type(key: &str, value: &Value, error: &str) -> String {
    // The wrong option is the last part of the key.
    let named = error.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
    let error = named.map_or(error, |(_, rest)| rest);
    match error.split_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => {
            format!("`{key}` is {value}; expected {}", plain_type(expected))
        }
        _ => format!("`{key}`: {error}"),
    }
}

/// Returns the path of the option that a message begins with, or that of the table.
pub(crate) fn option_path(table: &[String], options: &Value, message: &str) -> Vec<String> {
    let quoted = message.strip_prefix('`').and_then(|rest| rest.split_once('`'));
    let option = quoted.map(|(option, _)| option).filter(|option| options.get(option).is_some());
    option.map_or(table.to_vec(), |option| path_within(table, option))
}

/// Returns the choice as a user would write it.
pub(crate) fn as_written(chosen: &Chosen) -> Named {
    Named {
        name: Some(chosen.name.clone()),
        options: without_nulls(chosen.options.as_object().cloned().unwrap_or_default()),
    }
}

/// Removes null values, which TOML does not have.
pub(crate) fn without_nulls(options: Map<String, Value>) -> Map<String, Value> {
    options
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key, value_without_nulls(value)))
        .collect()
}

fn value_without_nulls(value: Value) -> Value {
    match value {
        Value::Object(inner) => Value::Object(without_nulls(inner)),
        Value::Array(items) => items.into_iter().map(value_without_nulls).collect(),
        value => value,
    }
}
