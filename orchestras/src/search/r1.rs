//! The team of Search-R1: one model whose reply grows by what it searches for.

use std::num::NonZeroU32;

use agents::search::r1::{ENDS, Reasoner, Step, Trail};
use maverl::prelude::*;

/// Thinks, searches and answers in one text, to which documents are added (Search-R1).
#[orchestra(name = "search/r1", agents(Reasoner), needs("search"))]
#[derive(Settings)]
pub struct R1 {
    /// Maximum number of replies that may search; one more reply may only answer.
    #[setting(default = 4)]
    pub max_turns: NonZeroU32,
    /// Maximum number of tokens that are added to the text after a reply: the documents with their tags. Later ones are cut.
    /// Without effect with `chat`, and for replies of an endpoint.
    #[setting(default = 500)]
    pub max_observation_tokens: NonZeroU32,
    /// Send documents as messages of a conversation, in place of a continuation of the reply.
    pub chat: bool,
}

impl Orchestra for R1 {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut chat = team.chat::<Reasoner>();
        let mut trail = Trail {
            question: task.question.clone(),
            begun: false,
            information: None,
            chat: self.chat,
            max_tokens: usize::try_from(self.max_observation_tokens.get()).unwrap_or(usize::MAX),
        };
        let (mut answer, mut searches) = (None, 0);
        for turn in 0..=self.max_turns.get() {
            // An invalid reply is data: the text says so, and goes on.
            let step = AskError::or_none(chat.respond_until(&trail, &ENDS).await)?;
            trail.begun = true;
            trail.information = match step {
                Some(Step::Answer(words)) => {
                    answer = Some(words);
                    break;
                }
                Some(Step::Search(query)) if turn < self.max_turns.get() => {
                    searches += 1;
                    Some(team.act(Action::Text(query)).await?.text)
                }
                Some(Step::Search(_)) | None => None,
            };
        }
        team.log_metric("searches", f64::from(searches));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
