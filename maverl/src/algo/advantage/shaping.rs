//! Rewards of a team, shared out among its agents and turns.

use std::collections::BTreeMap;

use crate::algo::Sample;
use crate::config::Shaping;
use crate::plan::{AlgorithmPlan, InfluencePlan};
use crate::trajectory::{Episode, Seat};

/// Several rewards of one row in one; a missing value leaves its function out.
///
/// ```text
/// r = Σ wₖ · rₖ                  over the functions that gave a value; none if none did
/// ```
///
/// # Panics
///
/// If the lengths differ.
pub fn weighted_rewards(values: &[Option<f64>], weights: &[f64]) -> Option<f64> {
    assert_eq!(values.len(), weights.len(), "weighted_rewards: one weight per function");
    let given =
        || values.iter().zip(weights).filter_map(|(value, weight)| Some((*value)? * weight));
    given().next()?;
    Some(given().sum())
}

/// Difference rewards: the team's reward less its reward without each agent. `[agents]`
///
/// ```text
/// Dᵢ = R − R₋ᵢ
/// ```
///
/// Wolpert and Tumer, [cs/9908014](https://arxiv.org/abs/cs/9908014); with `R₋ᵢ` of the same votes counted without agent
/// `i` it is leave-one-agent-out credit.
pub fn difference_rewards(team: f64, without: &[f64]) -> Vec<f64> {
    without.iter().map(|without| team - without).collect()
}

/// MARTI's margin: how much better than what its context has earned so far.
///
/// ```text
/// r' = r + α · (r − q)                          q: mean of the earlier rewards it was shown
/// ```
pub fn margin(reward: f64, earlier: f64, alpha: f64) -> f64 {
    reward + alpha * (reward - earlier)
}

/// MARTI's quality: agreement with what its context has earned so far.
///
/// ```text
/// r' = r + α · (q · r − (1 − q) · (1 − r))
/// ```
pub fn quality(reward: f64, earlier: f64, alpha: f64) -> f64 {
    reward + alpha * (earlier * reward - (1.0 - earlier) * (1.0 - reward))
}

/// Shapes the rewards of samples by what earlier rounds of their episode earned, as the algorithm says.
///
/// The k-th turn of a seat is of round k. `q` is the mean reward of all turns of earlier rounds; those of the first round
/// stay as they are. It takes rewards of turns to differ: where the score of the episode is all there is, a margin is 0.
pub fn shaped_rewards(episodes: &[Episode], samples: &mut [Sample], algorithm: &AlgorithmPlan) {
    let (shape, weight): (fn(f64, f64, f64) -> f64, f64) = match algorithm.shaping {
        Shaping::None => return,
        Shaping::Margin(plan) => (margin, plan.weight),
        Shaping::Quality(plan) => (quality, plan.weight),
    };
    let earlier: Vec<Vec<Option<f64>>> = episodes.iter().map(earlier).collect();
    for sample in samples {
        if let Some(earlier) = earlier[sample.episode][sample.turn] {
            sample.reward = shape(sample.reward, earlier, weight);
        }
    }
}

/// The mean reward of the rounds before each turn; `None` in the first, and where there is no score.
fn earlier(episode: &Episode) -> Vec<Option<f64>> {
    let mut spoken: BTreeMap<&Seat, usize> = BTreeMap::new();
    let rounds: Vec<usize> = episode
        .turns
        .iter()
        .map(|turn| {
            let round = spoken.entry(&turn.seat).or_default();
            *round += 1;
            *round
        })
        .collect();
    let mean = |round: usize| {
        let before = (0..rounds.len()).filter(|&turn| rounds[turn] < round);
        let rewards: Option<Vec<f64>> = before.map(|turn| episode.turn_reward(turn)).collect();
        let rewards = rewards.filter(|rewards| !rewards.is_empty())?;
        Some(rewards.iter().sum::<f64>() / rewards.len() as f64)
    };
    rounds.iter().map(|&round| mean(round)).collect()
}

/// Whose later scores count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreShare {
    /// The mean over all agents.
    All,
    /// The agent's own.
    Individual,
}

