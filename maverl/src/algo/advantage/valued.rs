//! Advantages from the values of a critic.

use std::collections::BTreeMap;

use maverl_kernels::advantage::{GaeParams, GaeSteps, RaggedRows};

use crate::config::{Bootstrap, CriticPlan, Granularity};
use crate::credit::{Advantage, Rewarded};

/// Advantages and returns from values.
#[derive(Debug, Clone, PartialEq)]
pub struct Valued {
    /// Of each token of each sample. `[N][T]`
    pub advantages: Vec<Vec<f64>>,
    /// Target of each value. `[N][places]`
    pub returns: Vec<Vec<f64>>,
}

/// The advantages and returns of rows, from the values that critics predicted `[N][places]` before they were spoken.
///
/// ```text
/// bootstrap turn   a reply is a chain by itself, and earns its reward at its end              (PPO, IPPO, MAPPO)
/// bootstrap seat   the replies of a seat in an episode, one after the other
/// bootstrap team   those of every seat, in the order in which they were given                 (MARFT)
///
/// granularity token  a place is a token              granularity turn   a place is a reply
/// A, G: see [`gae_advantages`], with γ and λ from each place to the next
/// ```
///
/// Along a chain of several replies each is paid once: the score and what is for the episode at the end of the chain, what
/// is for a seat at the end of the seat's last reply, what is for a turn at the end of that turn.
///
/// # Panics
///
/// If there is not a list of values for each row.
pub fn valued_advantages(step: &Rewarded<'_>, critic: &CriticPlan) -> Valued {
    let values = step.values.expect("valued: values for each row");
    assert_eq!(values.len(), step.len(), "valued: values for each row");
    let hop = GaeParams::from(critic);
    let chains = chains(step, critic.bootstrap);
    let (mut rewards, mut predicted, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    for chain in &chains {
        for (place, &i) in chain.iter().enumerate() {
            let first = rewards.len();
            rewards.resize(first + values[i].len(), 0.0);
            if let Some(last) = rewards[first..].last_mut() {
                *last = match critic.bootstrap {
                    Bootstrap::Turn => step.earned[i],
                    _ => earned_reward(step, chain, place),
                };
            }
            predicted.extend_from_slice(&values[i]);
        }
        lengths.push(chain.iter().map(|&i| values[i].len()).collect::<Vec<usize>>());
    }
    let (places, after) = (RaggedRows::from_chains(&lengths), vec![0.0; chains.len()]);
    let (a, g) = step.gae(&rewards, &predicted, &after, &places, GaeSteps::all(hop));
    let mut advantages = vec![Vec::new(); step.len()];
    let mut returns = vec![Vec::new(); step.len()];
    let mut first = 0;
    for &i in chains.iter().flatten() {
        let places = first..first + values[i].len();
        first = places.end;
        let (a, g) = (a[places.clone()].to_vec(), g[places].to_vec());
        advantages[i] = match critic.granularity {
            Granularity::Token => a,
            Granularity::Turn => vec![a.first().copied().unwrap_or(0.0); step.lengths[i]],
        };
        returns[i] = g;
    }
    Valued { advantages, returns }
}

impl Advantage for CriticPlan {
    fn estimate(&self, step: &Rewarded<'_>, out: &mut [f64]) {
        out.copy_from_slice(&valued_advantages(step, self).advantages.concat());
    }

    fn by_token(&self) -> bool {
        true
    }
}

/// Rows that follow each other, in the order in which they were given.
fn chains(step: &Rewarded<'_>, chain: Bootstrap) -> Vec<Vec<usize>> {
    let mut chains: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for i in 0..step.len() {
        let key = match chain {
            Bootstrap::Turn => (i, 0),
            Bootstrap::Seat => (step.episodes[i], step.seats[i]),
            Bootstrap::Team => (step.episodes[i], 0),
        };
        chains.entry(key).or_default().push(i);
    }
    chains.into_values().collect()
}

/// Returns the own reward of the reply at a place of a chain.
fn earned_reward(step: &Rewarded<'_>, chain: &[usize], place: usize) -> f64 {
    let row = chain[place];
    let for_turn = step.turn_parts[step.episodes[row]][step.turns[row]];
    let (for_seat, whole) = (step.seat_parts[row], step.recorded[row]);
    let later = &chain[place + 1..];
    let seat_goes_on = later.iter().any(|&later| step.seats[later] == step.seats[row]);
    // Whatever was done to the row's reward beside the episode's parts is the turn's own.
    (step.earned[row] - whole)
        + for_turn
        + if seat_goes_on { 0.0 } else { for_seat }
        + if later.is_empty() { whole - for_turn - for_seat } else { 0.0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::advantage::declared::rewarded_step;
    use crate::algo::testing::{assert_close, episode, plan, turn};
    use crate::algo::{Sample, samples};
    use crate::credit::GroupBy;
    use crate::trajectory::{Episode, RewardOf, RewardPart};

    fn critic(
        bootstrap: Bootstrap,
        granularity: Granularity,
        gamma: f64,
        lambda: f64,
    ) -> CriticPlan {
        CriticPlan { bootstrap, granularity, gamma, lambda, ..CriticPlan::default() }
    }

    fn valued(
        episodes: &[Episode],
        samples: &[Sample],
        values: &[Vec<f64>],
        critic: &CriticPlan,
    ) -> Valued {
        let step = rewarded_step(episodes, samples, Some(values), GroupBy::TaskSeat);
        let valued = super::valued_advantages(&step.view(), critic);
        assert_eq!(step.estimate(critic), valued.advantages.concat());
        valued
    }

    fn part(value: f64, of: RewardOf) -> RewardPart {
        RewardPart { name: "part".to_owned(), value, of }
    }

    /// Two agents, the first of whom speaks twice.
    fn played() -> (Vec<Episode>, Vec<Sample>) {
        let turns = vec![turn("t/a", 0), turn("t/b", 1), turn("t/a", 2)];
        let mut episode = episode("p", 0, 1.0, turns);
        episode.rewards = vec![
            part(0.5, RewardOf::Turn(1)),
            part(0.25, RewardOf::Seat(episode.turns[0].seat.clone())),
            part(-0.125, RewardOf::Episode),
        ];
        let episodes = vec![episode];
        let samples = samples(&episodes, &plan(&[("t/a", true), ("t/b", true)]));
        (episodes, samples)
    }

    #[test]
    fn token_values_of_two_agents_agree_with_the_reference() {
        // marl.md 8.3
        let episodes = [episode("p", 0, 1.0, vec![turn("t/a", 0), turn("t/b", 1)])];
        let samples = samples(&episodes, &plan(&[("t/a", true), ("t/b", true)]));
        let values = [vec![0.1, 0.2], vec![0.3, 0.4]];
        let of = |gamma, lambda| {
            let critic = critic(Bootstrap::Team, Granularity::Token, gamma, lambda);
            valued(&episodes, &samples, &values, &critic).advantages.concat()
        };
        let want = [0.77329, 0.718012, 0.6603, 0.6];
        assert_close("marl.md 8.3, tokens", &of(0.99, 0.95), &want, 1e-6);
        assert_close("marl.md 8.3, undiscounted", &of(1.0, 1.0), &[0.9, 0.8, 0.7, 0.6], 1e-12);
    }

    #[test]
    fn turn_values_give_every_token_the_advantage_of_its_reply() {
        let episodes = [episode("p", 0, 1.0, vec![turn("t/a", 0), turn("t/b", 1)])];
        let samples = samples(&episodes, &plan(&[("t/a", true), ("t/b", true)]));
        let critic = critic(Bootstrap::Team, Granularity::Turn, 1.0, 0.0);
        let got = valued(&episodes, &samples, &[vec![0.25], vec![0.5]], &critic);
        assert_eq!(got.advantages, [[0.25, 0.25], [0.5, 0.5]]);
        assert_eq!(got.returns, [[0.5], [1.0]]);
    }

    #[test]
    fn a_chain_pays_everything_once_and_a_turn_by_itself_all_of_it() {
        let (episodes, samples) = played();
        let values = vec![vec![0.0, 0.0]; 3];
        let returns = |chain| {
            let critic = critic(chain, Granularity::Token, 1.0, 1.0);
            let got = valued(&episodes, &samples, &values, &critic);
            got.returns.iter().map(|returns| returns[0]).collect::<Vec<_>>()
        };
        // The score less the episode's part is 0.875, the turn's 0.5, the seat's 0.25.
        assert_close("turn", &returns(Bootstrap::Turn), &[1.125, 1.375, 1.125], 1e-12);
        assert_close("seat", &returns(Bootstrap::Seat), &[1.125, 1.375, 1.125], 1e-12);
        assert_close("team", &returns(Bootstrap::Team), &[1.625, 1.625, 1.125], 1e-12);
    }

    #[test]
    fn without_discount_advantages_along_a_chain_sum_up_to_the_return_less_the_first_value() {
        // With λ = 0 an advantage is one difference, and the differences telescope.
        let (episodes, samples) = played();
        let values = [vec![0.3, -0.2], vec![0.7, 0.1], vec![0.4, 0.9]];
        let critic = critic(Bootstrap::Team, Granularity::Token, 1.0, 0.0);
        let got = valued(&episodes, &samples, &values, &critic);
        let sum: f64 = got.advantages.concat().iter().sum();
        assert!((sum - (1.625 - 0.3)).abs() < 1e-12, "{sum}");
    }
}
