//! Teams in which a question is passed on.

use agents::chain::{Actor, Reasoner};
use agents::search::Inquiry;
use maverl::prelude::*;

/// Reasoners reply in turn, each after reading those before it; then the actor answers.
#[orchestra(name = "chain/relay", agents(Reasoner[reasoners], Actor))]
#[derive(Settings)]
pub struct Relay {
    /// Number of reasoners before the actor.
    #[setting(default = 1)]
    pub reasoners: u32,
}

impl Orchestra for Relay {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut inquiry = Inquiry { question: task.question.clone(), information: Vec::new() };
        for i in 0..self.reasoners as usize {
            let said = team.seat::<Reasoner>(i).ask(&inquiry).await?;
            inquiry.information.push(said);
        }
        Ok(Some(team.ask::<Actor>(&inquiry).await?.answer))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{answer, play, seats};

    #[test]
    fn each_sees_what_those_before_it_said() {
        let episode = play(Relay { reasoners: 2 }, |seat, shown| match seat {
            "chain/reasoner#0" => "six sevens".to_owned(),
            "chain/reasoner#1" => format!("{} heard", shown.matches("six sevens").count()),
            _ if shown.contains("six sevens\n1 heard") => answer("42"),
            _ => answer("nothing was heard"),
        });
        assert_eq!(seats(&episode), ["chain/reasoner#0", "chain/reasoner#1", "chain/actor"]);
        assert_eq!(episode.answer.as_deref(), Some("42"));
    }

    #[test]
    fn without_reasoners_the_actor_is_alone() {
        assert_eq!(play(Relay { reasoners: 0 }, |_, _| answer("42")).turns.len(), 1);
    }
}
