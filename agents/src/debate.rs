//! Agents that debate a question, and a judge.

use maverl::prelude::*;

use crate::reply::{Either, Solution, either};

/// A question under debate.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Motion {
    /// Question.
    pub question: String,
    /// Statements so far, each after its speaker.
    #[input(observation)]
    pub heard: Vec<String>,
    /// Instruction for the debater.
    pub task: String,
}

/// Answers, and argues with the others about it.
#[agent(Motion -> Solution, name = "debate/debater")]
pub struct Debater;

/// Input of a judge.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Hearing {
    /// Question.
    pub question: String,
    /// Last statement of each debater.
    #[input(observation)]
    pub heard: Vec<String>,
}

/// Ends the debate with an answer, or states the open point.
#[agent(Hearing -> Ruling, name = "debate/judge")]
pub struct Judge;

/// Ruling of a judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// Final answer.
    Answer(String),
    /// The point to discuss next.
    Discuss(String),
}

impl Reply for Ruling {
    const STRUCTURED: bool = true;

    fn format() -> String {
        "Reply <answer>words</answer>, or <discuss>words</discuss>.".to_owned()
    }

    fn parse(reply: &str) -> Result<Self, ReplyError> {
        Ok(match either(reply, "answer", "discuss")? {
            Either::First(answer) => Self::Answer(answer.to_owned()),
            Either::Second(about) => Self::Discuss(about.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_debater_is_shown_what_was_heard_and_what_it_is_to_do() {
        let motion = Motion {
            question: "6 times 7?".to_owned(),
            heard: vec!["You: 41".to_owned(), "Debater 2: 42".to_owned()],
            task: "What is the answer?".to_owned(),
        };
        let prompt = Debater.prompt(&motion);
        let expected = "Question: 6 times 7?\nYou: 41\nDebater 2: 42\nWhat is the answer? Reply \
                        <answer>words</answer>.";
        assert_eq!(prompt.user, expected);
        assert_eq!(&prompt.user[prompt.observations[0].clone()], "You: 41\nDebater 2: 42");
    }

    #[test]
    fn a_ruling_is_an_answer_or_a_matter_to_discuss() {
        let discuss = Ruling::Discuss("why 4".to_owned());
        assert_eq!(Ruling::parse("<discuss>why 4</discuss>").unwrap(), discuss);
        assert_eq!(Ruling::parse("<answer>4</answer>").unwrap(), Ruling::Answer("4".to_owned()));
        for reply in ["4", "<answer>4</answer><discuss>why</discuss>", "<answer>4<answer>"] {
            assert!(Ruling::parse(reply).is_err(), "{reply}");
        }
    }
}
