//! Shapley values of the seats of a team, from branches in which some of the seats have other replies.
//!
//! ```text
//! v_k(S) = reward of the team where the seats of S have the random numbers of the episode, and all others those of number k
//! φ_i    = mean over k and over orders of the seats of v_k(seats before i, with i) − v_k(seats before i)
//! A      = φ of the seat + reward of the turn − reward of the team
//! ```
//!
//! [Shapley 1953](https://doi.org/10.1515/9781400881970-018); of teams of language models, SHARP,
//! [2602.08335](https://arxiv.org/abs/2602.08335).
//!
//! - The values of an episode add up to its reward less the mean reward of the plays in which every seat has other numbers.
//! - A seat that nothing depends on has the value 0.
//! - A number k counts if all of its coalitions were scored. An episode without such a number has `otherwise`.
//! - All turns of a seat have its value. Parts of the reward for the turn or its seat are not shared: they count whole.

use std::collections::BTreeMap;

use super::branched::{mean, unbranched};
use crate::algo::branch::{absent_seats, branched_seats, orders};
use crate::algo::{Sample, TaskKey};
use crate::credit::Unbranched;
use crate::plan::Plan;
use crate::trajectory::{Episode, RewardOf, Seat};

/// Rewards of the team by task, index of the played episode, number, and absent seats.
type CoalitionRewards<'e> = BTreeMap<(TaskKey, u32, u32, Vec<&'e Seat>), f64>;

/// Gives each sample the baseline that leaves the Shapley value of its seat: `reward − baseline = A`. There are `permutations`
/// random orders of more than four seats.
pub(super) fn shapley_baselines(
    plan: &Plan,
    (permutations, otherwise): (u32, Unbranched),
    episodes: &[Episode],
    samples: &mut [Sample],
) {
    let seats = branched_seats(plan);
    let values = coalition_values(episodes);
    let mut shares: BTreeMap<usize, Option<Vec<f64>>> = BTreeMap::new();
    let unbranched = unbranched(otherwise, samples);
    for (sample, unbranched) in samples.iter_mut().zip(unbranched) {
        let played = &episodes[sample.episode];
        let shares = shares.entry(sample.episode).or_insert_with(|| {
            let orders = orders(seats.len(), permutations, played.seed);
            let game = Game { task: &sample.task, played, seats: &seats, values: &values };
            game.shapley_values(&orders)
        });
        let seat = seats.iter().position(|seat| *seat == plan.seats[sample.seat].seat);
        let share = shares.as_ref().zip(seat).map(|(shares, seat)| shares[seat]);
        let own = sample.reward - team_reward(played).unwrap_or(sample.reward);
        sample.baseline = sample.reward - share.map_or(unbranched, |share| share + own);
    }
}

/// Returns the reward of the team: the score, and the parts for the whole episode. `None` if unscored.
fn team_reward(episode: &Episode) -> Option<f64> {
    let parts = episode.rewards.iter().filter(|part| part.of == RewardOf::Episode);
    Some(episode.score()?.reward + parts.map(|part| part.value).sum::<f64>())
}

/// Collects the values of the coalitions of a step from its branches.
fn coalition_values(episodes: &[Episode]) -> CoalitionRewards<'_> {
    let mut values = CoalitionRewards::new();
    for episode in episodes {
        let (Some(point), Some(reward)) = (&episode.branch, team_reward(episode)) else { continue };
        let mut absent: Vec<&Seat> = point.drawn.iter().map(|(seat, _)| seat).collect();
        absent.sort_unstable();
        values.insert((TaskKey::of(episode), point.of, point.alternative, absent), reward);
    }
    values
}

/// Game of the seats in one episode.
struct Game<'a> {
    task: &'a TaskKey,
    played: &'a Episode,
    seats: &'a [Seat],
    values: &'a CoalitionRewards<'a>,
}

