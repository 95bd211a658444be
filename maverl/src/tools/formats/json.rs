//! Calls as JSON objects: Hermes, Llama 3, and Mistral's list.

use serde_json::{Map, Value};

use super::block::{BlockCall, CallBlock, CallSegment, text_start};
use super::number::parse_exactly;
use crate::tools::{Call, CallError};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const THOUGHT: &str = "</think>";
const PYTHON: &str = "<|python_tag|>";
/// Key of a call in another form that could not be read, with the reason (`canonical`).
pub(super) const UNREADABLE: &str = "unreadable_call";

/// Returns the calls of a reply in Hermes' tags. Text before `</think>` is ignored.
pub(super) fn hermes_calls(reply: &str) -> Vec<Result<Call, CallError>> {
    let mut found = Vec::new();
    for tag in tagged_calls(reply) {
        found.extend(tag.calls.into_iter().filter_map(|segment| segment.call));
        if tag.after.contains(THOUGHT) {
            found.clear();
        }
    }
    found
}

/// Returns the calls of a reply without tags.
pub(super) fn llama_calls(reply: &str) -> Vec<Result<Call, CallError>> {
    bare_calls(reply).into_iter().filter_map(|segment| segment.call).collect()
}

/// Returns true for a reply with a tag of Hermes that is not one of its calls' strings.
pub(super) fn is_tagged(reply: &str) -> bool {
    reply.contains(OPEN) && whole_calls(reply).is_none()
}

/// Reads the list of calls, or the calls, after an opening.
pub(super) fn read_listed_calls(text: &str, opening: &str) -> CallBlock {
    let (calls, after) = read_all(text, opening.len());
    if calls.is_empty() {
        let inside = &text[opening.len()..];
        let len = opening.len() + inside.find(opening).unwrap_or(inside.len());
        let what =
            format!("there is no list of JSON objects after `{opening}`: {}", text_start(inside));
        return CallBlock::malformed(what, len);
    }
    CallBlock { calls, len: text.len() - after.len() }
}

/// Reads one JSON value at the beginning of a text. Returns its arguments and its length.
///
/// # Errors
///
/// The reason, and the length of the text that was read.
pub(super) fn read_arguments(text: &str) -> Result<(Map<String, Value>, usize), (String, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next();
    let end = values.byte_offset();
    match value {
        None => Err(("there are no arguments".to_owned(), text.len())),
        Some(Err(error)) if error.is_eof() => Err((error.to_string(), text.len())),
        Some(Err(error)) => Err((error.to_string(), end)),
        Some(Ok(Value::Object(arguments))) => {
            Ok((parse_exactly(&text[..end]).unwrap_or(arguments), end))
        }
        Some(Ok(Value::String(inner))) => match parse_exactly(&inner) {
            Ok(arguments) => Ok((arguments, end)),
            Err(error) => Err((error.to_string(), end)),
        },
        Some(Ok(Value::Null)) => Ok((Map::new(), end)),
        Some(Ok(other)) => Err((format!("the arguments are {other}; write an object"), end)),
    }
}

/// A tag of a call, with what follows up to the next one.
pub struct TaggedCall<'a> {
    /// All of it.
    pub text: &'a str,
    /// Its calls with their texts, at least one: a model may write several into one tag.
    pub calls: Vec<CallSegment<'a>>,
    /// Text after the calls; after the tag if a call cannot be read.
    pub after: &'a str,
}

/// Returns the tags of a text. What looks like a tag inside a string of the arguments is none, and a closing tag may be
/// missing.
pub fn tagged_calls(text: &str) -> Vec<TaggedCall<'_>> {
    let mut found = Vec::new();
    let mut rest = text.find(OPEN).map_or("", |at| &text[at..]);
    while !rest.is_empty() {
        let (calls, after) = read_all(rest, OPEN.len());
        let next = after.find(OPEN).unwrap_or(after.len());
        let (text, further) = rest.split_at(rest.len() - after.len() + next);
        let block = if calls.is_empty() {
            let inside = text[OPEN.len()..].split(CLOSE).next().unwrap_or_default();
            CallBlock::single(Err(unreadable(inside)), text.len())
        } else {
            CallBlock { calls, len: rest.len() - after.len() }
        };
        found.push(TaggedCall { text, calls: block.segments(text), after: &after[..next] });
        rest = further;
    }
    found
}

