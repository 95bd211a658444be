//! Options of all requests of an episode, whichever backend replies.

use std::sync::Arc;

use crate::agent::Prompt;
use crate::orchestra::backend::{Ask, AskLimits, ChatBackend, Response};
use crate::orchestra::conversation::Conversation;
use crate::orchestra::gate::TurnGate;
use crate::orchestra::times::{RequestTimes, Timer};
use crate::trajectory::{Fault, Role, Seat, TurnPath};

/// Receiver of replies as they come, with the seat and the path of the turn.
pub type ReplyListener = Arc<dyn Fn(&Seat, &TurnPath, &str) + Send + Sync>;

/// Options of the requests of an episode.
#[derive(Clone, Default)]
pub struct RequestOptions {
    /// Instruction in the last line of every prompt, such as to give a wrong answer.
    pub instruction: Option<Arc<str>>,
    /// Times of the requests.
    pub times: Option<Arc<RequestTimes>>,
    /// Receiver of the replies.
    pub listener: Option<ReplyListener>,
    /// Gate that each turn passes before its request is sent.
    pub gate: Option<Arc<dyn TurnGate>>,
}

impl RequestOptions {
    /// Sends a request to a backend.
    pub(super) async fn respond(
        &self,
        backend: &dyn ChatBackend,
        conversation: &mut Conversation,
        mut ask: Ask,
    ) -> Result<Response, Fault> {
        if let Some(gate) = &self.gate {
            gate.pass(&ask.seat, &ask.path).await?;
        }
        if let Some(instruction) = &self.instruction {
            add_instruction(&mut ask.prompt, instruction);
        }
        let turn = self.listener.as_ref().map(|to| (to, ask.seat.clone(), ask.path.clone()));
        let timer = self.times.as_ref().map(|times| Timer::start(times, ask.seed));
        let limits = ask.limits.clone();
        let reply = backend.respond(conversation, ask);
        let mut response = match timer {
            Some(timer) => timer.time(reply).await,
            None => reply.await,
        }?;
        cut_reply(conversation, &mut response, &limits);
        if let Some((listener, seat, path)) = turn {
            listener(&seat, &path, &response.reply);
        }
        Ok(response)
    }
}

/// Cuts a reply without tokens at the end that its request names. Tokens end there already.
fn cut_reply(conversation: &mut Conversation, response: &mut Response, limits: &AskLimits) {
    let end = limits.end_of(&response.reply).filter(|_| response.tokens.is_none());
    let (Some(end), Some(last)) = (end, conversation.messages.last_mut()) else { return };
    response.reply.truncate(end);
    last.content.clone_from(&response.reply);
    response.truncated = false;
}

/// Adds an instruction as a last line to the message of the user. A text that continues a reply has no such message.
fn add_instruction(prompt: &mut Prompt, instruction: &str) {
    if prompt.is_continuation() {
        return;
    }
    if prompt.messages.is_empty() {
        prompt.user.push('\n');
        prompt.user.push_str(instruction);
    } else if let Some(message) = prompt.messages.iter_mut().rfind(|it| it.role == Role::User) {
        message.content.push('\n');
        message.content.push_str(instruction);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::Message;

    #[test]
    fn an_instruction_is_the_last_line_of_the_last_message_of_the_user() {
        let message = |role, text: &str| Message { role, content: text.to_owned() };
        let mut prompt = Prompt::user("2 + 2?");
        add_instruction(&mut prompt, "Be wrong.");
        assert_eq!(prompt.user, "2 + 2?\nBe wrong.");
        let plain = [message(Role::User, "2 + 2?"), message(Role::Assistant, "4")];
        let mut ready = Prompt::messages(plain);
        add_instruction(&mut ready, "Be wrong.");
        assert_eq!(ready.messages[0].content, "2 + 2?\nBe wrong.");
        assert_eq!(ready.messages[1].content, "4");
    }
}
