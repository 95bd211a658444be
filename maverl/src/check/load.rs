//! The merged layers as a typed configuration, every unknown key and wrong type reported.

use figment::error::Kind;
use figment::value::{Dict, Value};
use serde::Deserialize;

use super::diagnostic::{Problems, key, within};
use super::wrong;
use crate::config::{
    AdaptiveKlConfig, AgentConfig, AlgorithmConfig, CheckpointConfig, ComponentConfig, Config,
    CriticConfig, EndpointConfig, EvalConfig, HappoConfig, InfluenceConfig, LoraConfig, LossConfig,
    ModelConfig, OptimConfig, PreferenceConfig, ReferenceConfig, RewardConfig, RolloutConfig,
    RuntimeConfig, SamplingConfig, TaskConfig,
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
        } else if let Some((depth, taken)) = take(&mut value, &error.path) {
            wrong::report(problems, &error.path, depth, (&error.kind, &taken));
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

/// Every table of a configuration with its keys, as serde knows them.
pub(crate) fn tables() -> [(&'static str, &'static [&'static str]); 22] {
    [
        ("the file itself (before any table)", fields::<Config>()),
        ("`[task]`", fields::<TaskConfig>()),
        ("`[task.mixture.NAME]`", fields::<ComponentConfig>()),
        ("`[sampling]` (or an agent's `sampling`)", fields::<SamplingConfig>()),
        ("`[models.NAME]`", fields::<ModelConfig>()),
        ("a model's (or agent's) `optim`", fields::<OptimConfig>()),
        ("a model's (or agent's) `lora`", fields::<LoraConfig>()),
        ("`[endpoints.NAME]`", fields::<EndpointConfig>()),
        ("`[agents.\"team/role\"]`", fields::<AgentConfig>()),
        ("`[algorithm]`", fields::<AlgorithmConfig>()),
        ("`[algorithm.loss]` (or an agent's `loss`)", fields::<LossConfig>()),
        ("`[algorithm.adaptive_kl]`", fields::<AdaptiveKlConfig>()),
        ("`[algorithm.reference]`", fields::<ReferenceConfig>()),
        ("`[algorithm.happo]`", fields::<HappoConfig>()),
        ("`[algorithm.influence]`", fields::<InfluenceConfig>()),
        ("`[algorithm.preference]`", fields::<PreferenceConfig>()),
        ("`[algorithm.critic]`", fields::<CriticConfig>()),
        ("`[rewards.NAME]`", fields::<RewardConfig>()),
        ("`[rollout]`", fields::<RolloutConfig>()),
        ("`[eval]`", fields::<EvalConfig>()),
        ("`[checkpoint]`", fields::<CheckpointConfig>()),
        ("`[runtime]`", fields::<RuntimeConfig>()),
    ]
}

/// The type of a key in a user's terms; `None` if no configuration has the key.
pub(crate) fn type_of(path: &[String]) -> Option<String> {
    // A text that is no value of any key but those that take every text.
    let impossible = Value::from("\0");
    let nested =
        path.iter().rev().fold(impossible, |inner, key| Dict::from([(key.clone(), inner)]).into());
    let Err(error) = nested.deserialize::<Config>() else {
        return Some(wrong::plain("a string").to_owned());
    };
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

/// The keys of a table: what serde says it expected instead of a key that cannot be.
fn fields<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let impossible: Value = Dict::from([("\0".to_owned(), Value::from(0))]).into();
    match impossible.deserialize::<T>().err().map(|error| error.kind) {
        Some(Kind::UnknownField(_, fields)) => fields,
        _ => &[],
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
