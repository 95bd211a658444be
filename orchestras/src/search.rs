//! Teams that answer a question by search.

mod oracle;
mod r1;

pub use oracle::demonstrations;
pub use r1::R1;

use std::num::NonZeroU32;

use agents::search::{Answerer, Inquiry, Query, Searcher, Verifier};
use maverl::prelude::*;

/// Searches until the verifier finds the information sufficient, then answers.
#[orchestra(name = "search/route", agents(Verifier, Searcher, Answerer), needs("search"))]
#[derive(Settings)]
pub struct Route {
    /// Maximum number of turns of an episode: each but the last may search, the last answers. Three turns make at most
    /// five calls.
    #[setting(default = 3)]
    pub max_turns: NonZeroU32,
}

impl Orchestra for Route {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut inquiry = Inquiry { question: task.question.clone(), information: Vec::new() };
        for _ in 1..self.max_turns.get() {
            if team.ask::<Verifier>(&inquiry).await? == Approval::Yes {
                break;
            }
            let Query(query) = team.ask::<Searcher>(&inquiry).await?;
            let found = team.act(Action::Text(query)).await?;
            inquiry.information.push(found.text);
        }
        let Answer(answer) = team.ask::<Answerer>(&inquiry).await?;
        Ok(Some(answer))
    }
}

#[cfg(test)]
mod tests;
