//! Messages of rows: what chat templates read, marks of the replies that are trained on, and nothing else.
//!
//! A key that chat templates read is also a field of the engine's `ChatMessage`, and of `conversation.rs`.

use serde_json::{Map, Value};

use crate::text::ChatMessage;

/// Keys of a message that are read, besides those of calls and thoughts, and marks.
const READ: [&str; 4] = ["role", "content", "name", "tool_call_id"];
/// Keys that say whether a reply is trained on: true or false, or 1 or 0.
const MARKS: [&str; 3] = ["train", "weight", "loss_mask"];
/// Keys of a call, and of the function that it names.
const CALL: [&str; 4] = ["id", "type", "index", "function"];
const FUNCTION: [&str; 2] = ["name", "arguments"];

/// Key of conversations whose messages have `from` and `value`.
pub(super) const CHATML: &str = "conversations";

/// Gives a message with `from` and `value` the keys `role` and `content`.
pub(super) fn chat_message(message: &mut Value) {
    let Value::Object(message) = message else { return };
    let Some(Value::String(from)) = message.get("from").cloned() else { return };
    let Some(value) = message.remove("value") else { return };
    message.remove("from");
    let role = match from.as_str() {
        "human" => "user",
        "gpt" | "chatgpt" | "bing" => "assistant",
        "observation" | "function_response" => "tool",
        other => other,
    };
    message.insert("role".to_owned(), role.into());
    message.insert("content".to_owned(), value);
}

/// A message with its mark.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Marked {
    pub(super) message: ChatMessage,
    /// True or false if the row says whether it is trained on.
    pub(super) mark: Option<bool>,
}

/// Reads a text as a message of a role, or a list of messages. `ignored` are keys that are not read.
pub(super) fn messages(
    value: &Value,
    key: &str,
    role: &str,
    ignored: &[String],
) -> Result<Vec<Marked>, String> {
    let list = match value {
        Value::String(text) => {
            return Ok(vec![Marked { message: ChatMessage::new(role, text.as_str()), mark: None }]);
        }
        Value::Array(list) => list,
        other => return Err(format!("`{key}` is {}; write a list of messages", brief(other))),
    };
    let list = list.iter().enumerate();
    list.map(|(i, value)| message(value, &format!("{key}[{i}]"), ignored)).collect()
}

/// Refuses a message that says whether it is trained on.
pub(super) fn unmarked(all: Vec<Marked>, key: &str) -> Result<Vec<ChatMessage>, String> {
    match all.iter().position(|one| one.mark.is_some()) {
        Some(i) => Err(format!(
            "`{key}[{i}]` says whether it is trained on, which only demonstrations do (`algorithm.name = \"sft\"`); leave \
             `{}` out",
            MARKS.join("`, `")
        )),
        None => Ok(all.into_iter().map(|one| one.message).collect()),
    }
}

fn message(value: &Value, at: &str, ignored: &[String]) -> Result<Marked, String> {
    let Value::Object(object) = value else {
        return Err(format!("`{at}` is {}; write an object with `role`", brief(value)));
    };
    let given = object.iter().filter(|(key, value)| !value.is_null() && !ignored.contains(key));
    let given: Map<String, Value> =
        given.map(|(key, value)| (key.clone(), value.clone())).collect();
    known(&given, at)?;
    let role = role(&given, at)?;
    let mark = mark(&given, at)?;
    if mark == Some(true) && role != "assistant" {
        return Err(format!(
            "`{at}` is a message of {role:?} that is to be trained on; marks are for replies of the assistant, and \
             `algorithm.train_on` chooses what follows them"
        ));
    }
    let mut message = ChatMessage::new(role, content(given.get("content"), at)?);
    if !given.contains_key("content") {
        message = message.without(&["content"]);
    }
    for (key, value) in given {
        let here = format!("{at}.{key}");
        message = match key.as_str() {
            "role" | "content" => message,
            key if MARKS.contains(&key) => message,
            "tool_calls" => message.with(key.clone(), calls(&value, &here)?),
            "tool_plan" | "tool_responses" => message.with(key, value),
            _ if value.is_string() => message.with(key, value),
            _ => return Err(format!("`{here}` is {}; write a text", brief(&value))),
        };
    }
    whole(&message, at)?;
    Ok(Marked { message, mark })
}

/// Refuses keys that nothing reads.
fn known(given: &Map<String, Value>, at: &str) -> Result<(), String> {
    let (calls, thoughts) = (ChatMessage::CALLS, ChatMessage::THOUGHTS);
    let read: Vec<&str> = READ.into_iter().chain(calls).chain(thoughts).chain(MARKS).collect();
    let unknown = given.keys().map(String::as_str).filter(|key| !read.contains(key));
    let unknown: Vec<&str> = unknown.collect();
    let help = match unknown.as_slice() {
        [] => return Ok(()),
        keys if keys.contains(&"function_call") => "write `tool_calls`, a list, in its place",
        _ => "what no model is to see goes into `task.ignore`",
    };
    Err(format!(
        "`{at}` has `{}`, which is not read; a message has `{}`: {help}",
        unknown.join("`, `"),
        read.join("`, `")
    ))
}

fn role<'m>(given: &'m Map<String, Value>, at: &str) -> Result<&'m str, String> {
    let roles = "write system, user, assistant or tool";
    match given.get("role").map(|role| (role, role.as_str())) {
        // Templates of most models know no other name for it.
        Some((_, Some("developer"))) => Ok("system"),
        Some((_, Some(role @ ("system" | "user" | "assistant" | "tool")))) => Ok(role),
        Some((other, _)) => Err(format!("`{at}.role` is {}; {roles}", brief(other))),
        None => Err(format!("`{at}.role` is missing; {roles}")),
    }
}

