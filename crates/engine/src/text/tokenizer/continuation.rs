//! Last messages of conversations as tokens of their own: replies that are trained on or scored, and messages to the model.

use super::{ChatInput, Rendered, Tokenizer};
use crate::text::TokenizerError;

/// A conversation, divided where the tokens of its last message begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continuation {
    before: Rendered,
    last: Rendered,
}

impl Continuation {
    /// Returns the number of bytes of the text.
    pub fn bytes(&self) -> usize {
        self.before.text().len() + self.last.text().len()
    }

    /// Returns the number of bytes of the last message.
    pub(crate) fn last_bytes(&self) -> usize {
        self.last.text().len()
    }

    /// Cuts the beginning of what is before the last message, which has so many bytes at most afterwards.
    pub(crate) fn cut_before(self, bytes: usize) -> Self {
        let text = self.before.text();
        let at = text.ceil_char_boundary(text.len().saturating_sub(bytes));
        Self { before: self.before.after(at), last: self.last }
    }
}

impl Tokenizer {
    /// Divides a conversation that ends with a reply: before it are the messages and the opened turn of the assistant.
    ///
    /// # Errors
    ///
    /// If the template refuses the conversation, or changes the prompt when the reply is appended.
    pub fn reply(&self, chat: &ChatInput) -> Result<Continuation, TokenizerError> {
        let prompt = chat.up_to(chat.messages.len().saturating_sub(1));
        let open = self.render_chat(&ChatInput { add_generation_prompt: true, ..prompt })?;
        let whole =
            self.render_chat(&ChatInput { add_generation_prompt: false, ..chat.clone() })?;
        divide(&whole, open.text().len(), open.text())
    }

    /// Divides a conversation that ends with a message of the user or a tool: the header of its role is part of what is
    /// before it.
    ///
    /// # Errors
    ///
    /// If the template refuses the conversation, or changes the message or those before it.
    pub fn observation(&self, chat: &ChatInput) -> Result<Continuation, TokenizerError> {
        let before = chat.up_to(chat.messages.len().saturating_sub(1));
        let (given, whole) = (self.render_chat(&before)?, self.render_chat(chat)?);
        let after = whole.text().get(given.text().len()..).unwrap_or_default();
        let text = chat.messages.last().map_or("", |last| last.text());
        let header = after.find(text.trim()).ok_or_else(|| {
            refused_render("the chat template changes the message that is trained on")
        })?;
        divide(&whole, given.text().len() + header, given.text())
    }

    /// Encodes the parts of a divided conversation. The second ends with the end of the turn.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot encode them, or the last message has no tokens.
    pub fn encode_parts(
        &self,
        divided: &Continuation,
    ) -> Result<(Vec<u32>, Vec<u32>), TokenizerError> {
        let mut last = self.encode_rendered(&divided.last)?;
        // Text of the template after the stop id belongs to the next turn.
        if let Some(end) = last.iter().position(|id| self.stop_ids().contains(id)) {
            last.truncate(end + 1);
        }
        if last.is_empty() {
            Err(refused_render("the last message has no tokens"))
        } else {
            Ok((self.encode_rendered(&divided.before)?, last))
        }
    }
}

/// Divides a text at a byte, if it begins with `start`.
fn divide(whole: &Rendered, at: usize, start: &str) -> Result<Continuation, TokenizerError> {
    if whole.text().starts_with(start) {
        Ok(Continuation { before: whole.before(at), last: whole.after(at) })
    } else {
        Err(refused_render("the chat template changes the prompt when the reply is appended"))
    }
}

fn refused_render(message: &str) -> TokenizerError {
    TokenizerError::Template(message.to_owned())
}
