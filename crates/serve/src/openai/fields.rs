//! Fields of a request, with errors that name the field.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;
use serde_json::{Map, Value};

use super::limits::MOST_VALUES;
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
const NEUTRAL: [(&str, &str); 17] = [
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
];

/// Fields of other servers for the form of a reply.
const FORMS: [&str; 5] =
    ["guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"];

/// Maximum number of unknown names that the log has.
const LOGGED: usize = 100;

/// Fields of a request that were not read yet.
#[derive(Debug)]
pub(crate) struct Fields {
    map: Map<String, Value>,
    /// Path of the object in the request, with a dot at its end.
    place: String,
}

impl Fields {
    /// Reads the body of a request.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        bound_values(body)?;
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Self { map, place: String::new() }),
            Ok(_) => Err(Refusal::malformed("the body is no JSON object")),
            Err(error) => Err(Refusal::malformed(format!("the body is no JSON: {error}"))),
        }
    }

    /// Returns the fields of a request in another form.
    ///
    /// # Errors
    ///
    /// Those of the conversion.
    pub(crate) fn converted(
        self,
        convert: impl FnOnce(Map<String, Value>) -> Result<Map<String, Value>, Refusal>,
    ) -> Result<Self, Refusal> {
        let Self { map, place } = self;
        Ok(Self { map: convert(map)?, place })
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
    pub(crate) fn put(&mut self, name: &str, value: Value) {
        self.map.insert(name.to_owned(), value);
    }

    /// Takes a field that is an object, as fields of their own.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Self>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(map)) => {
                Ok(Some(Self { map, place: format!("{}{name}.", self.place) }))
            }
            Some(other) => Err(self.wrong(name, &other, "an object")),
        }
    }

    /// Takes a text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, &other, "a text")),
        }
    }

    /// Takes true or false; a missing field is false.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(self.wrong(name, &other, "true or false")),
        }
    }

    /// Takes a number between two bounds, both included.
    pub(crate) fn number(
        &mut self,
        name: &str,
        low: f64,
        high: f64,
    ) -> Result<Option<f64>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64().filter(|number| (low..=high).contains(number)) {
            Some(number) => Ok(Some(number)),
            None if high == f64::from(f32::MAX) => {
                Err(self.wrong(name, &value, &format!("a number from {low}")))
            }
            None => Err(self.wrong(name, &value, &format!("a number from {low} to {high}"))),
        }
    }

    /// Takes a whole number between two bounds, both included.
    pub(crate) fn integer(
        &mut self,
        name: &str,
        low: i64,
        high: i64,
    ) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_i64().filter(|number| (low..=high).contains(number)) {
            Some(number) => Ok(Some(number)),
            None if high == i64::MAX => {
                Err(self.wrong(name, &value, &format!("a whole number from {low}")))
            }
            None => Err(self.wrong(name, &value, &format!("a whole number from {low} to {high}"))),
        }
    }

    /// Takes a number of 64 bits; a negative one is read in two's complement.
    pub(crate) fn bits(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let bits = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
        bits.map(Some).ok_or_else(|| self.wrong(name, &value, "a whole number of 64 bits"))
    }

    /// Takes a list of token ids below `vocabulary`.
    pub(crate) fn ids(
        &mut self,
        name: &str,
        vocabulary: usize,
    ) -> Result<Option<Vec<u32>>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let ids = token_ids(&value, vocabulary).map_err(|what| self.error(name, &what))?;
        Ok(Some(ids))
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
                    return Err(self.error(
                        name,
                        &format!("is {}, which this server does not support; leave it out, or write {neutral}", shown(value)),
                    ).with_code("unsupported_parameter"));
                }
                None if FORMS.contains(&name.as_str()) => {
                    let refusal = self.error(name, "is not supported; write `response_format`");
                    return Err(refusal.with_code("unsupported_parameter"));
                }
                None if strict => {
                    let refusal = self.error(name, "is not known to this server");
                    return Err(refusal.with_code("unknown_parameter"));
                }
                None => log_once(&format!("{}{name}", self.place)),
            }
        }
        Ok(())
    }

    /// Creates the error about a field with a value of another kind.
    pub(crate) fn wrong(&self, name: &str, value: &Value, wanted: &str) -> Refusal {
        self.error(name, &format!("is {}; write {wanted}", shown(value)))
    }

    /// Creates the error about a field.
    pub(crate) fn error(&self, name: &str, what: &str) -> Refusal {
        let name = format!("{}{name}", self.place);
        let message = format!("`{name}` {what}");
        Refusal::invalid(name, message)
    }
}

/// Fails for JSON with too many values: each takes some hundred bytes of memory, whatever its length in the text.
fn bound_values(json: &[u8]) -> Result<(), Refusal> {
    let values = count_values(json);
    if values <= MOST_VALUES {
        return Ok(());
    }
    let message = format!("the body has {values} values; {MOST_VALUES} are allowed");
    Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message))
}

/// Returns the number of values in JSON, names of objects included, without reading it.
pub(crate) fn count_values(json: &[u8]) -> usize {
    let (mut values, mut within, mut escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within => escaped = true,
            b'"' => within = !within,
            b',' | b':' | b'[' | b'{' if !within => values += 1,
            _ => {}
        }
    }
    values
}

/// Reads a list of token ids below `vocabulary`.
pub(crate) fn token_ids(value: &Value, vocabulary: usize) -> Result<Vec<u32>, String> {
    let list = value
        .as_array()
        .ok_or_else(|| format!("is {}; write a list of token ids", shown(value)))?;
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.filter(|&id| (id as usize) < vocabulary).ok_or_else(|| {
            format!("has {}; write token ids from 0 to {}", shown(value), vocabulary - 1)
        })
    };
    list.iter().map(id).collect()
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
pub(crate) fn shown(value: &Value) -> String {
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
