//! Turns that were given the same prompt, against each other.

use crate::algo::Sample;
use crate::trajectory::{Episode, RewardOf};

/// The discounted sum of rewards from each place on, `[T]`.
///
/// ```text
/// Rₜ = rₜ + γ · Rₜ₊₁
/// ```
///
/// GiGPO, [2505.10978](https://arxiv.org/abs/2505.10978) §4.2.
pub fn discounted_returns(rewards: &[f64], gamma: f64) -> Vec<f64> {
    let mut returns = rewards.to_vec();
    for t in (1..returns.len()).rev() {
        returns[t - 1] += gamma * returns[t];
    }
    returns
}

/// The discounted rewards from each sample's turn on. A turn earns its own parts, the last turn what the episode earns.
pub(super) fn returns(episodes: &[Episode], samples: &[Sample], gamma: f64) -> Vec<f64> {
    let of = |sample: &Sample| {
        let episode = &episodes[sample.episode];
        let mut rewards = vec![0.0; episode.turns.len()];
        for part in &episode.rewards {
            if let RewardOf::Turn(turn) = part.of {
                rewards[turn] += part.value;
            }
        }
        let own = rewards[sample.turn];
        if let Some(last) = rewards.last_mut() {
            *last += sample.reward - own;
        }
        discounted_returns(&rewards, gamma)[sample.turn]
    };
    samples.iter().map(of).collect()
}

/// The prompt of a sample, token by token.
pub(super) fn prompt<'a>(episodes: &'a [Episode], sample: &Sample) -> &'a [u32] {
    let tokens = episodes[sample.episode].turns[sample.turn].tokens.as_ref();
    tokens.map_or(&[], |tokens| tokens.prompt.as_slice())
}