/// MAPoRL's rewards from scores `[turns][agents]`: a turn is worth its score and, discounted, those after it.
///
/// ```text
/// all          R(t, a) = (s(t, a) + Σ_{t' > t} γ^(t' − t) · mean_j s(t', j)) / Γ
/// individual   R(t, a) = (Σ_{t' ≥ t} γ^(t' − t) · s(t', a)) / Γ
///              Γ = Σ_{t' ≥ t} γ^(t' − t)
/// ```
///
/// [2502.18439](https://arxiv.org/abs/2502.18439) §3. Turns that were not reached are not given.
///
/// # Panics
///
/// If turns have different numbers of agents.
pub fn discounted_scores(scores: &[Vec<f64>], gamma: f64, share: ScoreShare) -> Vec<Vec<f64>> {
    let turns = scores.len();
    let mean = |t: usize| scores[t].iter().sum::<f64>() / scores[t].len().max(1) as f64;
    let of = |t: usize, a: usize| {
        let later = |u: usize| match share {
            ScoreShare::All => mean(u),
            ScoreShare::Individual => scores[u][a],
        };
        let fade = |u: usize| gamma.powi((u - t) as i32);
        let sum = scores[t][a] + (t + 1..turns).map(|u| fade(u) * later(u)).sum::<f64>();
        sum / (t..turns).map(fade).sum::<f64>()
    };
    (0..turns).map(|t| (0..scores[t].len()).map(|a| of(t, a)).collect()).collect()
}

/// MAPoRL's bonus of each turn and agent `[turns][agents]`, from whether answers were right `[turns][agents]`.
///
/// ```text
/// backward   ±follow where the agent came to agree with most others, ±resist where it came to differ;
///            + if it became right, − if it became wrong
/// forward    ±persuade where most others came to agree with the agent, ±provoke where they came to differ;
///            + if they became right, − if they became wrong
/// ```
///
/// [2502.18439](https://arxiv.org/abs/2502.18439) §3. Others of whom exactly half are right are no majority; the first turn
/// has no bonus. The published code has the opposite sign for what others do after a turn, which is against the paper's
/// purpose; negative weights of `provoke` and `persuade` give it.
pub fn influence_bonus(right: &[Vec<bool>], bonus: &InfluencePlan) -> Vec<Vec<f64>> {
    let others = |t: usize, a: usize| majority(&right[t], a);
    let backward = |t: usize, a: usize| match (right[t - 1][a], right[t][a], others(t - 1, a)) {
        (true, false, Some(false)) => -bonus.follow,
        (true, false, Some(true)) => -bonus.resist,
        (false, true, Some(true)) => bonus.follow,
        (false, true, Some(false)) => bonus.resist,
        // Whoever is alone goes with nobody.
        (true, false, None) if right[t].len() == 1 => -bonus.resist,
        (false, true, None) if right[t].len() == 1 => bonus.resist,
        _ => 0.0,
    };
    let forward = |t: usize, a: usize| match (others(t, a), others(t + 1, a), right[t][a]) {
        (Some(false), Some(true), true) => bonus.persuade,
        (Some(false), Some(true), false) => bonus.provoke,
        (Some(true), Some(false), false) => -bonus.persuade,
        (Some(true), Some(false), true) => -bonus.provoke,
        _ => 0.0,
    };
    let of = |t: usize, a: usize| match t {
        0 => 0.0,
        t if t + 1 < right.len() => backward(t, a) + forward(t, a),
        t => backward(t, a),
    };
    (0..right.len()).map(|t| (0..right[t].len()).map(|a| of(t, a)).collect()).collect()
}

/// True if most of the others are right; `None` if there is no majority.
fn majority(right: &[bool], agent: usize) -> Option<bool> {
    let others = || right.iter().enumerate().filter(|(other, _)| *other != agent);
    let good = others().filter(|(_, right)| **right).count();
    match (2 * good).cmp(&others().count()) {
        std::cmp::Ordering::Greater => Some(true),
        std::cmp::Ordering::Less => Some(false),
        std::cmp::Ordering::Equal => None,
    }
}
