//! Messages of a request as those of a chat template.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields::{Fields, show_value};
use super::limits::MOST_MESSAGES;
use super::request::RequestField;
use crate::refusal::Refusal;
use maverl::text::ChatMessage;
use maverl::trajectory::{Message, Role};

/// Messages in the form of chat templates.
#[derive(Debug)]
pub(crate) struct Messages(pub(crate) Vec<ChatMessage>);

impl RequestField for Messages {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        let list = match fields.take(name) {
            Some(Value::Array(list)) if !list.is_empty() => list,
            Some(Value::Array(_)) => return Err(fields.error(name, "is empty; write at least one")),
            Some(other) => return Err(fields.wrong(name, &other, "a list of messages")),
            None => return Err(fields.error(name, "is missing; write a list of messages")),
        };
        if list.len() > MOST_MESSAGES {
            let what = format!("has {} messages; a request may have {MOST_MESSAGES}", list.len());
            return Err(fields.error(name, &what));
        }
        let (mut names, mut messages) = (BTreeMap::new(), Vec::with_capacity(list.len()));
        for (i, value) in list.iter().enumerate() {
            let read = message(value, &mut names);
            messages.push(
                read.map_err(|(key, what)| fields.error(&format!("{name}[{i}]{key}"), &what))?,
            );
        }
        Ok(Self(messages))
    }
}

/// Path below a message, and the problem.
type WrongMessage = (String, String);

fn wrong(key: &str, what: impl Into<String>) -> WrongMessage {
    (key.to_owned(), what.into())
}

/// Reads a message. `names` are the names of the tools called so far, by the ids of the calls.
fn message(
    value: &Value,
    names: &mut BTreeMap<String, String>,
) -> Result<ChatMessage, WrongMessage> {
    let object = value
        .as_object()
        .ok_or_else(|| wrong("", format!("is {}; write an object", show_value(value))))?;
    let content = content(object.get("content").unwrap_or(&Value::Null))?;
    match object.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Ok(ChatMessage::new("system", content)),
        Some("user") => Ok(ChatMessage::new("user", content)),
        Some("assistant") => {
            let mut message = ChatMessage::new("assistant", content);
            if let Some(thoughts) = object.get("reasoning_content").and_then(Value::as_str) {
                message = message.with("reasoning_content", thoughts);
            }
            let calls = calls(object, names)?;
            Ok(if calls.is_empty() { message } else { message.with("tool_calls", calls) })
        }
        Some("tool") => {
            let id = object.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
            let given = object.get("name").and_then(Value::as_str);
            let mut message = ChatMessage::new("tool", content);
            if let Some(name) = given.or_else(|| names.get(id).map(String::as_str)) {
                message = message.with("name", name);
            }
            Ok(if id.is_empty() { message } else { message.with("tool_call_id", id) })
        }
        Some(other) => Err(wrong(
            ".role",
            format!("is {other:?}; write system, developer, user, assistant or tool"),
        )),
        None => Err(wrong(".role", "is missing; write system, developer, user, assistant or tool")),
    }
}

/// Returns the text of a message's content: a text, null, or text parts, which are joined.
fn content(value: &Value) -> Result<String, WrongMessage> {
    let parts = match value {
        Value::Null => return Ok(String::new()),
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        other => {
            let what =
                format!("is {}; write a text, null or a list of text parts", show_value(other));
            return Err(wrong(".content", what));
        }
    };
    let mut joined = String::new();
    for (i, part) in parts.iter().enumerate() {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        let text = match kind {
            "text" => part.get("text").and_then(Value::as_str),
            "refusal" => part.get("refusal").and_then(Value::as_str),
            _ => None,
        };
        let Some(text) = text else {
            let what = format!("is {}; this server reads parts of type `text`", show_value(part));
            return Err(wrong(&format!(".content[{i}]"), what));
        };
        joined.push_str(text);
    }
    Ok(joined)
}

/// Returns the calls of an assistant's message in the form of chat templates: arguments are objects, not texts.
fn calls(
    object: &Map<String, Value>,
    names: &mut BTreeMap<String, String>,
) -> Result<Vec<Value>, WrongMessage> {
    let list = match object.get("tool_calls") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => {
            let what = format!("is {}; write a list of calls", show_value(other));
            return Err(wrong(".tool_calls", what));
        }
    };
    let mut calls = Vec::with_capacity(list.len());
    for (i, call) in list.iter().enumerate() {
        let function = &call["function"];
        let Some(name) = function["name"].as_str() else {
            let what = "has no `function` with a `name`";
            return Err(wrong(&format!(".tool_calls[{i}]"), what));
        };
        let arguments = match &function["arguments"] {
            Value::String(text) => match serde_json::from_str(text) {
                Ok(Value::Object(arguments)) => Value::Object(arguments),
                _ if text.trim().is_empty() => json!({}),
                // A call that the model wrote wrongly stays as it was.
                _ => Value::String(text.clone()),
            },
            Value::Null => json!({}),
            other => other.clone(),
        };
        let mut read =
            json!({"type": "function", "function": {"name": name, "arguments": arguments}});
        if let Some(id) = call["id"].as_str() {
            names.insert(id.to_owned(), name.to_owned());
            read["id"] = id.into();
        }
        calls.push(read);
    }
    Ok(calls)
}

/// Returns messages as plain texts, for templates without support for tools. Calls are written in Hermes' format.
pub(crate) fn flat(messages: &[ChatMessage]) -> Vec<Message> {
    messages
        .iter()
        .map(|message| {
            let role = match message.role() {
                "system" => Role::System,
                "assistant" => Role::Assistant,
                "tool" => Role::Tool,
                _ => Role::User,
            };
            let mut content = message.text().to_owned();
            for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
                if !content.is_empty() {
                    content.push('\n');
                }
                content.push_str(&format!("<tool_call>\n{}\n</tool_call>", call["function"]));
            }
            Message { role, content }
        })
        .collect()
}
