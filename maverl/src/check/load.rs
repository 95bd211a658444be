//! The merged layers as a typed configuration, every unknown key and wrong type reported.

use figment::error::{Actual, Kind};
use figment::value::{Dict, Value};
use serde::Deserialize;

use super::diagnostic::{Problems, did_you_mean, key, list, within};
use crate::config::{
    AgentConfig, AlgorithmConfig, CheckpointConfig, Config, CriticConfig, EvalConfig, LoraConfig,
    LossConfig, ModelConfig, OptimConfig, OutsiderConfig, PreferenceConfig, RewardConfig,
    RolloutConfig, RuntimeConfig, SamplingConfig, TaskConfig, WorldConfig,
};

/// The configuration of the merged layers. What is wrong is reported, taken out, and so has its default.
pub(super) fn config(problems: &mut Problems<'_>) -> Config {
    let mut value = problems.layers().merged().clone();
    loop {
        let error = match value.deserialize::<Config>() {
            Ok(config) => return config,
            Err(error) => error,
        };
        if let Kind::MissingField(field) = &error.kind {
            missing(problems, &error.path, field);
            if put(&mut value, &within(&error.path, field), "".into()) {
                continue;
            }
        } else if let Some(depth) = take(&mut value, &error.path) {
            wrong(problems, &error.path, depth, &error.kind);
            problems.gone(&error.path[..depth]);
            continue;
        }
        problems.whole(error.kind.to_string(), None);
        return Config::default();
    }
}

fn missing(problems: &mut Problems<'_>, table: &[String], field: &str) {
    let message = format!("`{}` has no `{field}`", key(table));
    let help = "write `path = \"builtin:tiny\"`, or the path of a Hugging Face model directory";
    problems.key(&within(table, field), message, help.to_owned());
}

/// Reports what is wrong at a path, of which `depth` keys lead to a value of a table.
fn wrong(problems: &mut Problems<'_>, path: &[String], depth: usize, kind: &Kind) {
    let (path, item) = path.split_at(depth);
    let name = item.iter().fold(key(path), |name, index| format!("{name}[{index}]"));
    match kind {
        Kind::UnknownField(field, known) => {
            problems.key(path, format!("unknown key `{name}`"), unknown_help(field, known));
        }
        Kind::UnknownVariant(found, known) => {
            let help = did_you_mean(found, known.iter().copied())
                .map(|name| format!("did you mean \"{name}\"?"));
            let known: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
            let message = format!("`{name}` is {found:?}; expected one of {}", known.join(", "));
            problems.value(path, message, help);
        }
        Kind::InvalidType(Actual::Str(text), expected) if too_large(text, expected) => {
            problems.value(path, format!("`{name}` is {text}; the largest is {}", i64::MAX), None);
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            let message = format!("`{name}` is {}; expected {}", shown(found), plain(expected));
            let quoted = matches!(found, Actual::Str(text) if text.parse::<f64>().is_ok());
            problems.value(path, message, quoted.then(|| "write it without quotes".to_owned()));
        }
        Kind::InvalidLength(found, expected) => {
            let message = format!("`{name}` has {found} items; expected {}", plain(expected));
            problems.value(path, message, None);
        }
        other => problems.value(path, format!("`{name}`: {other}"), None),
    }
}

/// Whether a text is a number of its own that TOML has no room for.
fn too_large(text: &str, expected: &str) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    expected.starts_with('u') && digits && !text.is_empty() && text.parse::<i64>().is_err()
}

/// The closest key of this table; else the tables that do have the key; else all keys of this one.
fn unknown_help(field: &str, known: &[&str]) -> String {
    let homes: Vec<&str> = tables()
        .iter()
        .filter(|(_, keys)| keys.contains(&field))
        .map(|(table, _)| *table)
        .collect();
    if !homes.is_empty() {
        return format!("`{field}` is a key of {}", homes.join(" and "));
    }
    match did_you_mean(field, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("its keys are {}", list(known.iter().copied())),
    }
}

/// Every table of a configuration with its keys, as serde knows them.
pub(crate) fn tables() -> [(&'static str, &'static [&'static str]); 18] {
    [
        ("the file itself (before any table)", fields::<Config>()),
        ("`[task]`", fields::<TaskConfig>()),
        ("`[task.worlds.NAME]`", fields::<WorldConfig>()),
        ("`[sampling]` (or an agent's `sampling`)", fields::<SamplingConfig>()),
        ("`[models.NAME]`", fields::<ModelConfig>()),
        ("a model's (or agent's) `optim`", fields::<OptimConfig>()),
        ("a model's (or agent's) `lora`", fields::<LoraConfig>()),
        ("`[outsiders.NAME]`", fields::<OutsiderConfig>()),
        ("`[agents.\"team/role\"]`", fields::<AgentConfig>()),
        ("`[algorithm]`", fields::<AlgorithmConfig>()),
        ("`[algorithm.loss]` (or an agent's `loss`)", fields::<LossConfig>()),
        ("`[algorithm.preference]`", fields::<PreferenceConfig>()),
        ("`[algorithm.critic]`", fields::<CriticConfig>()),
        ("`[rewards.NAME]`", fields::<RewardConfig>()),
        ("`[rollout]`", fields::<RolloutConfig>()),
        ("`[eval]`", fields::<EvalConfig>()),
        ("`[checkpoint]`", fields::<CheckpointConfig>()),
        ("`[runtime]`", fields::<RuntimeConfig>()),
    ]
}

/// The keys of a table: what serde says it expected instead of a key that cannot be.
fn fields<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let impossible: Value = Dict::from([("\0".to_owned(), Value::from(0))]).into();
    match impossible.deserialize::<T>().err().map(|error| error.kind) {
        Some(Kind::UnknownField(_, fields)) => fields,
        _ => &[],
    }
}

fn shown(found: &Actual) -> String {
    match found {
        Actual::Bool(value) => value.to_string(),
        Actual::Unsigned(value) => value.to_string(),
        Actual::Signed(value) => value.to_string(),
        Actual::Float(value) => value.to_string(),
        Actual::Str(value) => format!("{value:?}"),
        Actual::Seq => "a list".to_owned(),
        Actual::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// serde's expectations in the user's terms.
pub(super) fn plain(expected: &str) -> &str {
    match expected {
        "u32" | "u64" | "usize" => "a whole number from 0",
        "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => "a whole number from 1",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "text in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        "an array of length 4" => "a list of 4 numbers",
        "a tuple of size 2" => "a list of 2 numbers",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// Takes out the innermost value on a path (a whole list for an item of it), and says how many keys lead to it.
fn take(value: &mut Value, path: &[String]) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let Value::Dict(_, dict) = value else { return None };
    if let Some(depth) = dict.get_mut(first).and_then(|inner| take(inner, rest)) {
        return Some(depth + 1);
    }
    dict.remove(first).map(|_| 1)
}

fn put(value: &mut Value, path: &[String], new: Value) -> bool {
    let Value::Dict(_, dict) = value else { return false };
    match path {
        [] => false,
        [last] => dict.insert(last.clone(), new).is_none(),
        [first, rest @ ..] => dict.get_mut(first).is_some_and(|inner| put(inner, rest, new)),
    }
}
