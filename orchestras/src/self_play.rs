//! Teams of two agents that play against each other.

use std::num::NonZeroU32;

use agents::Solution;
use agents::search::Inquiry;
use agents::self_play::{Better, Judge, Pair, Player};
use futures::future::join;
use maverl::prelude::*;

/// Zero-sum answering: one player's gain is the other's loss. The first player's answer is the team's.
///
/// In each round both players reply concurrently, given the other's reply of the round before.
#[orchestra(name = "self_play/match", agents(Player[2], Judge[judges]))]
#[derive(Settings)]
pub struct Match {
    /// Number of rounds.
    #[setting(default = 2)]
    pub rounds: NonZeroU32,
    /// 0: the environment scores both answers. 1: the judge compares them, in both orders.
    pub judges: u8,
}

impl Orchestra for Match {
    async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let mut seen: [Vec<String>; 2] = Default::default();
        let mut last = None;
        for _ in 0..self.rounds.get() {
            let [first, second] = [0, 1].map(|i| {
                let (question, information) = (task.question.clone(), std::mem::take(&mut seen[i]));
                team.seat::<Player>(i).ask(&Inquiry { question, information })
            });
            let (first, second) = join(first, second).await;
            let (first, second) = (first?, second?);
            seen = [vec![second.text.clone()], vec![first.text.clone()]];
            last = Some([first, second]);
        }
        let Some(answers) = last else { return Ok(None) };
        let scores = [team.judge(&answers[0].answer).await?, team.judge(&answers[1].answer).await?];
        let lead = match self.judges {
            0 => scores[0].reward - scores[1].reward,
            _ => compare(task, team, &answers).await?,
        };
        // The score of the first player's answer applies to all seats; these reward parts replace it.
        for (i, lead) in [lead, -lead].into_iter().enumerate() {
            team.seat::<Player>(i).add_seat_reward("lead", lead - scores[0].reward);
        }
        let [first, _] = answers;
        Ok(Some(first.answer))
    }
}

fn pair(task: &Task, first: &Solution, second: &Solution) -> Pair {
    let question = task.question.clone();
    Pair { question, first: first.text.clone(), second: second.text.clone() }
}

/// Returns the judge's preference: 1 for the first, -1 for the second, 0 for neither or if it depends on the order.
async fn compare(task: &Task, team: &Team<Match>, [a, b]: &[Solution; 2]) -> Result<f64, AskError> {
    let judge = team.seat::<Judge>(0);
    let (ahead, behind) = join(judge.ask(&pair(task, a, b)), judge.ask(&pair(task, b, a))).await;
    let (ahead, behind) = (ahead?, behind?);
    let flipped = matches!(
        (ahead, behind),
        (Better::First, Better::First) | (Better::Second, Better::Second)
    );
    team.log_metric("judge_order_flip", f64::from(flipped));
    Ok(match (ahead, behind) {
        (Better::First, Better::Second) => 1.0,
        (Better::Second, Better::First) => -1.0,
        _ => 0.0,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{answer, noted, play};

    /// Rewards of both players for their last turns.
    fn rewards(episode: &Episode) -> [f64; 2] {
        [0, 1].map(|i| {
            let seat = Seat::at("self_play/player", i);
            let turn = episode.turns.iter().position(|turn| turn.seat == seat).unwrap();
            episode.turn_reward(turn).unwrap()
        })
    }

    #[test]
    fn what_one_wins_the_other_loses() {
        for (said, expected) in
            [(["42", "41"], [1.0, -1.0]), (["41", "42"], [-1.0, 1.0]), (["42", "42"], [0.0, 0.0])]
        {
            let episode = play(Match::default(), move |seat, _| {
                answer(if seat.ends_with("#0") { said[0] } else { said[1] })
            });
            assert_eq!((rewards(&episode), episode.turns.len()), (expected, 4), "{said:?}");
        }
    }

    /// Plays a match of 41 against 42 before a judge.
    fn judged(verdict: impl Fn(&str) -> &'static str + Send + Sync + 'static) -> Episode {
        play(Match { judges: 1, ..Match::default() }, move |seat, shown| match seat {
            "self_play/judge#0" => format!("<better>{}</better>", verdict(shown)),
            "self_play/player#0" => answer("41"),
            _ => answer("42"),
        })
    }

    #[test]
    fn a_judge_is_asked_in_both_orders_and_believed_if_the_order_is_nothing_to_it() {
        let true_judge =
            |shown: &str| if shown.contains("First: <answer>42") { "first" } else { "second" };
        let episode = judged(true_judge);
        assert_eq!(
            (rewards(&episode), noted(&episode, "judge_order_flip")),
            ([-1.0, 1.0], Some(0.0))
        );
        for biased in ["first", "second"] {
            let episode = judged(move |_| biased);
            let flip = noted(&episode, "judge_order_flip");
            assert_eq!((rewards(&episode), flip), ([0.0, 0.0], Some(1.0)), "{biased}");
        }
    }
}
