//! Prompts of calls: their system messages, and the numbers of their tokens.

use serde_json::{Value, json};

use super::EpisodeCourse;
use super::refused::{failed_request, refused_prompt};
use crate::anthropic::{has_later_system, without_later_system};
use crate::gateway::call::SeatCall;
use crate::gateway::dialect::Dialect;
use crate::openai::flat;
use crate::refusal::Refusal;
use maverl::agent::Prompt;

impl EpisodeCourse<'_> {
    /// Makes later system messages of a message's conversation those of the user, if the seat does not take them.
    pub(super) fn place_system(&self, call: &mut SeatCall) {
        let later = call.dialect == Dialect::Messages && has_later_system(&call.messages);
        if later && !self.state.takes_later_system(&self.seats[call.seat]) {
            call.messages = without_later_system(std::mem::take(&mut call.messages));
        }
    }

    /// Returns the number of tokens of the prompt of a call, which is no turn.
    pub(super) fn count_tokens(&self, mut call: SeatCall) -> Result<Value, Refusal> {
        self.place_system(&mut call);
        let prompt = Prompt::messages(flat(&call.messages)).with_tools(call.tools.declared);
        match self.state.count_tokens(&self.seats[call.seat], &prompt) {
            Some(Ok(tokens)) => Ok(json!({"input_tokens": tokens})),
            Some(Err(fault)) => Err(refused_prompt(&fault).unwrap_or(failed_request(&fault))),
            None => {
                let what = "names a seat of a server, whose tokens are not known here";
                Err(Refusal::unsupported_field("model", what))
            }
        }
    }
}
