//! Teams that vote.

use std::num::NonZeroU32;

use agents::Solution;
use agents::math::Submission;
use agents::search::Inquiry;
use agents::vote::{Rater, Voter};
use futures::future::join_all;
use maverl::ballot::{Ballot, Ties};
use maverl::prelude::*;

/// Voters answer independently, and the most frequent answer wins; raters may weight the votes.
#[orchestra(name = "vote/majority", agents(Voter[voters], Rater[raters]))]
#[derive(Settings)]
pub struct Majority {
    /// Number of voters.
    #[setting(default = 3)]
    pub voters: NonZeroU32,
    /// Number of raters per vote. The weight of a vote is the sum of its ratings (0 to 1 each); without raters every
    /// vote has weight 1.
    pub raters: u32,
    /// Choice among tied answers: `first`, `random`, or `none` for no answer.
    pub ties: Ties,
    /// Reward of a voter for a correct answer of its own.
    pub own_reward: f64,
    /// Weight of a vote's marginal value: the score of the result, minus that without the vote.
    pub pivot_reward: f64,
}

/// Answer of one voter, and its weight.
struct Vote {
    voter: usize,
    solution: Solution,
    weight: f64,
}

impl Orchestra for Majority {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let inquiry = Inquiry { question: task.question.clone(), information: Vec::new() };
        let asks = (0..self.voters.get() as usize).map(|i| team.seat::<Voter>(i).ask(&inquiry));
        let mut votes = Vec::new();
        for (voter, said) in join_all(asks).await.into_iter().enumerate() {
            // A voter with a malformed reply abstains.
            if let Some(solution) = AskError::or_none(said)? {
                votes.push(Vote { voter, solution, weight: 1.0 });
            }
        }
        if self.raters > 0 {
            self.rate(task, team, &mut votes).await?;
        }
        let winner = self.winner(team, votes.iter());
        self.reward(team, &votes, winner.as_deref()).await?;
        Ok(winner)
    }
}

impl Majority {
    /// Weights every vote by its ratings.
    async fn rate(
        &self,
        task: &Task,
        team: &Team<Self>,
        votes: &mut [Vote],
    ) -> Result<(), AskError> {
        for vote in votes {
            let (question, solution) = (task.question.clone(), vote.solution.text.clone());
            let submission = Submission { question, solution };
            let asks = (0..self.raters as usize).map(|i| team.seat::<Rater>(i).ask(&submission));
            vote.weight = 0.0;
            for said in join_all(asks).await {
                vote.weight += AskError::or_none(said)?.map_or(0.0, agents::Rating::share);
            }
        }
        Ok(())
    }

    fn winner<'v>(
        &self,
        team: &Team<Self>,
        votes: impl Iterator<Item = &'v Vote>,
    ) -> Option<String> {
        let mut ballot = Ballot::default();
        votes.for_each(|vote| ballot.cast(&vote.solution.answer, vote.weight));
        ballot.winner(self.ties, team.seed())
    }

    async fn reward(
        &self,
        team: &Team<Self>,
        votes: &[Vote],
        winner: Option<&str>,
    ) -> Result<(), AskError> {
        if self.own_reward == 0.0 && self.pivot_reward == 0.0 {
            return Ok(());
        }
        let with = score(team, winner).await?;
        for vote in votes {
            let seat = team.seat::<Voter>(vote.voter);
            let own = team.judge(&vote.solution.answer).await?;
            seat.add_reward("own", self.own_reward * f64::from(own.solved));
            let others = votes.iter().filter(|other| other.voter != vote.voter);
            let without = self.winner(team, others);
            let change = with - score(team, without.as_deref()).await?;
            seat.add_reward("pivot", self.pivot_reward * change);
        }
        Ok(())
    }
}

/// Returns the score of an answer; 0 for none.
async fn score(team: &Team<Majority>, answer: Option<&str>) -> Result<f64, AskError> {
    match answer {
        Some(answer) => Ok(team.judge(answer).await?.reward),
        None => Ok(0.0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{answer, paid, play};

    /// Plays an episode in which three voters give these answers.
    fn vote(majority: Majority, said: [&'static str; 3]) -> Episode {
        play(majority, move |seat, shown| match seat.strip_prefix("vote/voter#") {
            Some(i) => said[i.parse::<usize>().unwrap()].to_owned(),
            None if shown.contains("41") => "<score>9</score>".to_owned(),
            None => "<score>2</score>".to_owned(),
        })
    }

    const RIGHT: &str = "<answer>42</answer>";
    const ALSO: &str = "so <answer>84/2</answer>";
    const WRONG: &str = "<answer>41</answer>";

    #[test]
    fn the_answer_of_the_most_wins_however_it_is_written() {
        let episode = vote(Majority::default(), [WRONG, RIGHT, ALSO]);
        assert_eq!((episode.turns.len(), episode.answer.as_deref()), (3, Some("42")));
        assert_eq!(answer("42"), RIGHT);
    }

    #[test]
    fn who_cannot_be_understood_does_not_vote() {
        let episode = vote(Majority::default(), ["42", "<answer>", WRONG]);
        assert_eq!(episode.answer.as_deref(), Some("41"));
        assert_eq!(vote(Majority::default(), ["1", "2", "3"]).answer, None);
        let none = Majority { ties: Ties::None, ..Majority::default() };
        assert_eq!(vote(none, [RIGHT, WRONG, "?"]).answer, None);
    }

    #[test]
    fn raters_weigh_the_votes() {
        let rated = Majority { raters: 2, ..Majority::default() };
        let episode = vote(rated, [RIGHT, ALSO, WRONG]);
        assert_eq!((episode.turns.len(), episode.answer.as_deref()), (9, Some("41")));
    }

    #[test]
    fn voters_are_paid_for_being_right_and_for_what_they_changed() {
        let paying = || Majority { own_reward: 1.0, pivot_reward: 1.0, ..Majority::default() };
        let episode = vote(paying(), [WRONG, RIGHT, ALSO]);
        let voter = |i: u32, value| (format!("vote/voter#{i}"), value);
        assert_eq!(paid(&episode, "own"), [voter(1, 1.0), voter(2, 1.0)]);
        // Without either of the two correct votes there is a tie, and the first answer, which is wrong, wins.
        assert_eq!(paid(&episode, "pivot"), [voter(1, 1.0), voter(2, 1.0)]);
        // Agreement alone is not rewarded.
        let episode = vote(paying(), [WRONG, WRONG, WRONG]);
        assert!(paid(&episode, "own").is_empty() && paid(&episode, "pivot").is_empty());
    }
}
