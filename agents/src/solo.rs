//! Agents that work alone.

use maverl::prelude::*;

use crate::reply::{Either, Solution, either};
use crate::search::Inquiry;

/// Answers directly.
#[agent(
    name = "solo/solver",
    input = Inquiry,
    output = Solution,
    prompt = "../prompts/solo/solver.md"
)]
pub struct Solver;

/// Input of an actor.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Scene {
    /// Question.
    pub question: String,
    /// Observation of its last action; `None` before the first.
    #[input(observation)]
    pub seen: Option<String>,
}

/// Acts in the environment until it answers.
#[agent(name = "solo/actor")]
pub struct Actor;

impl Agent for Actor {
    type Input = Scene;
    type Output = Step;

    /// The question first; then, in the same conversation, the observations.
    fn prompt(&self, scene: &Scene) -> Prompt {
        let format = Step::format();
        match &scene.seen {
            None => {
                Prompt::user(format!("Question: {}\nWhat is to be done? {format}", scene.question))
            }
            Some(seen) => {
                let mut prompt = Prompt::default();
                prompt.push_observation(seen);
                prompt.push(&format!("\nWhat is to be done? {format}"));
                prompt
            }
        }
    }
}

/// Next step of an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Acts.
    Act(String),
    /// Answers, which ends the episode.
    Answer(String),
}

impl Reply for Step {
    const STRUCTURED: bool = true;

    fn format() -> String {
        "Reply <act>words</act> to act, or <answer>words</answer> to answer.".to_owned()
    }

    fn parse(reply: &str) -> Result<Self, ReplyError> {
        Ok(match either(reply, "act", "answer")? {
            Either::First(act) => Self::Act(act.to_owned()),
            Either::Second(answer) => Self::Answer(answer.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_was_seen_follows_without_the_question() {
        let mut scene = Scene { question: "Who?".to_owned(), seen: None };
        assert!(Actor.prompt(&scene).user.starts_with("Question: Who?\n"));
        scene.seen = Some("nobody".to_owned());
        let prompt = Actor.prompt(&scene);
        assert!(prompt.user.starts_with("nobody\nWhat is to be done?"), "{}", prompt.user);
        assert_eq!(&prompt.user[prompt.observations[0].clone()], "nobody");
    }

    #[test]
    fn a_step_is_an_act_or_an_answer_and_not_both() {
        assert_eq!(Step::parse("<act>look</act>").unwrap(), Step::Act("look".to_owned()));
        assert_eq!(Step::parse("<answer>4</answer>").unwrap(), Step::Answer("4".to_owned()));
        let wrong =
            ["look", "<act>look</act><answer>4</answer>", "<act>look", "<act>a</act><act>b</act>"];
        for reply in wrong {
            assert!(Step::parse(reply).is_err(), "{reply}");
        }
    }
}
