//! Agents that play against each other, and their judge.

use maverl::prelude::*;

use crate::reply::Solution;
use crate::search::Inquiry;

/// Answers, and answers again with what its opponent said.
#[agent(
    name = "self_play/player",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/self_play/player.md"
)]
pub struct Player;

/// Two answers to a question.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Pair {
    /// What is asked.
    pub question: String,
    /// What one replied.
    #[input(observation)]
    pub first: String,
    /// What the other replied.
    #[input(observation)]
    pub second: String,
}

/// Says whose answer is better, without knowing whose it is.
#[agent(
    name = "self_play/judge",
    input = Pair,
    output = Better,
    prompt = "../prompts/self_play/judge.md"
)]
pub struct Judge;

/// Whose answer is better.
#[derive(Reply, Debug, Clone, Copy, PartialEq, Eq)]
#[reply(tag = "better")]
pub enum Better {
    /// The one shown first.
    First,
    /// The one shown second.
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
