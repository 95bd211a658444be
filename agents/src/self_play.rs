//! Agents that play against each other, and their judge.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Answers, and answers again after reading its opponent's reply.
#[agent(Inquiry -> Solution, name = "self_play/player")]
pub struct Player;

/// Two answers to a question.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Pair {
    /// Question.
    pub question: String,
    /// Reply of one player.
    #[input(observation)]
    pub first: String,
    /// Reply of the other player.
    #[input(observation)]
    pub second: String,
}

/// Decides which answer is better, without knowing the players.
#[agent(Pair -> Better, name = "self_play/judge")]
pub struct Judge;

/// The better answer.
#[derive(Reply, Debug, Clone, Copy, PartialEq, Eq)]
#[reply(tag = "better")]
pub enum Better {
    /// The answer shown first.
    First,
    /// The answer shown second.
    Second,
    /// Neither.
    Neither,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_judge_names_one_of_the_two_or_neither() {
        let pair = Pair { question: "?".into(), first: "41".into(), second: "42".into() };
        let prompt = Judge.prompt(&pair).user;
        assert!(prompt.starts_with("Question: ?\nFirst: 41\nSecond: 42\nWhose answer is better?"));
        assert!(prompt.ends_with("holds one of: first, second, neither."), "{prompt}");
        assert_eq!(Judge.parse("<better>Second</better>").unwrap(), Better::Second);
        assert!(Judge.parse("<better>first second</better>").is_err());
    }
}
