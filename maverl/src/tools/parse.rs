//! Calls in a reply.

use serde_json::{Map, Value};

use super::{Call, CallError};

/// Call format of a family of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`, any number of them: Qwen 2.5 and 3, Hermes.
    Hermes,
    /// The whole reply is `{"name": .., "parameters": {..}}`, optionally after `<|python_tag|>`; several are separated
    /// by `;` or a new line: Llama 3.
    Llama3,
}

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const THOUGHT: &str = "</think>";
const PYTHON: &str = "<|python_tag|>";

/// Returns the calls of a reply in order, each parsed or with its error. Empty if the reply has none. Text before
/// `</think>` is ignored.
pub fn calls(reply: &str, format: Format) -> Vec<Result<Call, CallError>> {
    match format {
        Format::Hermes => {
            let mut found = Vec::new();
            for tag in tagged_calls(reply) {
                found.extend(tag.calls);
                if tag.after.contains(THOUGHT) {
                    found.clear();
                }
            }
            found
        }
        // A tag of thoughts may be in a string of a call.
        Format::Llama3 => whole_calls(reply).unwrap_or_else(|| {
            bare(reply.rsplit_once(THOUGHT).map_or(reply, |(_, answer)| answer))
        }),
    }
}

/// Returns the calls of a reply of an unknown model: a reply with a tag is parsed as Hermes, any other as Llama 3.
pub fn read(reply: &str) -> Vec<Result<Call, CallError>> {
    let tagged = reply.contains(OPEN) && whole_calls(reply).is_none();
    calls(reply, if tagged { Format::Hermes } else { Format::Llama3 })
}

/// A tag of a call, with what follows up to the next one.
pub struct TaggedCall<'a> {
    /// All of it.
    pub text: &'a str,
    /// Its calls, at least one: a model may write several into one tag.
    pub calls: Vec<Result<Call, CallError>>,
    /// Text after the calls; after the tag if a call cannot be read.
    pub after: &'a str,
}

/// Returns the tags of a text. What looks like a tag inside a string of the arguments is none, and a closing tag may be
/// missing.
pub fn tagged_calls(text: &str) -> Vec<TaggedCall<'_>> {
    let mut found = Vec::new();
    let mut rest = text.find(OPEN).map_or("", |at| &text[at..]);
    while !rest.is_empty() {
        let (mut calls, after) = read_all(&rest[OPEN.len()..]);
        let next = after.find(OPEN).unwrap_or(after.len());
        let (text, further) = rest.split_at(rest.len() - after.len() + next);
        if calls.is_empty() {
            let inside = text[OPEN.len()..].split(CLOSE).next().unwrap_or_default();
            calls.push(Err(unreadable(inside)));
        }
        found.push(TaggedCall { text, calls, after: &after[..next] });
        rest = further;
    }
    found
}

/// Returns the calls of a reply that is nothing else, without tags.
pub fn whole_calls(reply: &str) -> Option<Vec<Result<Call, CallError>>> {
    let text = reply.trim_start();
    let (found, after) = read_all(text.strip_prefix(PYTHON).unwrap_or(text));
    let calls = !found.is_empty() && found.iter().all(Result::is_ok);
    (calls && after.trim().is_empty()).then_some(found)
}

/// Parses a reply that begins with a call; objects inside prose are not calls.
fn bare(text: &str) -> Vec<Result<Call, CallError>> {
    let text = text.trim_start();
    let (marked, text) = match text.strip_prefix(PYTHON) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (found, _) = read_all(text);
    let call = found.iter().any(Result::is_ok);
    match (marked, call) {
        (_, true) => found,
        (true, false) => vec![Err(unreadable(text))],
        // An object without a function name is an answer in JSON.
        (false, false) => Vec::new(),
    }
}

/// Reads the objects at the beginning of a text, separated by blanks, `;` or `,`. Returns the text after those that can be
/// read as well; nothing is after one that has no end.
fn read_all(text: &str) -> (Vec<Result<Call, CallError>>, &str) {
    let (mut rest, mut found) = (strip_fence(text), Vec::new());
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';' || c == ',');
        if !rest.starts_with(['{', '[']) {
            return (found, rest);
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let value = values.next();
        let end = values.byte_offset();
        match value {
            Some(Ok(Value::Array(calls))) => found.extend(calls.into_iter().map(call)),
            Some(Ok(value)) => found.push(call(value)),
            Some(Err(error)) => {
                found.push(Err(CallError::Unreadable(error.to_string())));
                return (found, if error.is_eof() { "" } else { rest });
            }
            None => return (found, rest),
        }
        rest = &rest[end..];
    }
}

/// Removes the line that opens a fence.
fn strip_fence(text: &str) -> &str {
    let text = text.trim_start();
    match text.strip_prefix("```") {
        Some(rest) => rest.split_once('\n').map_or("", |(_, inside)| inside),
        None => text,
    }
}

fn call(value: Value) -> Result<Call, CallError> {
    let Value::Object(mut object) = value else { return Err(unreadable(&value.to_string())) };
    // OpenAI's form nests both in `function`.
    if let Some(Value::Object(function)) = object.remove("function") {
        object = function;
    }
    let name = match object.remove("name") {
        Some(Value::String(name)) if !name.is_empty() => name,
        _ => return Err(unreadable(&Value::Object(object).to_string())),
    };
    let arguments = object.remove("arguments").or_else(|| object.remove("parameters"));
    let arguments = match arguments {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => serde_json::from_str(&text)
            .map_err(|error| CallError::Unreadable(format!("`arguments` of `{name}`: {error}")))?,
        Some(other) => {
            return Err(CallError::Unreadable(format!("`arguments` of `{name}` is {other}")));
        }
    };
    Ok(Call { name, arguments })
}

fn unreadable(text: &str) -> CallError {
    let text: String = text.trim().chars().take(200).collect();
    CallError::Unreadable(format!("{text:?}"))
}
