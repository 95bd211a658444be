//! Teams in which a manager decides who replies next.

use agents::manager::{Critic, Manager, Next, Solver};
use agents::search::Inquiry;
use maverl::prelude::*;

/// Calls the solver or the critic as the manager decides, until it stops; the solver's last answer is final.
#[orchestra(name = "manager/delegate", agents(Manager, Solver, Critic))]
#[derive(Settings)]
pub struct Delegate {
    /// Maximum number of calls of an episode.
    #[setting(default = 4)]
    pub max_calls: u32,
    /// Cost of each call for the manager.
    pub call_cost: f64,
}

impl Orchestra for Delegate {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut inquiry = Inquiry { question: task.question.clone(), information: Vec::new() };
        let mut answer = None;
        for _ in 0..self.max_calls {
            let next = team.ask::<Manager>(&inquiry).await?;
            let said = match next {
                Next::Stop => break,
                Next::Solver => {
                    let solution = team.ask::<Solver>(&inquiry).await?;
                    answer = Some(solution.answer);
                    solution.text
                }
                Next::Critic => team.ask::<Critic>(&inquiry).await?,
            };
            team.only::<Manager>().add_reward("call_cost", -self.call_cost);
            inquiry.information.push(said);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{answer, paid, play, seats};

    #[test]
    fn the_manager_says_who_speaks_and_pays_for_it() {
        let delegate = Delegate { call_cost: 0.25, ..Delegate::default() };
        let episode = play(delegate, |seat, shown| match (seat, shown.contains("really")) {
            ("manager/manager", true) if shown.contains("42") => "<next>stop</next>".to_owned(),
            ("manager/manager", false) if shown.contains("41") => "<next>critic</next>".to_owned(),
            ("manager/manager", _) => "<next>solver</next>".to_owned(),
            ("manager/critic", _) => "really?".to_owned(),
            (_, criticized) => answer(if criticized { "42" } else { "41" }),
        });
        let spoke: Vec<String> =
            seats(&episode).into_iter().filter(|s| s != "manager/manager").collect();
        assert_eq!(spoke, ["manager/solver", "manager/critic", "manager/solver"]);
        assert_eq!(episode.answer.as_deref(), Some("42"));
        assert_eq!(paid(&episode, "call_cost"), vec![("manager/manager".to_owned(), -0.25); 3]);
    }

    #[test]
    fn to_stop_at_once_is_free_and_no_answer() {
        let delegate = Delegate { call_cost: 0.25, ..Delegate::default() };
        let episode = play(delegate, |_, _| "<next>stop</next>".to_owned());
        assert_eq!((episode.turns.len(), episode.answer), (1, None));
        assert!(episode.rewards.is_empty());
    }

    #[test]
    fn a_team_ends_as_soon_as_its_manager_stops() {
        let turns = |patience: usize| {
            let episode = play(Delegate::default(), move |seat, shown| match seat {
                "manager/manager" if shown.matches("42").count() >= patience => {
                    "<next>stop</next>".to_owned()
                }
                "manager/manager" => "<next>solver</next>".to_owned(),
                _ => answer("42"),
            });
            assert_eq!(episode.answer.as_deref(), Some("42"));
            episode.turns.len()
        };
        assert_eq!((turns(1), turns(2)), (3, 5), "a manager and a solver for each call");
        assert_eq!(turns(usize::MAX), 8, "the most calls");
    }

    #[test]
    fn calls_are_bounded() {
        let episode = play(Delegate::default(), |seat, _| match seat {
            "manager/manager" => "<next>critic</next>".to_owned(),
            _ => "bad".to_owned(),
        });
        assert_eq!(episode.turns.len(), 8);
    }
}
