//! Responses of OpenAI's newer protocol. Nothing is stored: a request has the whole conversation as its `input`.

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

/// Returns an answer in the form of responses.
pub(crate) fn answer(chat: &Value) -> Value {
    let id = chat["id"].as_str().unwrap_or_default();
    let choice = &chat["choices"][0];
    let cut = choice["finish_reason"] == "length";
    let status = if cut { "incomplete" } else { "completed" };
    let usage = &chat["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
    let mut answer = json!({
        "id": id,
        "object": "response",
        "created_at": chat["created"],
        "status": status,
        "error": null,
        "incomplete_details": cut.then(|| json!({"reason": "max_output_tokens"})),
        "instructions": null,
        "model": chat["model"],
        "output": output(id, &choice["message"], status),
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "store": false,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
        "maverl": chat["maverl"],
    });
    for (of, name) in [(chat, "prompt_token_ids"), (choice, "token_ids")] {
        if let Some(ids) = of.get(name) {
            answer[name] = ids.clone();
        }
    }
    answer
}

/// Returns the items of a reply: its thoughts, its text, and its calls.
fn output(id: &str, reply: &Value, status: &str) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(thoughts) = reply["reasoning_content"].as_str() {
        items.push(json!({
            "type": "reasoning", "id": format!("rs_{id}"), "summary": [],
            "content": [{"type": "reasoning_text", "text": thoughts}],
        }));
    }
    let calls = reply["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = reply["content"].as_str().unwrap_or_default();
    if !text.is_empty() || calls.is_empty() {
        items.push(json!({
            "type": "message", "id": format!("msg_{id}"), "status": status, "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
        }));
    }
    items.extend(calls.iter().enumerate().map(|(i, call)| {
        let function = &call["function"];
        json!({
            "type": "function_call", "id": format!("fc_{id}_{i}"), "status": "completed",
            "call_id": call["id"], "name": function["name"], "arguments": function["arguments"],
        })
    }));
    items
}

/// Returns the events of a streamed answer.
pub(crate) fn events(answer: &Value) -> Vec<Value> {
    let mut begun = answer.clone();
    begun["status"] = "in_progress".into();
    begun["output"] = json!([]);
    begun["usage"] = Value::Null;
    let mut events = vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
    ];
    for (index, item) in answer["output"].as_array().into_iter().flatten().enumerate() {
        item_events(index, item, &mut events);
    }
    let end = match answer["status"] == "incomplete" {
        true => "response.incomplete",
        false => "response.completed",
    };
    events.push(json!({"type": end, "response": answer}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    events
}

/// Adds the events of an item of the output.
fn item_events(index: usize, item: &Value, events: &mut Vec<Value>) {
    let mut begun = item.clone();
    if begun.get("status").is_some() {
        begun["status"] = "in_progress".into();
    }
    let mut push = |kind: &str, more: Value| {
        let mut event = more;
        event["type"] = kind.into();
        event["output_index"] = index.into();
        events.push(event);
    };
    let id = &item["id"];
    match item["type"].as_str() {
        Some("message") => {
            begun["content"] = json!([]);
            let part = &item["content"][0];
            let empty =
                json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
            let at = |more: Value| {
                let mut event = more;
                event["item_id"] = id.clone();
                event["content_index"] = 0.into();
                event
            };
            push("response.output_item.added", json!({"item": begun}));
            push("response.content_part.added", at(json!({"part": empty})));
            push("response.output_text.delta", at(json!({"delta": part["text"], "logprobs": []})));
            push("response.output_text.done", at(json!({"text": part["text"], "logprobs": []})));
            push("response.content_part.done", at(json!({"part": part})));
        }
        Some("function_call") => {
            begun["arguments"] = "".into();
            let (name, arguments) = (&item["name"], &item["arguments"]);
            push("response.output_item.added", json!({"item": begun}));
            let delta = json!({"item_id": id, "delta": arguments});
            push("response.function_call_arguments.delta", delta);
            let done = json!({"item_id": id, "name": name, "arguments": arguments});
            push("response.function_call_arguments.done", done);
        }
        _ => push("response.output_item.added", json!({"item": begun})),
    }
    push("response.output_item.done", json!({"item": item}));
}

/// Returns the refusal of a field whose value has no effect here.
pub(crate) fn refused(name: &str, what: &str) -> Refusal {
    Refusal::invalid(name, format!("`{name}` {what}")).with_code("unsupported_parameter")
}

/// Returns a message of a role.
pub(crate) fn message(role: &str, content: &Value) -> Value {
    json!({"role": role, "content": content})
}