/// Reads the marks of a message, which must agree.
fn mark(given: &Map<String, Value>, at: &str) -> Result<Option<bool>, String> {
    let mut found: Option<(&str, bool)> = None;
    for key in MARKS {
        let Some(value) = given.get(key) else { continue };
        let mark = truth(value).ok_or_else(|| {
            format!(
                "`{at}.{key}` is {}; write 1 or true for a reply that is trained on, else 0 or false: no part of a row \
                 has another weight",
                brief(value)
            )
        })?;
        match found {
            Some((other, before)) if before != mark => {
                return Err(format!("`{at}` has `{other}` and `{key}`, which disagree; keep one"));
            }
            _ => found = Some((key, mark)),
        }
    }
    Ok(found.map(|(_, mark)| mark))
}

/// Reads true or false, or 1 or 0.
pub(super) fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(n) if n.as_f64() == Some(1.0) => Some(true),
        Value::Number(n) if n.as_f64() == Some(0.0) => Some(false),
        _ => None,
    }
}

/// Reads a text, or joins the texts of a list of parts.
fn content(value: Option<&Value>, at: &str) -> Result<String, String> {
    let parts = match value {
        None => return Ok(String::new()),
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(Value::Array(parts)) => parts,
        Some(other) => {
            return Err(format!(
                "`{at}.content` is {}; write a text, null or a list of text parts",
                brief(other)
            ));
        }
    };
    let texts = parts.iter().enumerate().map(|(i, part)| {
        match (part["type"].as_str(), part["text"].as_str()) {
            (None | Some("text"), Some(text)) => Ok(text),
            _ => Err(format!("`{at}.content[{i}]` is {}; parts are of type `text`", brief(part))),
        }
    });
    texts.collect()
}

/// Reads the calls of a message. Arguments that are JSON texts become objects, which templates write as JSON.
fn calls(value: &Value, at: &str) -> Result<Value, String> {
    let Value::Array(list) = value else {
        return Err(format!("`{at}` is {}; write a list of calls", brief(value)));
    };
    list.iter().enumerate().map(|(i, value)| call(value, &format!("{at}[{i}]"))).collect()
}

fn call(value: &Value, at: &str) -> Result<Value, String> {
    let Value::Object(call) = value else {
        return Err(format!("`{at}` is {}; write an object with `function`", brief(value)));
    };
    let mut call = call.clone();
    call.retain(|_, value| !value.is_null());
    let Some(function) = call.get("function") else {
        // Some data sets write the function's own keys into the call.
        only(&call, &[&CALL[..], &FUNCTION].concat(), at)?;
        return function(call, at).map(Value::Object);
    };
    only(&call, &CALL, at)?;
    let here = format!("{at}.function");
    let Value::Object(named) = function else {
        return Err(format!("`{here}` is {}; write an object with `name`", brief(function)));
    };
    only(named, &FUNCTION, &here)?;
    let named = self::function(named.clone(), &here)?;
    call.insert("function".to_owned(), Value::Object(named));
    Ok(Value::Object(call))
}

/// Reads the name and the arguments of a call.
fn function(mut function: Map<String, Value>, at: &str) -> Result<Map<String, Value>, String> {
    if !function.get("name").is_some_and(Value::is_string) {
        return Err(format!("`{at}` has no `name`; write that of the function"));
    }
    let given = function.get("arguments").unwrap_or(&Value::Null);
    let arguments = match given {
        Value::Null => Some(Map::new()),
        Value::Object(arguments) => Some(arguments.clone()),
        Value::String(text) if text.trim().is_empty() => Some(Map::new()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    };
    let arguments = arguments.ok_or_else(|| {
        let given = brief(given);
        format!("`{at}.arguments` is {given}; write an object, or an object as a JSON text")
    })?;
    function.insert("arguments".to_owned(), Value::Object(arguments));
    Ok(function)
}

fn only(object: &Map<String, Value>, read: &[&str], at: &str) -> Result<(), String> {
    match object.keys().find(|key| !read.contains(&key.as_str())) {
        Some(key) => Err(format!(
            "`{at}` has `{key}`, which is not read; a call has `{}`, and a function `{}`",
            CALL.join("`, `"),
            FUNCTION.join("`, `")
        )),
        None => Ok(()),
    }
}

/// Refuses a reply in which nothing is said or called, and two different texts of its thoughts.
fn whole(message: &ChatMessage, at: &str) -> Result<(), String> {
    let mut thoughts = ChatMessage::THOUGHTS.iter().filter(|key| message.get(key).is_some());
    if let (Some(first), Some(second)) = (thoughts.next(), thoughts.next())
        && message.get(first) != message.get(second)
    {
        return Err(format!("`{at}` has other thoughts in `{first}` than in `{second}`; keep one"));
    }
    let parts = ["content"].into_iter().chain(ChatMessage::CALLS).chain(ChatMessage::THOUGHTS);
    if message.role() == "assistant" && !parts.into_iter().any(|key| message.get(key).is_some()) {
        return Err(format!("`{at}` has neither `content` nor `tool_calls`; write one of them"));
    }
    Ok(())
}

/// Formats a value for messages, shortened.
pub(super) fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}..", &text[..at]),
        None => text,
    }
}
