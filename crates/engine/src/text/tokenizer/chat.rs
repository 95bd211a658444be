//! Conversations in the format of chat templates.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::message::{Message, Role};

/// Input of a chat template. In JSON it is a row of a chat data set: `{"messages": [...], "tools": [...]}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatInput {
    /// Messages, from the beginning of the conversation.
    pub messages: Vec<ChatMessage>,
    /// JSON schemas of the functions that the model may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// Documents for citation: objects, by convention with `title` and `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Vec<Value>>,
    /// True if the assistant's next turn is started.
    #[serde(default)]
    pub add_generation_prompt: bool,
    /// Name of the template, if a model has several. Default: `tool_use` if there are tools, else `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<String>,
    /// Additional variables of the template, such as `enable_thinking`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub chat_template_kwargs: Map<String, Value>,
}

impl ChatInput {
    /// Names of the variables that a conversation itself defines.
    pub const VARIABLES: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

    /// Its keys as JSON.
    pub const KEYS: [&str; 6] = [
        "messages",
        "tools",
        "documents",
        "add_generation_prompt",
        "chat_template",
        "chat_template_kwargs",
    ];

    /// A conversation that is complete, without tools.
    pub fn new(messages: impl IntoIterator<Item = impl Into<ChatMessage>>) -> Self {
        Self { messages: messages.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Creates a conversation with the assistant's next turn started.
    pub fn open(messages: impl IntoIterator<Item = impl Into<ChatMessage>>) -> Self {
        Self { add_generation_prompt: true, ..Self::new(messages) }
    }

    /// Returns the conversation with its first messages only.
    #[must_use]
    pub fn up_to(&self, messages: usize) -> Self {
        let messages = self.messages[..messages].to_vec();
        Self { messages, ..self.clone() }
    }

    /// Returns the conversation with one message more.
    #[must_use]
    pub fn with_message(&self, message: ChatMessage) -> Self {
        let mut whole = self.clone();
        whole.messages.push(message);
        whole
    }

    /// Returns the template variables of the conversation.
    pub(super) fn variables(&self) -> Map<String, Value> {
        let mut variables = self.chat_template_kwargs.clone();
        let messages = self.messages.iter().map(|message| Value::Object(message.shown()));
        variables.insert("messages".to_owned(), messages.collect());
        variables.insert("tools".to_owned(), json!(self.tools));
        variables.insert("documents".to_owned(), json!(self.documents));
        variables.insert("add_generation_prompt".to_owned(), json!(self.add_generation_prompt));
        variables
    }
}

/// A message: an object with a `role` and any other keys that templates read, such as `content`, `tool_calls`, `name`,
/// `reasoning_content`. It is passed to the template with its keys in order, without those that are null, and with the
/// thoughts before a reply by both of the names that templates read, as `transformers` passes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct ChatMessage(Map<String, Value>);

impl ChatMessage {
    /// Keys of the thoughts before a reply; the first one that a message has counts.
    pub const THOUGHTS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

    /// Keys of the calls of a message, and of what it says about them.
    pub const CALLS: [&str; 3] = ["tool_calls", "tool_plan", "tool_responses"];

    /// Creates a message of a role (`system`, `user`, `assistant`, `tool`), with content: a text, null, or a list of
    /// parts.
    pub fn new(role: impl Into<String>, content: impl Into<Value>) -> Self {
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::String(role.into()));
        message.insert("content".to_owned(), content.into());
        Self(message)
    }

    /// Creates a message with the result of a function.
    pub fn tool(name: impl Into<String>, content: impl Into<String>) -> Self {
        Self::new("tool", content.into()).with("name", name.into())
    }

    /// Sets a key of the message.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// Adds a function call to the message. Its arguments are an object, because templates iterate over them.
    #[must_use]
    pub fn with_tool_call(
        mut self,
        name: impl Into<String>,
        arguments: Map<String, Value>,
    ) -> Self {
        let function = json!({ "name": name.into(), "arguments": Value::Object(arguments) });
        let call = json!({ "type": "function", "function": function });
        match self.0.get_mut("tool_calls").and_then(Value::as_array_mut) {
            Some(calls) => calls.push(call),
            None => drop(self.0.insert("tool_calls".to_owned(), json!([call]))),
        }
        self
    }

    /// Returns the role.
    pub fn role(&self) -> &str {
        self.0.get("role").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Returns the content, if it is a text; else an empty text.
    pub fn text(&self) -> &str {
        self.0.get("content").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the message without some of its keys.
    #[must_use]
    pub fn without(&self, keys: &[&str]) -> Self {
        let others = self.0.iter().filter(|(key, _)| !keys.contains(&key.as_str()));
        Self(others.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// Returns the message as templates get it.
    fn shown(&self) -> Map<String, Value> {
        let given = self.0.iter().filter(|(_, value)| !value.is_null());
        let given: Map<String, Value> =
            given.map(|(key, value)| (key.clone(), value.clone())).collect();
        let thoughts = Self::THOUGHTS.iter().find_map(|key| given.get(*key)).cloned();
        let Some(thoughts) = thoughts else { return given };
        let mut shown = Map::from_iter([("thinking".to_owned(), thoughts.clone())]);
        shown.extend(given);
        shown.insert("reasoning_content".to_owned(), thoughts);
        shown
    }
}

impl TryFrom<Map<String, Value>> for ChatMessage {
    type Error = String;

    fn try_from(message: Map<String, Value>) -> Result<Self, String> {
        match message.get("role") {
            Some(Value::String(_)) => Ok(Self(message)),
            Some(other) => Err(format!("the `role` of a message is {other}, not a string")),
            None => Err("a message has no `role`".to_owned()),
        }
    }
}

impl From<ChatMessage> for Map<String, Value> {
    fn from(message: ChatMessage) -> Self {
        message.0
    }
}

impl From<&Message> for ChatMessage {
    fn from(message: &Message) -> Self {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        Self::new(role, message.content.as_str())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_keys_of_a_conversation_are_its_fields() {
        let whole = ChatInput {
            tools: Some(Vec::new()),
            documents: Some(Vec::new()),
            chat_template: Some(String::new()),
            chat_template_kwargs: Map::from_iter([("a".to_owned(), json!(1))]),
            ..ChatInput::default()
        };
        let whole = serde_json::to_value(whole).unwrap();
        assert_eq!(whole.as_object().unwrap().keys().collect::<Vec<_>>(), ChatInput::KEYS);
    }
}
