//! Conversation with one seat.

use serde_json::Value;

use crate::agent::Prompt;
use crate::trajectory::{Message, Role};

/// A conversation with one seat: its messages and, for a model, exactly its token ids.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// All messages so far, replies included.
    pub messages: Vec<Message>,
    /// Token ids of all messages so far, exactly as the model saw and sampled them; empty for an endpoint.
    pub ids: Vec<u32>,
    /// Rendered text of the last prompt, as the chat template produced it.
    pub rendered: String,
    /// Tools of the conversation in the form of chat templates; set by its first prompt.
    pub tools: Vec<Value>,
}

impl Conversation {
    /// Adds a prompt in the form that every backend receives. Its system section and its tools open a conversation;
    /// results of calls precede the user's message.
    pub fn push_prompt(&mut self, prompt: &Prompt) {
        if self.messages.is_empty() {
            self.tools.clone_from(&prompt.tools);
        }
        if prompt.is_continuation() {
            return extend_reply(&mut self.messages, &prompt.user);
        }
        let heard = self.next_messages(prompt);
        self.messages.extend(heard);
    }

    /// Adds a reply.
    pub fn push_reply(&mut self, reply: impl Into<String>) {
        self.messages.push(Message { role: Role::Assistant, content: reply.into() });
    }

    /// Returns the messages so far and those of a prompt.
    pub(crate) fn messages_with(&self, prompt: &Prompt) -> Vec<Message> {
        let mut all = self.messages.clone();
        if prompt.is_continuation() {
            extend_reply(&mut all, &prompt.user);
        } else {
            all.extend(self.next_messages(prompt));
        }
        all
    }

    /// Returns the tools of the conversation: those of the first prompt.
    pub(crate) fn tools_with<'a>(&'a self, prompt: &'a Prompt) -> &'a [Value] {
        if self.messages.is_empty() { &prompt.tools } else { &self.tools }
    }

    /// Returns the messages of the next prompt.
    fn next_messages(&self, prompt: &Prompt) -> Vec<Message> {
        if !prompt.messages.is_empty() {
            return prompt.messages.clone();
        }
        let system = prompt.system.iter().filter(|_| self.messages.is_empty());
        let system = system.map(|text| (Role::System, text));
        let results = prompt.results.iter().map(|result| (Role::Tool, result));
        let is_said = prompt.results.is_empty() || !prompt.user.is_empty();
        let heard = system.chain(results).chain(is_said.then_some((Role::User, &prompt.user)));
        heard.map(|(role, text)| Message { role, content: text.clone() }).collect()
    }
}

/// Appends a text to the last reply. The reply, and the texts and replies that it continues, become one message.
fn extend_reply(messages: &mut Vec<Message>, text: &str) {
    let before = messages.iter().rposition(|message| message.role != Role::Assistant);
    let parts = messages.drain(before.map_or(0, |at| at + 1)..);
    let mut content: String = parts.map(|message| message.content).collect();
    content.push_str(text);
    messages.push(Message { role: Role::Assistant, content });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_is_continued_stays_one_message() {
        let mut conversation = Conversation::default();
        conversation.push_prompt(&Prompt::user("Who?"));
        conversation.push_reply("one");
        for text in [" two", " four"] {
            let prompt = Prompt::user(text).continuing(9);
            let messages = conversation.messages_with(&prompt);
            conversation.push_prompt(&prompt);
            assert_eq!(conversation.messages, messages);
            conversation.push_reply(" three");
        }
        let texts: Vec<&str> =
            conversation.messages.iter().map(|message| message.content.as_str()).collect();
        assert_eq!(texts, ["Who?", "one two three four", " three"]);
    }
}
