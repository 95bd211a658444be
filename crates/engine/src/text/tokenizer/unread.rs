//! Parts of a conversation that a chat template does not show.

use serde_json::Value;

use super::{ChatInput, ChatMessage, Tokenizer};
use crate::text::TokenizerError;

impl Tokenizer {
    /// Returns the names of what a conversation has and its template does not show: the tools, the calls of any message,
    /// and the thoughts of the last one. Thoughts of earlier messages are often left out on purpose.
    ///
    /// # Errors
    ///
    /// If the template refuses the conversation.
    pub fn unread(&self, chat: &ChatInput) -> Result<Vec<&'static str>, TokenizerError> {
        let mut variants = Vec::new();
        if chat.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
            variants.push(("tools", ChatInput { tools: None, ..chat.clone() }));
        }
        for key in ChatMessage::CALLS {
            if chat.messages.iter().any(|message| holds(message, key)) {
                let messages = chat.messages.iter().map(|message| message.without(&[key]));
                variants.push((key, ChatInput { messages: messages.collect(), ..chat.clone() }));
            }
        }
        if let Some((last, before)) = chat.messages.split_last()
            && let Some(key) = ChatMessage::THOUGHTS.into_iter().find(|key| holds(last, key))
        {
            let bare = last.without(&ChatMessage::THOUGHTS);
            let messages = before.iter().cloned().chain([bare]).collect();
            variants.push((key, ChatInput { messages, ..chat.clone() }));
        }
        if variants.is_empty() {
            return Ok(Vec::new());
        }
        let whole = self.render_chat(chat)?;
        // A template that refuses the conversation without a part reads this part.
        variants.retain(|(_, chat)| {
            self.render_chat(chat).is_ok_and(|other| other.text() == whole.text())
        });
        Ok(variants.into_iter().map(|(key, _)| key).collect())
    }
}

/// Returns true if a message has a value for a key that is not empty.
fn holds(message: &ChatMessage, key: &str) -> bool {
    match message.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.trim().is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    }
}
