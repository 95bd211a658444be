//! Requests of responses, as requests for chat completions.

use serde_json::{Value, json};

use crate::openai::fields::Fields;
use crate::openai::requests::ResponseRequest;
use crate::refusal::Refusal;

/// Makes a request one for a chat completion.
pub(crate) fn as_chat(fields: &mut Fields) -> Result<(), Refusal> {
    let request: ResponseRequest = fields.read()?;
    if request.n.is_some_and(|n| n != 1) {
        return Err(Refusal::unsupported_field("n", "is given; a response is one reply"));
    }
    if let Some(included) = request.include.as_ref().and_then(Value::as_array)
        && included.iter().any(|it| it == "message.output_text.logprobs")
    {
        let what =
            "asks for log-probs, which no response has; write a request for a chat completion";
        return Err(Refusal::unsupported_field("include", what));
    }
    let mut messages = Vec::new();
    if let Some(text) = request.instructions {
        messages.push(message("system", &text));
    }
    match request.input {
        Some(Value::String(text)) => messages.push(message("user", &text.into())),
        Some(Value::Array(items)) => read_items(&items, &mut messages)?,
        _ => {
            let what = "is missing; write a text or a list of items";
            return Err(Refusal::unsupported_field("input", what));
        }
    }
    fields.put_back("messages", messages.into());
    if let Some(most) = request.max_output_tokens {
        fields.put_back("max_completion_tokens", most);
    }
    if let Some(Value::Array(tools)) = request.tools {
        fields.put_back("tools", tools.iter().map(tool).collect());
    }
    if let Some(choice) = request.tool_choice {
        fields.put_back("tool_choice", tool_choice(choice));
    }
    if let Some(effort) = request.reasoning.and_then(|it| it.get("effort").cloned()) {
        fields.put_back("reasoning_effort", effort);
    }
    if let Some(format) = request.text.and_then(|text| text.get("format").cloned()) {
        fields.put_back("response_format", response_format(&format));
    }
    Ok(())
}

fn tool_choice(choice: Value) -> Value {
    if choice["type"] != "function" {
        return choice;
    }
    json!({"type": "function", "function": {"name": choice["name"]}})
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
                return Err(Refusal::unsupported_field(&place, &what));
            }
        }
    }
    Ok(())
}

/// Returns content with its parts of text in the form of chat completions.
fn content(content: &Value) -> Value {
    match content {
        Value::Array(parts) => parts.iter().map(content_part).collect(),
        other => other.clone(),
    }
}

fn content_part(part: &Value) -> Value {
    match part["type"].as_str() {
        Some("input_text" | "output_text") => json!({"type": "text", "text": part["text"]}),
        _ => part.clone(),
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

/// Returns a message of a role.
pub(crate) fn message(role: &str, content: &Value) -> Value {
    json!({"role": role, "content": content})
}
