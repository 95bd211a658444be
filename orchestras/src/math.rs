//! Teams that solve a problem and check the solution.

use std::num::NonZeroU32;

use agents::math::{Solver, Submission, Verifier};
use agents::search::Inquiry;
use agents::{Review, Solution};
use maverl::prelude::*;

/// The solver and the verifier alternate until the verifier approves.
#[orchestra(name = "math/refine", agents(Solver, Verifier))]
#[derive(Settings)]
pub struct Refine {
    /// Maximum number of solutions of an episode; the last one is not verified.
    #[setting(default = 2)]
    pub max_rounds: NonZeroU32,
    /// Reward of the verifier for a correct verdict, and its penalty for a wrong one.
    pub verdict_reward: f64,
}

impl Orchestra for Refine {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut inquiry = Inquiry { question: task.question.clone(), information: Vec::new() };
        let mut solution = team.ask::<Solver>(&inquiry).await?;
        for _ in 1..self.max_rounds.get() {
            let (question, text) = (task.question.clone(), solution.text.clone());
            let review = team.ask::<Verifier>(&Submission { question, solution: text }).await?;
            self.reward(team, &solution, &review).await?;
            if review.approves {
                break;
            }
            inquiry.information = vec![solution.text, review.text];
            solution = team.ask::<Solver>(&inquiry).await?;
        }
        Ok(Some(solution.answer))
    }
}

impl Refine {
    /// Rewards the verifier for the correctness of its verdict.
    async fn reward(
        &self,
        team: &Team<Self>,
        solution: &Solution,
        review: &Review,
    ) -> Result<(), AskError> {
        if self.verdict_reward == 0.0 {
            return Ok(());
        }
        let holds = team.judge(&solution.answer).await?.solved == review.approves;
        let value = if holds { self.verdict_reward } else { -self.verdict_reward };
        team.only::<Verifier>().add_reward("verdict", value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{answer, paid, play, seats};

    fn verdict(yes: bool) -> String {
        format!("<verify>{}</verify>", if yes { "yes" } else { "no" })
    }

    #[test]
    fn an_approved_solution_is_the_answer() {
        let episode = play(Refine::default(), |seat, _| match seat {
            "math/solver" => answer("42"),
            _ => verdict(true),
        });
        assert_eq!(seats(&episode), ["math/solver", "math/verifier"]);
        assert_eq!(episode.answer.as_deref(), Some("42"));
    }

    #[test]
    fn the_last_solution_is_not_verified() {
        let rounds = NonZeroU32::new(3).unwrap();
        let episode =
            play(Refine { max_rounds: rounds, ..Refine::default() }, |seat, shown| {
                match (seat, shown.contains("<verify>no</verify>")) {
                    ("math/solver", false) => answer("41"),
                    ("math/solver", true) => answer("43"),
                    _ => verdict(false),
                }
            });
        let [s, v] = ["math/solver", "math/verifier"];
        assert_eq!(seats(&episode), [s, v, s, v, s]);
        assert_eq!(episode.answer.as_deref(), Some("43"));
    }

    #[test]
    fn who_approves_of_everything_earns_nothing_by_it() {
        let refine = || Refine { verdict_reward: 0.5, ..Refine::default() };
        let said = |number: &'static str, yes| {
            play(refine(), move |seat, _| match seat {
                "math/solver" => answer(number),
                _ => verdict(yes),
            })
        };
        let earned = |number, yes| paid(&said(number, yes), "verdict");
        let verifier = |value| vec![("math/verifier".to_owned(), value)];
        assert_eq!(earned("42", true), verifier(0.5));
        assert_eq!(earned("41", true), verifier(-0.5));
        assert_eq!(earned("42", false), verifier(-0.5));
        assert_eq!(earned("41", false), verifier(0.5));
    }
}
