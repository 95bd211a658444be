//! Prices of what an episode used, as a part of its reward.

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{ScoredRewards, Scorer};
use crate::config::{RewardUsageConfig, UsageAfter};
use crate::reward::Rewards;
use crate::trajectory::{Episode, Seat};

/// A part of the reward that takes the price of an episode off.
///
/// ```text
/// r = −(token · sampled tokens + turn · turns + call · actions)      of an episode that solved its task, or of every one
/// ```
pub(crate) struct UsageReward(RewardUsageConfig);

impl UsageReward {
    /// Creates a part with prices.
    pub(crate) fn new(prices: RewardUsageConfig) -> Self {
        Self(prices)
    }

    /// Returns the value of an episode.
    fn value(&self, episode: &Episode) -> f64 {
        let RewardUsageConfig { token, turn, call, after, .. } = &self.0;
        let solved = episode.score().is_some_and(|score| score.solved);
        if *after == UsageAfter::Solved && !solved {
            return 0.0;
        }
        let turns = episode.turns.iter().filter(|turn| self.has_price(&turn.seat));
        let tokens = turns.clone().filter_map(|turn| turn.tokens.as_ref());
        let tokens: usize = tokens.map(|tokens| tokens.completion.len()).sum();
        let counts = [tokens, turns.count(), episode.acts.len()];
        let prices = [token, turn, call];
        -prices.iter().zip(counts).map(|(price, count)| *price * count as f64).sum::<f64>()
    }

    /// Returns true if turns of a seat have a price.
    fn has_price(&self, seat: &Seat) -> bool {
        let named = |name: &String| *name == seat.agent || *name == seat.to_string();
        self.0.seats.is_empty() || self.0.seats.iter().any(named)
    }
}

impl Scorer for UsageReward {
    fn score<'a>(&'a self, episode: &'a Episode) -> BoxFuture<'a, Result<ScoredRewards, String>> {
        let rewards = Rewards::episode(self.value(episode));
        futures::future::ready(Ok(ScoredRewards { rewards, ..ScoredRewards::default() })).boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{assert_close, episode, learning, numbers, turn};
    use crate::task::Action;
    use crate::trajectory::{Act, TurnPath};

    /// An episode of turns of `t/a` with so many tokens in all, and actions.
    fn used(score: f64, tokens: usize, turns: u32, calls: u32) -> Episode {
        let mut played = episode("p", 0, score, (0..turns).map(|at| turn("t/a", at)).collect());
        for (at, turn) in played.turns.iter_mut().enumerate() {
            let rest = tokens - (turns as usize - 1);
            turn.tokens.as_mut().unwrap().completion = vec![1; if at == 0 { rest } else { 1 }];
        }
        let act = |nth| Act {
            path: TurnPath(vec![0]),
            nth,
            environment: None,
            action: Action::Text(String::new()),
            observation: String::new(),
            done: false,
        };
        played.acts = (0..calls).map(act).collect();
        played
    }

    #[test]
    fn the_prices_of_episodes_are_the_recorded_ones() {
        let case = learning("credit/usage");
        let price = |name: &str| case["params"][name].as_f64().unwrap();
        let [token, turn, call] = ["token", "turn", "call"].map(price);
        let episodes = case["inputs"]["episodes"].as_array().unwrap();
        let episodes: Vec<Episode> = episodes
            .iter()
            .map(|it| {
                let count = |name: &str| it[name].as_u64().unwrap();
                let (turns, calls) = (count("turns") as u32, count("calls") as u32);
                used(it["score"].as_f64().unwrap(), count("tokens") as usize, turns, calls)
            })
            .collect();
        for (after, want) in [(UsageAfter::Always, "always"), (UsageAfter::Solved, "after_solved")]
        {
            let prices = RewardUsageConfig { token, turn, call, after, seats: Vec::new() };
            let reward = UsageReward::new(prices);
            let found: Vec<f64> = episodes.iter().map(|it| reward.value(it)).collect();
            assert_close(want, &found, &numbers(&case["outputs"][want]), 1e-12);
        }
    }

    #[test]
    fn seats_without_a_price_are_free() {
        let mut played = used(1.0, 9, 3, 0);
        played.turns[1].seat = Seat::at("t/b", 1);
        let of = |seats: &[&str]| {
            let seats = seats.iter().map(|&seat| seat.to_owned()).collect();
            let prices = RewardUsageConfig { turn: 0.5, seats, ..RewardUsageConfig::default() };
            UsageReward::new(prices).value(&played)
        };
        assert_eq!(of(&[]), -1.5);
        assert_eq!(of(&["t/b"]), -0.5);
        assert_eq!(of(&["t/b#1", "t/a"]), -1.5);
        assert_eq!(of(&["t/b#0"]), 0.0);
    }
}