impl Game<'_> {
    /// Returns the Shapley value of each seat, averaged over orders and numbers; `None` without a number whose coalitions all have
    /// values.
    fn shapley_values(&self, orders: &[Vec<usize>]) -> Option<Vec<f64>> {
        let keys = self.values.keys();
        let own = keys.filter(|(task, of, ..)| task == self.task && *of == self.played.index);
        let mut numbers: Vec<u32> = own.map(|(_, _, number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let complete = numbers.iter().filter_map(|&number| self.of_number(number, orders));
        let complete: Vec<Vec<f64>> = complete.collect();
        let of_seat = |seat: usize| complete.iter().map(move |shares| shares[seat]);
        let all = (0..self.seats.len()).map(|seat| of_seat(seat).collect::<Vec<f64>>());
        all.map(|shares| mean(&shares)).collect()
    }

    /// Returns the mean marginal contribution of each seat, where absent seats have a number; `None` if a coalition has no value.
    fn of_number(&self, number: u32, orders: &[Vec<usize>]) -> Option<Vec<f64>> {
        let mut shares = vec![0.0; self.seats.len()];
        for order in orders {
            let mut before = self.value(number, &absent_seats(order, 0))?;
            for (there, &seat) in order.iter().enumerate() {
                let with = self.value(number, &absent_seats(order, there + 1))?;
                shares[seat] += (with - before) / orders.len() as f64;
                before = with;
            }
        }
        Some(shares)
    }

    /// Returns the reward of the team without some of the seats. Without seats that have no turn it is that of the played episode.
    fn value(&self, number: u32, absent: &[usize]) -> Option<f64> {
        let is_asked = |seat: &Seat| self.played.turns.iter().any(|turn| turn.seat == *seat);
        if !absent.iter().any(|&seat| is_asked(&self.seats[seat])) {
            return team_reward(self.played);
        }
        let mut absent: Vec<&Seat> = absent.iter().map(|&seat| &self.seats[seat]).collect();
        absent.sort_unstable();
        let key = (self.task.clone(), self.played.index, number, absent);
        self.values.get(&key).copied()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::advantage::{EmaBaseline, baselines};
    use crate::algo::samples;
    use crate::algo::testing::{assert_close, episode, learning, numbers, plan, turn};
    use crate::config::{AdvantagePlan, ShapleyPlan};
    use crate::credit::CPU;
    use crate::trajectory::{BranchPoint, RewardPart, TurnPath};

    const NAMES: [&str; 3] = ["t/a", "t/b", "t/c"];

    fn seat(at: usize) -> Seat {
        Seat::only(NAMES[at])
    }

    fn turns() -> Vec<crate::trajectory::Turn> {
        (0..).zip(NAMES).map(|(at, name)| turn(name, at)).collect()
    }

    /// True if a coalition has a seat.
    fn is_there(coalition: usize, seat: usize) -> bool {
        (coalition >> seat) & 1 == 1
    }

    /// Returns the played episode of a game, and a branch for each coalition: `values[S]` with the seats of S as bits.
    fn episodes(values: &[f64; 8]) -> Vec<Episode> {
        let mut all = vec![episode("p", 0, values[7], turns())];
        for (there, value) in (0..7).zip(values) {
            let absent: Vec<usize> = (0..3).filter(|&at| !is_there(there, at)).collect();
            let drawn = absent.iter().map(|&at| (seat(at), 1)).collect();
            let at = TurnPath(vec![absent[0] as u32]);
            let point =
                BranchPoint { of: 0, at, alternative: 1, continuation: 0, after: None, drawn };
            let branch = episode("p", all.len() as u32, *value, turns());
            all.push(Episode { branch: Some(point), ..branch });
        }
        all
    }

    fn credit(otherwise: Unbranched, episodes: &[Episode]) -> Vec<f64> {
        let seats: Vec<(&str, bool)> = NAMES.iter().map(|&name| (name, true)).collect();
        let mut plan = plan(&seats);
        plan.algorithm.advantage =
            AdvantagePlan::Shapley(ShapleyPlan { otherwise, ..ShapleyPlan::default() });
        let mut rows = samples(episodes, &plan);
        baselines(&plan, episodes, &mut rows, &mut EmaBaseline::default(), &CPU);
        rows.iter().map(|row| row.reward - row.baseline).collect()
    }

    /// Values of the recorded game by coalition.
    fn recorded() -> ([f64; 8], Vec<f64>) {
        let case = learning("credit/shapley");
        let value = |there: usize| {
            let names = (0..3).filter(|&at| is_there(there, at)).map(|at| at.to_string());
            let name = names.collect::<Vec<_>>().join(",");
            case["inputs"]["values"][&name].as_f64().unwrap()
        };
        (std::array::from_fn(value), numbers(&case["outputs"]["exact"]))
    }

    #[test]
    fn the_shapley_values_are_the_recorded_ones_and_add_up() {
        let (values, exact) = recorded();
        let found = credit(Unbranched::Zero, &episodes(&values));
        assert_close("shapley", &found, &exact, 1e-12);
        assert_close("sum", &[found.iter().sum()], &[values[7] - values[0]], 1e-12);
    }

    #[test]
    fn the_values_of_some_orders_are_the_recorded_ones() {
        let case = learning("credit/shapley");
        let (values, _) = recorded();
        let episodes = episodes(&values);
        let coalitions = coalition_values(&episodes);
        let task = TaskKey::of(&episodes[0]);
        let seats: Vec<Seat> = (0..3).map(seat).collect();
        let game = Game { task: &task, played: &episodes[0], seats: &seats, values: &coalitions };
        let orders = case["inputs"]["permutations"].as_array().unwrap();
        let orders: Vec<Vec<usize>> = orders
            .iter()
            .map(|order| numbers(order).into_iter().map(|seat| seat as usize).collect())
            .collect();
        let found = game.shapley_values(&orders).unwrap();
        assert_close("sampled", &found, &numbers(&case["outputs"]["sampled"]), 1e-12);
    }

    #[test]
    fn parts_for_a_seat_count_whole_and_parts_for_the_episode_are_shared() {
        let (values, exact) = recorded();
        let mut episodes = episodes(&values);
        let part = |value, of| RewardPart { name: "x".to_owned(), value, of };
        for episode in &mut episodes {
            episode.rewards.push(part(0.5, RewardOf::Episode));
        }
        episodes[0].rewards.push(part(-0.25, RewardOf::Seat(seat(1))));
        let found = credit(Unbranched::Zero, &episodes);
        assert_close("credit", &found, &[exact[0], exact[1] - 0.25, exact[2]], 1e-12);
    }

    #[test]
    fn an_episode_without_a_complete_set_of_coalitions_has_no_shapley_values() {
        let (values, _) = recorded();
        let mut episodes = episodes(&values);
        episodes.remove(3);
        assert_eq!(credit(Unbranched::Zero, &episodes), [0.0; 3]);
        episodes.push(episode("p", 20, values[7] - 1.0, turns()));
        assert_eq!(credit(Unbranched::Group, &episodes), [0.5, 0.5, 0.5, -0.5, -0.5, -0.5]);
    }
}
