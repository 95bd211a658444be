//! Teams of one.

use std::num::NonZeroU32;

use agents::solo::{Actor, Exchange, Scene, Solver, Step};
use maverl::prelude::*;

/// Asks the agent once.
#[orchestra(name = "solo/answer", agents(Solver))]
pub async fn single(task: &Task, team: &Team<Single>) -> Result<Option<String>, AskError> {
    Ok(Some(team.ask::<Solver>(&Exchange::from(task)).await?.answer))
}

/// Acts in the environment, in one conversation, until it answers.
#[orchestra(name = "solo/act", agents(Actor), needs("any"))]
#[derive(Settings)]
pub struct Act {
    /// Maximum number of turns of an episode. If they are used up, or the environment accepts no further action, the
    /// last action is the answer.
    #[setting(default = 4)]
    pub max_turns: NonZeroU32,
}

impl Orchestra for Act {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut chat = team.chat::<Actor>();
        let mut scene = Scene { question: task.question.clone(), seen: None };
        let mut last = None;
        for _ in 0..self.max_turns.get() {
            match chat.respond(&scene).await? {
                Step::Answer(answer) => return Ok(Some(answer)),
                Step::Act(act) => {
                    let shown = team.act(Action::Text(act.clone())).await?;
                    last = Some(act);
                    if shown.done {
                        break;
                    }
                    scene.seen = Some(shown.text);
                }
            }
        }
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{answer, play};

    #[test]
    fn one_ask_is_one_turn() {
        let episode = play(Single, |_, _| answer("42"));
        assert_eq!((episode.turns.len(), episode.score().unwrap().reward), (1, 1.0));
        let episode = play(Single, |_, _| "42".to_owned());
        assert_eq!((episode.answer.as_deref(), episode.score().unwrap().reward), (None, 0.0));
    }

    #[test]
    fn a_conversation_goes_on_until_the_answer() {
        let episode = play(Act::default(), |_, shown| {
            if shown.starts_with("Question") { "<act>41</act>".to_owned() } else { answer("42") }
        });
        assert_eq!((episode.turns.len(), episode.answer.as_deref()), (2, Some("42")));
        assert_eq!(episode.turns[1].prompt.len(), 3, "the question, the act, what was seen");
    }

    #[test]
    fn what_was_done_last_is_the_answer_once_nothing_more_can_be() {
        // The math environment accepts two attempts.
        let episode = play(Act::default(), |_, _| "<act>42</act>".to_owned());
        assert_eq!((episode.turns.len(), episode.answer.as_deref()), (2, Some("42")));
        let once = Act { max_turns: NonZeroU32::MIN };
        let episode = play(once, |_, _| "<act>42</act>".to_owned());
        assert_eq!((episode.turns.len(), episode.answer.as_deref()), (1, Some("42")));
    }
}
