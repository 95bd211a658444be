//! The agent of programs that are not part of maverl.

use maverl::prelude::*;

/// Input of a call. The gateway sends the program's own messages instead.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Message {
    /// The whole prompt.
    #[input(observation)]
    pub text: String,
}

/// Replies to the calls of a program.
#[agent(name = "program/agent")]
pub struct ProgramAgent;

impl Agent for ProgramAgent {
    type Input = Message;
    type Output = String;

    fn prompt(&self, message: &Message) -> Prompt {
        let mut prompt = Prompt::default();
        prompt.push_observation(&message.text);
        prompt
    }
}
