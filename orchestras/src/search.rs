//! Teams that answer a question by search.

mod oracle;

pub use oracle::demonstrations;

use std::num::NonZeroU32;

use agents::search::{Answer, Answerer, Inquiry, Query, Searcher, Verdict, Verifier};
use maverl::prelude::*;

/// Searches until the verifier finds the information sufficient, then answers.
#[orchestra(name = "search/route", agents(Verifier, Searcher, Answerer), needs("search"))]
pub struct Route {
    /// Maximum number of turns of an episode: each but the last may search, the last answers. Three turns make at most
    /// five calls.
    pub max_turns: NonZeroU32,
}

impl Default for Route {
    fn default() -> Self {
        Self { max_turns: NonZeroU32::MIN.saturating_add(2) }
    }
}

impl Orchestra for Route {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut inquiry = Inquiry { question: task.question.clone(), information: Vec::new() };
        for _ in 1..self.max_turns.get() {
            if team.ask::<Verifier>(&inquiry).await? == Verdict::Enough {
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
