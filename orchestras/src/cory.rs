//! A pioneer answers, an observer answers after it, and both receive the sum of their rewards.

use agents::cory::{Observer, Pioneer, Proposal};
use agents::search::Inquiry;
use maverl::prelude::*;

/// A pioneer answers; an observer answers after reading that; each receives the sum of both rewards.
#[orchestra(name = "cory/pair", agents(Pioneer, Observer))]
#[derive(Settings)]
pub struct Pair {
    /// Searches for the question before they answer; for environments with a search action.
    pub looks_up: bool,
}

impl Orchestra for Pair {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut inquiry = Inquiry { question: task.question.clone(), information: Vec::new() };
        if self.looks_up {
            let found = team.act(Action::Text(task.question.clone())).await?;
            inquiry.information.push(found.text);
        }
        let first = AskError::or_none(team.ask::<Pioneer>(&inquiry).await)?;
        if let Some(Answer(answer)) = &first {
            let earned = team.judge(answer).await?.reward;
            team.only::<Pioneer>().add_seat_reward("pioneer", earned);
            team.only::<Observer>().add_seat_reward("pioneer", earned);
        }
        let proposal = first.map_or_else(|| "unknown".to_owned(), |Answer(answer)| answer);
        let Inquiry { question, information } = inquiry;
        let seen = Proposal { question, information, proposal };
        let Answer(answer) = team.ask::<Observer>(&seen).await?;
        Ok(Some(answer))
    }

    fn acts(&self) -> bool {
        self.looks_up
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{answer, paid, play};

    fn said(pioneer: &'static str, observer: &'static str) -> Episode {
        play(Pair::default(), move |seat, shown| match seat {
            "cory/pioneer" => pioneer.to_owned(),
            _ if shown.contains("Proposed: 42") => answer("42"),
            _ => observer.to_owned(),
        })
    }

    #[test]
    fn both_earn_what_both_earned() {
        let episode = said("<answer>42</answer>", "");
        assert_eq!(episode.answer.as_deref(), Some("42"));
        let all = |seat: &str| (format!("all of {seat}"), 1.0);
        assert_eq!(paid(&episode, "pioneer"), [all("cory/observer"), all("cory/pioneer")]);
        assert_eq!([0, 1].map(|turn| episode.turn_reward(turn)), [Some(2.0), Some(2.0)]);
    }

    #[test]
    fn a_pioneer_who_is_wrong_or_not_understood_leaves_it_to_the_observer() {
        for pioneer in ["<answer>41</answer>", "41"] {
            let episode = said(pioneer, "<answer>42</answer>");
            assert!(paid(&episode, "pioneer").is_empty());
            assert_eq!(episode.turns.len(), 2);
            assert_eq!(episode.turn_reward(1), Some(1.0));
        }
        assert!(said("41", "").turns[1].prompt[0].content.contains("Proposed: unknown"));
    }
}
