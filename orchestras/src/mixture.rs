//! Teams whose answer is aggregated from several.

use std::num::NonZeroU32;

use agents::mixture::{Aggregator, Proposer};
use agents::search::Inquiry;
use futures::future::join_all;
use maverl::prelude::*;

/// Proposers reply in layers, each given all proposals of the layer before; the aggregator gives the answer.
#[orchestra(name = "mixture/layers", agents(Proposer[proposers], Aggregator))]
#[derive(Settings)]
pub struct Layers {
    /// Number of proposers.
    #[setting(default = 3)]
    pub proposers: NonZeroU32,
    /// Number of layers.
    #[setting(default = 1)]
    pub layers: NonZeroU32,
    /// Reward of a proposer for each of its own correct proposals.
    pub own_reward: f64,
}

impl Orchestra for Layers {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut inquiry = Inquiry { question: task.question.clone(), information: Vec::new() };
        for _ in 0..self.layers.get() {
            inquiry.information = self.layer(team, &inquiry).await?;
        }
        Ok(Some(team.ask::<Aggregator>(&inquiry).await?.answer))
    }
}

impl Layers {
    /// Returns the well-formed proposals of one layer.
    async fn layer(&self, team: &Team<Self>, inquiry: &Inquiry) -> Result<Vec<String>, AskError> {
        let seats = 0..self.proposers.get() as usize;
        let asks = seats.map(|i| team.seat::<Proposer>(i).ask(inquiry));
        let mut proposals = Vec::new();
        for (i, said) in join_all(asks).await.into_iter().enumerate() {
            let Some(proposal) = AskError::or_none(said)? else { continue };
            if self.own_reward != 0.0 && team.judge(&proposal.answer).await?.solved {
                team.seat::<Proposer>(i).add_reward("own", self.own_reward);
            }
            proposals.push(proposal.text);
        }
        Ok(proposals)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{answer, paid, play, seats};

    #[test]
    fn each_layer_sees_the_one_before_and_the_aggregator_the_last() {
        let two = NonZeroU32::new(2).unwrap();
        let layers = Layers { proposers: two, layers: two, own_reward: 1.0 };
        let episode = play(layers, |seat, shown| match (seat, shown.contains("<answer>4")) {
            ("mixture/aggregator", _) => answer(&shown.matches("<answer>42").count().to_string()),
            ("mixture/proposer#0", false) => answer("41"),
            ("mixture/proposer#1", false) => "no answer".to_owned(),
            _ => answer("42"),
        });
        assert_eq!(seats(&episode)[4], "mixture/aggregator");
        assert_eq!(episode.answer.as_deref(), Some("2"));
        let expected = [0, 1].map(|i| (format!("mixture/proposer#{i}"), 1.0));
        assert_eq!(paid(&episode, "own"), expected);
    }
}
