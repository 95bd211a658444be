//! Messages with blocks of content, as messages of chat completions.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::located::Located;
use crate::refusal::Refusal;

/// Beginning of the ids of calls in this protocol, and in that of chat completions.
const IDS: [&str; 2] = ["toolu_", "call_"];
/// Between the texts of several blocks.
const BETWEEN: &str = "\n\n";
/// Content of a message or of a result.
const CONTENT: &str = "a text or a list of blocks";

/// Returns the messages of a chat completion.
pub(super) fn chat_messages(messages: &Located<'_>) -> Result<Vec<Value>, Refusal> {
    let list = messages.items("a list of messages")?;
    let mut told = ChatSoFar { chat: Vec::with_capacity(list.len()), calls: BTreeSet::new() };
    for message in &list {
        told.push_message(message)?;
    }
    Ok(told.chat)
}

/// Messages so far.
struct ChatSoFar<'v> {
    /// In the form of chat completions.
    chat: Vec<Value>,
    /// Ids of the calls of the assistant.
    calls: BTreeSet<&'v str>,
}

impl<'v> ChatSoFar<'v> {
    fn push_message(&mut self, message: &Located<'v>) -> Result<(), Refusal> {
        let role = message.required("role", "user, assistant or system")?;
        let content = message.required("content", CONTENT)?;
        match role.text()? {
            "system" => {
                self.chat.push(json!({"role": "system", "content": joined_text(&content)?}))
            }
            "user" => self.push_user(&content)?,
            "assistant" => self.push_assistant(&content)?,
            _ => return Err(role.wrong("user, assistant or system")),
        }
        Ok(())
    }

    /// Adds a message of the user: the results of tools in their order, then the texts as one message.
    fn push_user(&mut self, content: &Located<'v>) -> Result<(), Refusal> {
        if let Some(text) = content.value.as_str() {
            self.chat.push(json!({"role": "user", "content": text}));
            return Ok(());
        }
        let (mut texts, before) = (Vec::new(), self.chat.len());
        for block in content.items(CONTENT)? {
            match block.kind("text or tool_result")? {
                "text" => texts.push(block_text(&block, "text")?),
                "tool_result" => self.chat.push(self.tool_result(&block)?),
                _ => {
                    return Err(block.other_kind("blocks of type text and tool_result of the user"));
                }
            }
        }
        if !texts.is_empty() || self.chat.len() == before {
            self.chat.push(json!({"role": "user", "content": texts.join(BETWEEN)}));
        }
        Ok(())
    }

    /// Returns the result of a call of the assistant.
    fn tool_result(&self, block: &Located<'v>) -> Result<Value, Refusal> {
        let place = block.required("tool_use_id", "a text")?;
        let id = place.text()?;
        if !self.calls.contains(id) {
            return Err(
                place.wrong("the `id` of a `tool_use` of the assistant in an earlier message")
            );
        }
        block.flag("is_error")?;
        let text = block.get("content").map(|content| joined_text(&content)).transpose()?;
        Ok(json!({
            "role": "tool",
            "tool_call_id": with_other_prefix(id, IDS),
            "content": text.unwrap_or_default(),
        }))
    }

    /// Adds a message of the assistant: its thoughts, its texts, and its calls.
    fn push_assistant(&mut self, content: &Located<'v>) -> Result<(), Refusal> {
        if let Some(text) = content.value.as_str() {
            self.chat.push(json!({"role": "assistant", "content": text}));
            return Ok(());
        }
        let (mut texts, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for block in content.items(CONTENT)? {
            match block.kind("text, thinking or tool_use")? {
                "text" => texts.push(block_text(&block, "text")?),
                "thinking" => thoughts.push(block_text(&block, "thinking")?),
                // Nobody but the server that made them reads them.
                "redacted_thinking" => {}
                "tool_use" => {
                    self.calls.insert(block_text(&block, "id")?);
                    calls.push(tool_call(&block)?);
                }
                _ => {
                    let wanted = "blocks of type text, thinking and tool_use of the assistant";
                    return Err(block.other_kind(wanted));
                }
            }
        }
        let mut message = json!({"role": "assistant", "content": texts.join(BETWEEN)});
        if !thoughts.is_empty() {
            message["reasoning_content"] = thoughts.join(BETWEEN).into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        self.chat.push(message);
        Ok(())
    }
}

/// Returns a text, or the texts of blocks with blank lines between them.
pub(super) fn joined_text(content: &Located<'_>) -> Result<String, Refusal> {
    if let Some(text) = content.value.as_str() {
        return Ok(text.to_owned());
    }
    let mut texts = Vec::new();
    for block in content.items("a text or a list of text blocks")? {
        match block.kind("text")? {
            "text" => texts.push(block_text(&block, "text")?),
            _ => return Err(block.other_kind("blocks of type text here")),
        }
    }
    Ok(texts.join(BETWEEN))
}

/// Returns a text of a block.
fn block_text<'v>(block: &Located<'v>, name: &str) -> Result<&'v str, Refusal> {
    block.required(name, "a text")?.text()
}

fn tool_call(block: &Located<'_>) -> Result<Value, Refusal> {
    let (id, name) = (block_text(block, "id")?, block_text(block, "name")?);
    let input = block.required("input", "an object")?.object()?;
    Ok(json!({
        "type": "function",
        "id": with_other_prefix(id, IDS),
        "function": {"name": name, "arguments": input},
    }))
}

/// Returns the id of a call as this protocol writes it.
pub(super) fn tool_use_id(id: &str) -> String {
    let [own, chat] = IDS;
    with_other_prefix(id, [chat, own])
}

/// Returns an id with another prefix. One without a prefix is unchanged.
fn with_other_prefix(id: &str, [from, to]: [&str; 2]) -> String {
    id.strip_prefix(from).map_or_else(|| id.to_owned(), |rest| format!("{to}{rest}"))
}
