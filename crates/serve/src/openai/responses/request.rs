//! Requests of responses, as requests for chat completions.

use serde_json::{Map, Value, json};

use crate::refusal::Refusal;

/// Fields that have no effect here.
const WITHOUT_EFFECT: [&str; 5] =
    ["include", "truncation", "max_tool_calls", "stream_options", "client_metadata"];
/// Fields that would need a stored state, or a server that goes on by itself.
const STATEFUL: [&str; 4] = ["previous_response_id", "conversation", "background", "prompt"];
/// Fields with another name in chat completions.
const RENAMED: [(&str, &str); 1] = [("max_output_tokens", "max_completion_tokens")];

/// Returns the request for a chat completion.
pub(crate) fn request(mut map: Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    for name in STATEFUL {
        if map.remove(name).is_some_and(|value| !value.is_null() && value != false) {
            return Err(refused(
                name,
                "is given; nothing is stored here, so send everything as `input`",
            ));
        }
    }
    if map.remove("n").is_some_and(|n| !n.is_null() && n != 1) {
        return Err(refused("n", "is given; a response is one reply"));
    }
    WITHOUT_EFFECT.iter().for_each(|name| drop(map.remove(*name)));
    // The number of log-probs, which no answer here has.
    map.remove("top_logprobs");
    let mut messages = Vec::new();
    if let Some(text) = map.remove("instructions").filter(|text| !text.is_null()) {
        messages.push(message("system", &text));
    }
    match map.remove("input") {
        Some(Value::String(text)) => messages.push(message("user", &text.into())),
        Some(Value::Array(items)) => read_items(&items, &mut messages)?,
        _ => return Err(refused("input", "is missing; write a text or a list of items")),
    }
    map.insert("messages".to_owned(), messages.into());
    for (from, to) in RENAMED {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
    if let Some(Value::Array(tools)) = map.remove("tools") {
        map.insert("tools".to_owned(), tools.iter().map(tool).collect());
    }
    if let Some(choice) = map.get_mut("tool_choice").filter(|choice| choice["type"] == "function") {
        *choice = json!({"type": "function", "function": {"name": choice["name"]}});
    }
    if let Some(effort) = map.remove("reasoning").and_then(|it| it.get("effort").cloned()) {
        map.insert("reasoning_effort".to_owned(), effort);
    }
    if let Some(format) = map.remove("text").and_then(|text| text.get("format").cloned()) {
        map.insert("response_format".to_owned(), response_format(&format));
    }
    Ok(map)
}

/// Reads items as messages. The message and the calls of one reply are one message.
fn read_items(items: &[Value], messages: &mut Vec<Value>) -> Result<(), Refusal> {
    // True while calls belong to the last message.
    let mut open = false;
    for (i, item) in items.iter().enumerate() {
        let role = item["role"].as_str();
        match (item["type"].as_str(), role) {
            (Some("message") | None, Some(role)) => {
                messages.push(message(role, &content(&item["content"])));
                open = role == "assistant";
            }
            (Some("function_call"), _) => {
                if !open {
                    messages.push(message("assistant", &Value::Null));
                }
                open = true;
                let call = json!({
                    "id": item["call_id"],
                    "type": "function",
                    "function": {"name": item["name"], "arguments": item["arguments"]},
                });
                if let Some(Value::Object(last)) = messages.last_mut() {
                    let calls = last.entry("tool_calls").or_insert_with(|| json!([]));
                    calls.as_array_mut().into_iter().for_each(|calls| calls.push(call.clone()));
                }
            }
            (Some("function_call_output"), _) => {
                let mut result = message("tool", &content(&item["output"]));
                result["tool_call_id"] = item["call_id"].clone();
                messages.push(result);
                open = false;
            }
            // Thoughts are in no message: the chat template decides.
            (Some("reasoning"), _) => {}
            (kind, _) => {
                let place = format!("input[{i}]");
                let kind = kind.unwrap_or("without a type or a role");
                let what = format!(
                    "is of type {kind:?}; write messages, function calls, their outputs, or reasoning"
                );
                return Err(refused(&place, &what));
            }
        }
    }
    Ok(())
}

/// Returns content with its parts of text in the form of chat completions.
fn content(content: &Value) -> Value {
    let part = |part: &Value| match part["type"].as_str() {
        Some("input_text" | "output_text") => json!({"type": "text", "text": part["text"]}),
        _ => part.clone(),
    };
    match content {
        Value::Array(parts) => parts.iter().map(part).collect(),
        other => other.clone(),
    }
}

fn tool(tool: &Value) -> Value {
    if tool["type"] != "function" {
        return tool.clone();
    }
    let mut function = tool.clone();
    if let Some(function) = function.as_object_mut() {
        function.remove("type");
        function.retain(|_, value| !value.is_null());
    }
    json!({"type": "function", "function": function})
}

fn response_format(format: &Value) -> Value {
    if format["type"] != "json_schema" {
        return format.clone();
    }
    let mut schema = format.clone();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("type");
    }
    json!({"type": "json_schema", "json_schema": schema})
}

/// Returns the refusal of a field whose value has no effect here.
pub(crate) fn refused(name: &str, what: &str) -> Refusal {
    Refusal::invalid(name, format!("`{name}` {what}")).with_code("unsupported_parameter")
}

/// Returns a message of a role.
pub(crate) fn message(role: &str, content: &Value) -> Value {
    json!({"role": role, "content": content})
}
