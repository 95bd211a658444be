//! Agents that work alone.

use maverl::prelude::*;
use maverl::trajectory::{Message, Role};

use crate::reply::{Either, Solution, either};

/// A question, with the messages that its data set has before it.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Exchange {
    /// Question.
    pub question: String,
    /// System message; empty for none.
    pub system: String,
    /// Messages between the system message and the question.
    pub history: Vec<Message>,
}

impl From<&Task> for Exchange {
    fn from(task: &Task) -> Self {
        let (question, system) = (task.question.clone(), task.system().to_owned());
        Self { question, system, history: task.history() }
    }
}

/// Answers directly, in the conversation that the task begins.
#[agent(name = "solo/solver")]
pub struct Solver;

impl Agent for Solver {
    type Input = Exchange;
    type Output = Solution;

    /// The system message and the history are messages of their own.
    fn prompt(&self, exchange: &Exchange) -> Prompt {
        let Exchange { question, system, history } = exchange;
        let format = Solution::format();
        let user = format!("Question: {question}\n(none)\nWhat is the answer? {format}");
        let system = Some(system.clone()).filter(|system| !system.is_empty());
        if history.is_empty() {
            return Prompt { system, ..Prompt::user(user) };
        }
        let system = system.map(|content| Message { role: Role::System, content });
        let before = system.into_iter().chain(history.iter().cloned());
        Prompt::messages(before.chain([Message { role: Role::User, content: user }]))
    }
}

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
    fn messages_before_a_question_are_messages_of_the_prompt() {
        let mut exchange = Exchange {
            question: "Add one.".to_owned(),
            system: String::new(),
            history: Vec::new(),
        };
        let alone = Solver.prompt(&exchange);
        let user = "Question: Add one.\n(none)\nWhat is the answer? Reply <answer>words</answer>.";
        assert_eq!(alone, Prompt::user(user));
        exchange.system = "Use \\boxed{}.".to_owned();
        assert_eq!(Solver.prompt(&exchange), alone.with_system("Use \\boxed{}."));
        let message = |role, text: &str| Message { role, content: text.to_owned() };
        exchange.history =
            vec![message(Role::User, "My number is 7."), message(Role::Assistant, "ok")];
        let found = Solver.prompt(&exchange).messages;
        let roles: Vec<Role> = found.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::User]);
        assert_eq!(
            (found[1].content.as_str(), found[3].content.as_str()),
            ("My number is 7.", user)
        );
    }

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
