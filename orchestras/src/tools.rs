//! One agent and its tools.

use std::num::NonZeroU32;

use agents::tools::{Caller, Errand, Step};
use maverl::prelude::*;
use maverl::tools::{Call, CallError, unreadable_call};

/// Calls tools, in one conversation, until it answers.
#[orchestra(name = "tools/act", agents(Caller), needs("tool"))]
#[derive(Settings)]
pub struct Act {
    /// Maximum number of turns of an episode. Effects of calls count without an answer too, if the task's goal requires
    /// nothing else.
    #[setting(default = 4)]
    pub max_turns: NonZeroU32,
    /// Maximum number of calls of a turn; further ones are not executed.
    #[setting(default = 4)]
    pub max_calls: NonZeroU32,
}

impl Orchestra for Act {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut chat = team.chat::<Caller>();
        let (question, tools) = (task.question.clone(), team.tools());
        let mut errand = Errand { question, tools, results: None };
        for _ in 0..self.max_turns.get() {
            match chat.respond(&errand).await? {
                Step::Answer(answer) => return Ok(Some(answer)),
                Step::Call(calls) => errand.results = Some(self.results(calls, team).await?),
            }
        }
        Ok(None)
    }
}

impl Act {
    /// Returns the result of each call, in order.
    async fn results(
        &self,
        calls: Vec<Result<Call, CallError>>,
        team: &Team<Self>,
    ) -> Result<Vec<String>, AskError> {
        let most = self.max_calls.get() as usize;
        let mut results = Vec::with_capacity(calls.len().min(most) + 1);
        let further = calls.len().saturating_sub(most);
        for call in calls.into_iter().take(most) {
            let action = match call {
                Ok(call) => call.into(),
                // The environment describes the problem, and counts it.
                Err(CallError::Unreadable(what)) => Action::Text(what),
                Err(CallError::Malformed(what)) => Action::Text(unreadable_call(&what)),
                Err(error) => Action::Text(error.to_string()),
            };
            results.push(team.act(action).await?.text);
        }
        if further > 0 {
            let said = format!(
                "error: no more than {most} calls in a reply; {further} were not carried out"
            );
            results.push(said);
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests;
