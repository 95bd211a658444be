//! Fields of a request, with errors that name the field.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::body::bound_values;
use crate::refusal::Refusal;

/// Fields that are accepted and have no effect: they concern accounts and caches of other servers.
const WITHOUT_EFFECT: [&str; 15] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "verbosity",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "request_id",
    "priority",
    "cache_salt",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "kv_transfer_params",
    "prompt_cache_options",
];

/// Fields whose effect this server does not have, with the value that asks for none.
const NEUTRAL: [(&str, &str); 21] = [
    ("presence_penalty", "0"),
    ("frequency_penalty", "0"),
    ("logit_bias", "{}"),
    ("best_of", "1"),
    ("suffix", "\"\""),
    ("audio", "null"),
    ("prediction", "null"),
    ("web_search_options", "null"),
    ("functions", "null"),
    ("function_call", "null"),
    ("use_beam_search", "false"),
    ("length_penalty", "1"),
    ("min_tokens", "0"),
    ("ignore_eos", "false"),
    ("include_stop_str_in_output", "false"),
    ("prompt_logprobs", "0"),
    ("add_generation_prompt", "true"),
    ("bad_words", "[]"),
    ("truncate_prompt_tokens", "null"),
    ("allowed_token_ids", "null"),
    ("truncation", "\"disabled\""),
];

/// Fields of other servers for the form of a reply.
const FORMS: [&str; 5] =
    ["guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"];

/// Maximum number of unknown names that the log has.
const LOGGED: usize = 100;

/// Fields of a request that were not read yet.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    map: Map<String, Value>,
    /// Path of the object in the request, with a dot at its end.
    prefix: String,
}

impl Fields {
    /// Reads the body of a request.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        bound_values(body)?;
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Self { map, prefix: String::new() }),
            Ok(_) => Err(Refusal::malformed("the body is no JSON object")),
            Err(error) => Err(Refusal::malformed(format!("the body is no JSON: {error}"))),
        }
    }

    /// Returns the fields as an object.
    #[cfg(test)]
    pub(crate) fn into_value(self) -> Value {
        self.map.into()
    }

    /// Takes a field; `None` if it is missing or null.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Returns true if a field is there and not null.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// Puts a field back, so that it is read again.
    pub(crate) fn put_back(&mut self, name: &str, value: Value) {
        self.map.insert(name.to_owned(), value);
    }

    /// Takes a field as the type that `read` makes of its value. `wanted` says what to write instead.
    pub(super) fn take_as<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(Value) -> Result<T, Value>,
    ) -> Result<Option<T>, Refusal> {
        let taken = self.take(name).map(read).transpose();
        taken.map_err(|value| self.wrong(name, &value, wanted))
    }

    /// Returns the fields of an object that is the field `name`.
    pub(super) fn inner(&self, name: &str, map: Map<String, Value>) -> Self {
        Self { map, prefix: format!("{}.", self.path(name)) }
    }

    /// Returns the path of a field in the request.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Fails for a remaining field that would have an effect on another server. An unknown one is logged once, or fails if
    /// `strict`.
    pub(crate) fn finish(&self, strict: bool) -> Result<(), Refusal> {
        for (name, value) in &self.map {
            if value.is_null() || WITHOUT_EFFECT.contains(&name.as_str()) {
                continue;
            }
            match NEUTRAL.iter().find(|(known, _)| known == name) {
                Some((_, neutral)) if is_neutral(value, neutral) => {}
                Some((_, neutral)) => {
                    let value = show_value(value);
                    let what = format!(
                        "is {value}, which this server does not support; leave it out, or write {neutral}"
                    );
                    return Err(Refusal::unsupported_field(&self.path(name), &what));
                }
                None if FORMS.contains(&name.as_str()) => {
                    let what = "is not supported; write `response_format`";
                    return Err(Refusal::unsupported_field(&self.path(name), what));
                }
                None if strict => {
                    let refusal = self.error(name, "is not known to this server");
                    return Err(refusal.with_code("unknown_parameter"));
                }
                None => log_once(&self.path(name)),
            }
        }
        Ok(())
    }

    /// Creates the error about a field with a value of another kind.
    pub(crate) fn wrong(&self, name: &str, value: &Value, wanted: &str) -> Refusal {
        Refusal::field_value(&self.path(name), value, wanted)
    }

    /// Creates the error about a field.
    pub(crate) fn error(&self, name: &str, what: &str) -> Refusal {
        Refusal::field(&self.path(name), what)
    }
}

impl Refusal {
    /// Creates the error about the field at a path of the request.
    pub(crate) fn field(path: &str, what: &str) -> Self {
        Self::invalid(path, format!("`{path}` {what}"))
    }

    /// Creates the error about a field with a value of another kind.
    pub(crate) fn field_value(path: &str, value: &Value, wanted: &str) -> Self {
        Self::field(path, &format!("is {}; write {wanted}", show_value(value)))
    }

    /// Creates the error about a field whose effect this server does not have.
    pub(crate) fn unsupported_field(path: &str, what: &str) -> Self {
        Self::field(path, what).with_code("unsupported_parameter")
    }
}

/// Reads a list of token ids below `vocabulary`.
pub(crate) fn token_ids(value: &Value, vocabulary: usize) -> Result<Vec<u32>, String> {
    let list = value
        .as_array()
        .ok_or_else(|| format!("is {}; write a list of token ids", show_value(value)))?;
    list.iter().map(|value| token_id(value, vocabulary)).collect()
}

fn token_id(value: &Value, vocabulary: usize) -> Result<u32, String> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.filter(|&id| (id as usize) < vocabulary).ok_or_else(|| {
        format!("has {}; write token ids from 0 to {}", show_value(value), vocabulary - 1)
    })
}

/// Returns true if a value asks for no effect.
fn is_neutral(value: &Value, neutral: &str) -> bool {
    match value {
        Value::Number(number) => {
            neutral.parse().is_ok_and(|neutral: f64| number.as_f64() == Some(neutral))
        }
        Value::Array(list) => list.is_empty(),
        other => serde_json::to_string(other).is_ok_and(|text| text == neutral),
    }
}

/// Formats a value for an error, shortened.
pub(crate) fn show_value(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// Reports an unknown field once per process.
fn log_once(name: &str) {
    static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let name: String = name.chars().take(80).collect();
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() < LOGGED && seen.insert(name.clone()) {
        maverl::output::tell(format_args!(
            "warning: requests have the unknown field {name:?}, which has no effect; `--strict` refuses them"
        ));
    }
}
