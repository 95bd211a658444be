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
    let given = values.iter().zip(weights).filter_map(|(value, weight)| Some((*value)? * weight));
    let given: Vec<f64> = given.collect();
    (!given.is_empty()).then(|| given.iter().sum())
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
    let Some(shape) = shape(algorithm.shaping) else { return };
    let earlier: Vec<Vec<Option<f64>>> = episodes.iter().map(earlier).collect();
    for sample in samples {
        if let Some(earlier) = earlier[sample.episode][sample.turn] {
            sample.reward = shape(sample.reward, earlier);
        }
    }
}

/// Returns the rewards of the turns of an episode, shaped as [`shaped_rewards`] shapes those of samples; `None` where there is no
/// score.
pub(super) fn shaped_turns(episode: &Episode, shaping: Shaping) -> Vec<Option<f64>> {
    let mut rewards: Vec<Option<f64>> =
        (0..episode.turns.len()).map(|turn| episode.turn_reward(turn)).collect();
    if let Some(shape) = shape(shaping) {
        for (reward, earlier) in rewards.iter_mut().zip(earlier(episode)) {
            if let (Some(reward), Some(earlier)) = (reward, earlier) {
                *reward = shape(*reward, earlier);
            }
        }
    }
    rewards
}

/// Returns the function of a reward and of the mean reward before it that a shaping is, if there is one.
fn shape(shaping: Shaping) -> Option<impl Fn(f64, f64) -> f64> {
    let (shape, weight): (fn(f64, f64, f64) -> f64, f64) = match shaping {
        Shaping::None => return None,
        Shaping::Margin(plan) => (margin, plan.weight),
        Shaping::Quality(plan) => (quality, plan.weight),
    };
    Some(move |reward, earlier| shape(reward, earlier, weight))
}

/// The mean reward of the rounds before each turn; `None` in the first, and where there is no score.
fn earlier(episode: &Episode) -> Vec<Option<f64>> {
    let mut spoken: BTreeMap<&Seat, usize> = BTreeMap::new();
    let mut rounds = Vec::with_capacity(episode.turns.len());
    for turn in &episode.turns {
        let round = spoken.entry(&turn.seat).or_default();
        *round += 1;
        rounds.push(*round);
    }
    rounds.iter().map(|&round| mean_before(round, episode, &rounds)).collect()
}

/// Returns the mean reward of the turns of earlier rounds than `round`.
fn mean_before(round: usize, episode: &Episode, rounds: &[usize]) -> Option<f64> {
    let before = (0..rounds.len()).filter(|&turn| rounds[turn] < round);
    let rewards: Vec<f64> = before.map(|turn| episode.turn_reward(turn)).collect::<Option<_>>()?;
    (!rewards.is_empty()).then(|| rewards.iter().sum::<f64>() / rewards.len() as f64)
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
    let mut worth = scores.to_vec();
    for (t, worth) in worth.iter_mut().enumerate() {
        let fades: Vec<f64> = (0..scores.len() - t).map(|u| gamma.powi(u as i32)).collect();
        for (agent, worth) in worth.iter_mut().enumerate() {
            let later = fades.iter().zip(&scores[t..]).skip(1);
            let later = later.map(|(fade, scores)| match share {
                ScoreShare::All => fade * (scores.iter().sum::<f64>() / scores.len().max(1) as f64),
                ScoreShare::Individual => fade * scores[agent],
            });
            *worth = (*worth + later.sum::<f64>()) / fades.iter().sum::<f64>();
        }
    }
    worth
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
    let mut bonuses: Vec<Vec<f64>> = right.iter().map(|turn| vec![0.0; turn.len()]).collect();
    for (t, bonuses) in bonuses.iter_mut().enumerate().skip(1) {
        for (agent, value) in bonuses.iter_mut().enumerate() {
            *value = backward_bonus(agent, &right[t - 1], &right[t], bonus);
            if let Some(next) = right.get(t + 1) {
                *value += forward_bonus(agent, &right[t], next, bonus);
            }
        }
    }
    bonuses
}

/// Returns the bonus of an agent for what it did after the turn before.
fn backward_bonus(agent: usize, before: &[bool], now: &[bool], bonus: &InfluencePlan) -> f64 {
    match (before[agent], now[agent], majority(before, agent)) {
        (true, false, Some(false)) => -bonus.follow,
        (true, false, Some(true)) => -bonus.resist,
        (false, true, Some(true)) => bonus.follow,
        (false, true, Some(false)) => bonus.resist,
        // Whoever is alone goes with nobody.
        (true, false, None) if now.len() == 1 => -bonus.resist,
        (false, true, None) if now.len() == 1 => bonus.resist,
        _ => 0.0,
    }
}

/// Returns the bonus of an agent for what the others did after its turn.
fn forward_bonus(agent: usize, now: &[bool], next: &[bool], bonus: &InfluencePlan) -> f64 {
    match (majority(now, agent), majority(next, agent), now[agent]) {
        (Some(false), Some(true), true) => bonus.persuade,
        (Some(false), Some(true), false) => bonus.provoke,
        (Some(true), Some(false), false) => -bonus.persuade,
        (Some(true), Some(false), true) => -bonus.provoke,
        _ => 0.0,
    }
}

/// True if most of the others are right; `None` if there is no majority.
fn majority(right: &[bool], agent: usize) -> Option<bool> {
    let others = right.iter().enumerate().filter(|(other, _)| *other != agent);
    let good = others.clone().filter(|(_, right)| **right).count();
    match (2 * good).cmp(&others.count()) {
        std::cmp::Ordering::Greater => Some(true),
        std::cmp::Ordering::Less => Some(false),
        std::cmp::Ordering::Equal => None,
    }
}
