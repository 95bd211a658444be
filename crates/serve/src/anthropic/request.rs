//! Requests for messages, as requests for chat completions.

use serde_json::{Value, json};

use super::content::{chat_messages, joined_text};
use super::located::Located;
use crate::openai::request::{RequestField, Unused};
use crate::openai::{Fields, request};
use crate::refusal::Refusal;

request! {
    /// A request for a message, as far as it differs from one for a chat completion.
    struct MessageRequest {
        messages: Option<Value>,
        system: Option<Value>,
        stop_sequences: Option<Value>,
        tools: Option<Value>,
        tool_choice: Option<Value>,
        thinking: Option<Value>,
        output_config: Option<Value>,
    }
    // Caches, edits of long conversations and places of other servers.
    Unused: cache_control, context_management, container, inference_geo, speed, betas;
    NotOfMessages: n, stop, max_completion_tokens, response_format, reasoning_effort, parallel_tool_calls, stream_options,
        logprobs, top_logprobs;
}

/// A field of chat completions that messages have under another name, or not at all.
#[derive(Debug)]
struct NotOfMessages;

impl RequestField for NotOfMessages {
    fn read_field(fields: &mut Fields, name: &str) -> Result<Self, Refusal> {
        if fields.take(name).is_none() {
            return Ok(Self);
        }
        let what = match name {
            "stop" => "is a field of chat completions; write `stop_sequences`",
            "max_completion_tokens" => "is a field of chat completions; write `max_tokens`",
            "response_format" => "is a field of chat completions; write `output_config.format`",
            "reasoning_effort" => "is a field of chat completions; write `output_config.effort`",
            "parallel_tool_calls" => {
                "is a field of chat completions; write `tool_choice.disable_parallel_tool_use`"
            }
            _ => "is a field of chat completions, which messages do not have; leave it out",
        };
        Err(Refusal::unsupported_field(name, what))
    }
}

/// Makes a request one for a chat completion.
pub(crate) fn as_chat(fields: &mut Fields) -> Result<(), Refusal> {
    if !fields.has("max_tokens") {
        let what = "is missing; write the largest number of tokens of the reply";
        return Err(fields.error("max_tokens", what));
    }
    let messages = fields.take("messages");
    if let Some(Value::Array(list)) = &messages
        && let Some(last) = list.last().filter(|last| last["role"] == "assistant")
    {
        let path = format!("messages[{}].role", list.len() - 1);
        let wanted = "user in the last message: this server does not continue a reply";
        return Err(Refusal::field_value(&path, &last["role"], wanted));
    }
    if let Some(messages) = messages {
        fields.put_back("messages", messages);
    }
    as_prompt(fields)
}

/// Makes a request for the number of tokens of a prompt one for a chat completion.
pub(crate) fn as_prompt(fields: &mut Fields) -> Result<(), Refusal> {
    let request: MessageRequest = fields.read()?;
    fields.put_back("messages", conversation(&request)?.into());
    if let Some(stops) = request.stop_sequences {
        fields.put_back("stop", stops);
    }
    let tools = request.tools.as_ref().map(chat_tools).transpose()?.unwrap_or_default();
    if let Some(choice) = &request.tool_choice {
        put_tool_choice(fields, choice, &tools)?;
    }
    if !tools.is_empty() {
        fields.put_back("tools", tools.into());
    }
    if let Some(config) = &request.output_config {
        put_output(fields, &Located::new("output_config", config))?;
    }
    if let Some(thinking) = &request.thinking
        && !thinks(&Located::new("thinking", thinking))?
    {
        fields.put_back("reasoning_effort", "none".into());
    }
    Ok(())
}

/// Returns the messages of the request, those of the system first.
fn conversation(request: &MessageRequest) -> Result<Vec<Value>, Refusal> {
    let Some(messages) = &request.messages else {
        return Err(Refusal::field("messages", "is missing; write a list of messages"));
    };
    let mut chat = Vec::new();
    if let Some(system) = &request.system {
        let text = joined_text(&Located::new("system", system))?;
        chat.push(json!({"role": "system", "content": text}));
    }
    let messages = Located::new("messages", messages);
    let told = chat_messages(&messages)?;
    if told.is_empty() {
        return Err(messages.error("is empty; write at least one"));
    }
    chat.extend(told);
    Ok(chat)
}

fn chat_tools(tools: &Value) -> Result<Vec<Value>, Refusal> {
    let tools = Located::new("tools", tools).items("a list of tools")?;
    tools.iter().map(chat_tool).collect()
}

/// Returns a tool of the client. Tools of a type are run by Anthropic's servers, or have schemas that their models know.
fn chat_tool(tool: &Located<'_>) -> Result<Value, Refusal> {
    tool.object()?;
    if let Some(kind) = tool.get("type")
        && kind.text()? != "custom"
    {
        return Err(tool.other_kind("tools of type custom, with an `input_schema`"));
    }
    let name = tool.required("name", "a name")?;
    if name.text()?.is_empty() {
        return Err(name.error("is empty; write a name"));
    }
    let description = tool.get("description").map(|text| text.text()).transpose()?;
    let schema = tool.required("input_schema", "a JSON schema")?.object()?;
    let description = description.unwrap_or_default();
    let function = json!({"name": name.value, "description": description, "parameters": schema});
    Ok(json!({"type": "function", "function": function}))
}

fn put_tool_choice(fields: &mut Fields, choice: &Value, tools: &[Value]) -> Result<(), Refusal> {
    const KINDS: &str = "auto, any, tool or none";
    let choice = Located::new("tool_choice", choice);
    let demand = match choice.kind(KINDS)? {
        "auto" => "auto".into(),
        "none" => "none".into(),
        "any" if tools.is_empty() => {
            return Err(choice.error("demands a call, and there is no tool in `tools`"));
        }
        "any" => "required".into(),
        "tool" => {
            let name = choice.required("name", "the name of a tool")?;
            json!({"type": "function", "function": {"name": name.text()?}})
        }
        _ => return Err(choice.required("type", KINDS)?.wrong(KINDS)),
    };
    fields.put_back("tool_choice", demand);
    if choice.flag("disable_parallel_tool_use")? {
        fields.put_back("parallel_tool_calls", false.into());
    }
    Ok(())
}

/// Reads the effort of the thoughts and the form of the reply.
fn put_output(fields: &mut Fields, config: &Located<'_>) -> Result<(), Refusal> {
    config.object()?;
    if let Some(effort) = config.get("effort") {
        fields.put_back("reasoning_effort", effort.text()?.into());
    }
    let Some(format) = config.get("format") else { return Ok(()) };
    if format.kind("json_schema")? != "json_schema" {
        return Err(format.other_kind("json_schema"));
    }
    let schema = format.required("schema", "a JSON schema")?.object()?;
    let named = json!({"name": "reply", "schema": schema});
    fields.put_back("response_format", json!({"type": "json_schema", "json_schema": named}));
    Ok(())
}

/// Returns false if thoughts are turned off.
fn thinks(thinking: &Located<'_>) -> Result<bool, Refusal> {
    const KINDS: &str = "enabled, adaptive or disabled";
    match thinking.kind(KINDS)? {
        "enabled" | "adaptive" => Ok(true),
        "disabled" => Ok(false),
        _ => Err(thinking.required("type", KINDS)?.wrong(KINDS)),
    }
}
