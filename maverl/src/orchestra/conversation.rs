//! What was said to and by one seat.

use serde_json::Value;

use crate::agent::Prompt;
use crate::trajectory::{Message, Role};

/// A conversation with one seat: its messages and, for a model, exactly the ids it has seen and made.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Everything said so far, replies included.
    pub messages: Vec<Message>,
    /// Token ids of everything so far, in the order the model saw and made them; empty for an endpoint.
    pub ids: Vec<u32>,
    /// The rendered text of the last prompt, as the chat template gave it.
    pub rendered: String,
    /// What may be called in it, as chat templates take it; what its first prompt said.
    pub tools: Vec<Value>,
}

impl Conversation {
    /// Adds a prompt as every backend hears it. Its system section and its tools open a conversation; results of calls come
    /// before what the user says.
    pub fn push_prompt(&mut self, prompt: &Prompt) {
        if self.messages.is_empty() {
            self.tools.clone_from(&prompt.tools);
        }
        let heard = self.heard(prompt);
        self.messages.extend(heard);
    }

    /// Adds a reply.
    pub fn push_reply(&mut self, reply: impl Into<String>) {
        self.messages.push(Message { role: Role::Assistant, content: reply.into() });
    }

    /// The messages so far and those of a prompt.
    pub(crate) fn messages_with(&self, prompt: &Prompt) -> Vec<Message> {
        let mut all = self.messages.clone();
        all.extend(self.heard(prompt));
        all
    }

    /// What may be called: what the first prompt says.
    pub(crate) fn tools_with<'a>(&'a self, prompt: &'a Prompt) -> &'a [Value] {
        if self.messages.is_empty() { &prompt.tools } else { &self.tools }
    }

    /// The messages of a prompt that comes next.
    fn heard(&self, prompt: &Prompt) -> Vec<Message> {
        let message = |role, content: &String| Message { role, content: content.clone() };
        let mut heard = Vec::new();
        if let Some(system) = prompt.system.as_ref().filter(|_| self.messages.is_empty()) {
            heard.push(message(Role::System, system));
        }
        heard.extend(prompt.results.iter().map(|result| message(Role::Tool, result)));
        if prompt.results.is_empty() || !prompt.user.is_empty() {
            heard.push(message(Role::User, &prompt.user));
        }
        heard
    }
}
