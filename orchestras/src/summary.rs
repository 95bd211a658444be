//! Teams that share summaries of their replies.

use std::num::NonZeroU32;

use agents::Solution;
use agents::search::Inquiry;
use agents::summary::{Solver, Summarizer};
use futures::future::join_all;
use maverl::ballot::{Ballot, Ties};
use maverl::prelude::*;

/// Solvers answer in rounds, with a summary of all answers between two rounds; the last round votes.
#[orchestra(name = "summary/rounds", agents(Solver[solvers], Summarizer))]
#[derive(Settings)]
pub struct Rounds {
    /// Number of solvers.
    #[setting(default = 3)]
    pub solvers: NonZeroU32,
    /// Number of rounds.
    #[setting(default = 2)]
    pub rounds: NonZeroU32,
    /// Choice among tied answers: `first`, `random`, or `none` for no answer.
    pub ties: Ties,
    /// Reward of a solver for each correct answer of its own.
    pub own_reward: f64,
    /// Weight of a summary's gain: the share of correct answers after it, minus that before it.
    pub gain_reward: f64,
}

impl Orchestra for Rounds {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut inquiry = Inquiry { question: task.question.clone(), information: Vec::new() };
        let mut solutions = self.round(team, &inquiry).await?;
        let mut right = self.reward(team, &solutions).await?;
        for _ in 1..self.rounds.get() {
            let texts = solutions.iter().map(|(_, solution)| solution.text.clone()).collect();
            let all = Inquiry { question: task.question.clone(), information: texts };
            inquiry.information = vec![team.ask::<Summarizer>(&all).await?];
            solutions = self.round(team, &inquiry).await?;
            let now = self.reward(team, &solutions).await?;
            team.only::<Summarizer>().add_reward("gain", self.gain_reward * (now - right));
            right = now;
        }
        let answers = solutions.iter().map(|(_, solution)| solution.answer.as_str());
        Ok(answers.collect::<Ballot>().winner(self.ties, team.seed()))
    }
}

impl Rounds {
    /// Returns the well-formed replies of all solvers.
    async fn round(
        &self,
        team: &Team<Self>,
        inquiry: &Inquiry,
    ) -> Result<Vec<(usize, Solution)>, AskError> {
        let asks = (0..self.solvers.get() as usize).map(|i| team.seat::<Solver>(i).ask(inquiry));
        let said = join_all(asks).await.into_iter().enumerate();
        let read = said.map(|(i, said)| Ok(AskError::or_none(said)?.map(|said| (i, said))));
        read.filter_map(Result::transpose).collect()
    }

    /// Rewards the solvers, and returns the share of correct answers.
    async fn reward(
        &self,
        team: &Team<Self>,
        solutions: &[(usize, Solution)],
    ) -> Result<f64, AskError> {
        if self.own_reward == 0.0 && self.gain_reward == 0.0 {
            return Ok(0.0);
        }
        let mut right = 0.0;
        for (i, solution) in solutions {
            let solved = f64::from(team.judge(&solution.answer).await?.solved);
            team.seat::<Solver>(*i).add_reward("own", self.own_reward * solved);
            right += solved;
        }
        Ok(right / f64::from(self.solvers.get()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{answer, paid, play};

    fn paying() -> Rounds {
        Rounds { own_reward: 1.0, gain_reward: 1.0, ..Rounds::default() }
    }

    #[test]
    fn a_summary_stands_between_two_rounds_and_earns_what_it_changes() {
        let episode = play(paying(), |seat, shown| match seat {
            "summary/summarizer" => format!("{} say 42", shown.matches("42").count()),
            "summary/solver#0" => answer("42"),
            _ if shown.contains("1 say 42") => answer("42"),
            _ => answer("41"),
        });
        assert_eq!((episode.turns.len(), episode.answer.as_deref()), (7, Some("42")));
        assert_eq!(paid(&episode, "own").len(), 4);
        let [(seat, gain)] = &paid(&episode, "gain")[..] else { panic!("one summary") };
        assert_eq!(seat, "summary/summarizer");
        assert!((gain - 2.0 / 3.0).abs() < 1e-12, "{gain}");
    }

    #[test]
    fn a_summary_that_leads_astray_or_changes_nothing_earns_nothing() {
        let worse = play(paying(), |seat, shown| match seat {
            "summary/summarizer" => "it is 41".to_owned(),
            _ if shown.contains("it is 41") => answer("41"),
            _ => answer("42"),
        });
        assert_eq!(paid(&worse, "gain"), [("summary/summarizer".to_owned(), -1.0)]);
        let same = play(paying(), |seat, _| match seat {
            "summary/summarizer" => "42 42 42".to_owned(),
            _ => answer("42"),
        });
        assert!(paid(&same, "gain").is_empty());
    }
}