/// Returns the calls of a reply that is nothing else, without tags.
pub fn whole_calls(reply: &str) -> Option<Vec<Result<Call, CallError>>> {
    let text = reply.trim_start();
    let (found, after) = read_all(text.strip_prefix(PYTHON).unwrap_or(text), 0);
    let calls = !found.is_empty() && found.iter().all(|found| found.call.is_ok());
    (calls && after.trim().is_empty()).then(|| found.into_iter().map(|found| found.call).collect())
}

/// Returns the calls of a reply that begins with one, each with its text; objects inside prose are not calls. Text before
/// `</think>` is ignored, but a tag of thoughts may be in a string of a call.
pub fn bare_calls(reply: &str) -> Vec<CallSegment<'_>> {
    let after_thoughts = reply.rsplit_once(THOUGHT).map_or(reply, |(_, answer)| answer);
    let answer = if whole_calls(reply).is_some() { reply } else { after_thoughts };
    let text = answer.trim_start();
    let (marked, text) = match text.strip_prefix(PYTHON) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (calls, after) = read_all(text, 0);
    let is_call = calls.iter().any(|found| found.call.is_ok());
    match (marked, is_call) {
        (_, true) => CallBlock { calls, len: text.len() - after.len() }.segments(text),
        (true, false) => CallBlock::single(Err(unreadable(text)), text.len()).segments(text),
        // An object without a function name is an answer in JSON.
        (false, false) => Vec::new(),
    }
}

/// Reads the objects of a text from a position on, separated by blanks, `;` or `,`. Returns the text after those that can be
/// read as well; nothing is after one that has no end.
fn read_all(text: &str, from: usize) -> (Vec<BlockCall>, &str) {
    let (mut rest, mut found) = (strip_fence(&text[from..]), Vec::new());
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';' || c == ',');
        let start = text.len() - rest.len();
        let read = match rest.bytes().next() {
            Some(b'[') => read_items(text, start, &mut found),
            Some(b'{') => read_item(text, start, &mut found),
            _ => return (found, rest),
        };
        match read {
            Ok(after) => rest = after,
            Err(after) => return (found, after),
        }
    }
}

/// Reads the objects of the list that begins at a position. Returns the text after the list; an error is the text after the first
/// item that cannot be read.
fn read_items<'a>(
    text: &'a str,
    start: usize,
    found: &mut Vec<BlockCall>,
) -> Result<&'a str, &'a str> {
    let mut rest = &text[start + 1..];
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if let Some(after) = rest.strip_prefix(']') {
            return Ok(after);
        }
        rest = read_item(text, text.len() - rest.len(), found)?;
    }
}

/// Reads the value at a position as a call. Returns the text after it; an error is the text that is left after one that is no JSON.
fn read_item<'a>(
    text: &'a str,
    start: usize,
    found: &mut Vec<BlockCall>,
) -> Result<&'a str, &'a str> {
    let rest = &text[start..];
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    let value = values.next();
    let (written, after) = rest.split_at(values.byte_offset());
    let (call, read) = match value {
        Some(Ok(value)) => (call(parse_exactly(written).unwrap_or(value)), Ok(after)),
        Some(Err(error)) => {
            let left = if error.is_eof() { "" } else { rest };
            (Err(CallError::Unreadable(error.to_string())), Err(left))
        }
        None => (Err(CallError::Unreadable("a list has no end".to_owned())), Err("")),
    };
    found.push(BlockCall { call, start });
    read
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
    if let (1, Some(Value::String(what))) = (object.len(), object.get(UNREADABLE)) {
        return Err(CallError::Malformed(what.clone()));
    }
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
        Some(Value::String(text)) => parse_exactly(&text)
            .map_err(|error| CallError::Unreadable(format!("`arguments` of `{name}`: {error}")))?,
        Some(other) => {
            return Err(CallError::Unreadable(format!("`arguments` of `{name}` is {other}")));
        }
    };
    Ok(Call { name, arguments })
}

fn unreadable(text: &str) -> CallError {
    CallError::Unreadable(text_start(text))
}
