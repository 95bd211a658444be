//! Prompts with a further instruction, such as to give a wrong answer.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::agent::Prompt;
use crate::orchestra::{Ask, ChatBackend, Conversation, Response};
use crate::trajectory::{Fault, Message, Role, Tokens};

/// A backend whose prompts have a further line at their end.
pub(super) struct AskedBackend {
    pub(super) inner: Arc<dyn ChatBackend>,
    pub(super) instruction: Arc<str>,
}

impl ChatBackend for AskedBackend {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn sample_again<'a>(
        &'a self,
        recorded: &'a Tokens,
    ) -> Option<BoxFuture<'a, Result<Tokens, Fault>>> {
        self.inner.sample_again(recorded)
    }

    fn respond<'a>(
        &'a self,
        conversation: &'a mut Conversation,
        mut ask: Ask,
    ) -> BoxFuture<'a, Result<Response, Fault>> {
        add(&mut ask.prompt, &self.instruction);
        self.inner.respond(conversation, ask)
    }
}

/// Adds an instruction as a last line to the message of the user.
fn add(prompt: &mut Prompt, instruction: &str) {
    let users = |message: &&mut Message| message.role == Role::User;
    if prompt.messages.is_empty() {
        prompt.user.push('\n');
        prompt.user.push_str(instruction);
    } else if let Some(message) = prompt.messages.iter_mut().rev().find(users) {
        message.content.push('\n');
        message.content.push_str(instruction);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_the_last_line_of_the_last_message_of_the_user() {
        let message = |role, text: &str| Message { role, content: text.to_owned() };
        let mut prompt = Prompt::user("2 + 2?");
        add(&mut prompt, "Be wrong.");
        assert_eq!(prompt.user, "2 + 2?\nBe wrong.");
        let plain = [message(Role::User, "2 + 2?"), message(Role::Assistant, "4")];
        let mut ready = Prompt::messages(plain);
        add(&mut ready, "Be wrong.");
        assert_eq!(ready.messages[0].content, "2 + 2?\nBe wrong.");
        assert_eq!(ready.messages[1].content, "4");
    }
}
