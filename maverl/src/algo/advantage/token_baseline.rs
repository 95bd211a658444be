//! A baseline for each place in a reply, with the least variance of the gradient (optimal token baseline).
//!
//! ```text
//! W_{i,t} = Σ_{j ≤ t} (1 − 2 π_{i,j} + Σ_v π(v)²_{i,j})      of token t of reply i; π_{i,j}: probability of its token j
//! B_t = Σ_i G_i W_{i,t} / Σ_i W_{i,t}                        over the replies of the group that have a token t
//! A_{i,t} = G_i − B_t
//! ```
//!
//! `1 − 2π + Σ π²` is the squared norm of the gradient of `log π` in the logits, so a reply counts by how far its tokens so far
//! move the policy. Tokens that only the longest reply has have no other to be compared with: their baseline is 0.
//! [2602.07078](https://arxiv.org/abs/2602.07078).

use crate::algo::Sample;
use crate::algo::advantage::rewarded_step;
use crate::config::TokenBaselinePlan;
use crate::credit::Estimators;
use crate::trajectory::Episode;

/// A turn, as the estimator takes it.
struct BaselineRow {
    /// Id of its group.
    group: usize,
    /// Return of each of its tokens: the reward of its unit.
    reward: f64,
    /// Squared norms of the gradients of its tokens, `[T]`: `1 − 2π + Σ π²`.
    norms: Vec<f64>,
}

/// Returns the advantage of each token of each sample, `[N][T]`, from the [norms](gradient_norms) of its tokens.
///
/// # Panics
///
/// If there is not a list of norms for each sample.
pub(crate) fn token_advantages(
    plan: &TokenBaselinePlan,
    episodes: &[Episode],
    samples: &[Sample],
    norms: &[Vec<f64>],
    estimators: &Estimators,
) -> Vec<Vec<f64>> {
    assert_eq!(norms.len(), samples.len(), "token baseline: norms of each sample");
    let step = rewarded_step(episodes, samples, None, plan.by);
    let units = step.units.iter().max().map_or(0, |last| last + 1);
    let mut sums = vec![(0.0, 0.0); units];
    for (&unit, reward) in step.units.iter().zip(&step.rewards) {
        sums[unit] = (sums[unit].0 + reward, sums[unit].1 + 1.0);
    }
    let rows = step.units.iter().zip(&step.groups).zip(norms).map(|((&unit, &group), norms)| {
        BaselineRow { group, reward: sums[unit].0 / sums[unit].1, norms: norms.clone() }
    });
    let mut advantages = token_baseline_advantages(&rows.collect::<Vec<_>>());
    advantages.iter_mut().for_each(|advantages| estimators.round(advantages));
    advantages
}

/// Returns the squared norm of the gradient in the logits of each token of a reply, from its log-probs at the temperature of
/// sampling, and at half of it. `Σ_v π(v)² = exp(2 log π(y) − log π'(y))` for any token y, with π' ∝ π².
pub(crate) fn gradient_norms(logprobs: &[f32], sharper: &[f32]) -> Vec<f64> {
    let both = logprobs.iter().map(|&p| f64::from(p)).zip(sharper.iter().map(|&p| f64::from(p)));
    both.map(|(logp, sharp)| gradient_norm(libm::exp(logp), libm::exp(2.0 * logp - sharp)))
        .collect()
}

/// `1 − 2π + Σ π²`, which rounding may take below 0 where π is 1.
fn gradient_norm(probability: f64, squares: f64) -> f64 {
    (1.0 - 2.0 * probability + squares).max(0.0)
}

/// Returns the advantage of each token of each turn, `[N][T]`.
fn token_baseline_advantages(rows: &[BaselineRow]) -> Vec<Vec<f64>> {
    let weights: Vec<Vec<f64>> = rows.iter().map(|row| running_sums(&row.norms)).collect();
    let groups = rows.iter().map(|row| row.group).max().map_or(0, |last| last + 1);
    let mut members = vec![Vec::new(); groups];
    for (index, row) in rows.iter().enumerate() {
        members[row.group].push(index);
    }
    let baselines: Vec<Vec<f64>> =
        members.iter().map(|members| place_baselines(rows, &weights, members)).collect();
    let rows = rows.iter().map(|row| (row, &baselines[row.group][..row.norms.len()]));
    rows.map(|(row, baselines)| baselines.iter().map(|baseline| row.reward - baseline).collect())
        .collect()
}

/// Returns the baseline of each place of the replies of a group, up to the end of the longest.
fn place_baselines(rows: &[BaselineRow], weights: &[Vec<f64>], members: &[usize]) -> Vec<f64> {
    let longest = members.iter().map(|&row| weights[row].len()).max().unwrap_or(0);
    (0..longest).map(|place| place_baseline(rows, weights, members, place)).collect()
}

/// Returns the baseline of a place. One that one reply alone has, and one without any weight, has 0.
fn place_baseline(
    rows: &[BaselineRow],
    weights: &[Vec<f64>],
    members: &[usize],
    place: usize,
) -> f64 {
    let (mut weighted, mut total, mut replies) = (0.0, 0.0, 0);
    for &row in members {
        let Some(weight) = weights[row].get(place) else { continue };
        (weighted, total) = (weighted + weight * rows[row].reward, total + weight);
        replies += 1;
    }
    if replies > 1 && total > 0.0 { weighted / total } else { 0.0 }
}

/// Returns the sum of the numbers up to each place.
fn running_sums(values: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    values
        .iter()
        .map(|value| {
            sum += value;
            sum
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::testing::{assert_close, learning, matrix, numbers};

    #[test]
    fn advantages_are_the_recorded_ones() {
        let case = learning("estimator/otb");
        let [logprobs, squares] =
            ["logprobs", "sum_squares"].map(|key| matrix(&case["inputs"][key]));
        let rewards = numbers(&case["inputs"]["rewards"]);
        // The log-prob at half of the temperature that gives these squares.
        let sharper = |logp: &f64, squares: &f64| (2.0 * logp - libm::log(*squares)) as f32;
        let rows: Vec<BaselineRow> = (0..rewards.len())
            .map(|row| {
                let sharper: Vec<f32> =
                    logprobs[row].iter().zip(&squares[row]).map(|(p, s)| sharper(p, s)).collect();
                let logprobs: Vec<f32> = logprobs[row].iter().map(|&p| p as f32).collect();
                let norms = gradient_norms(&logprobs, &sharper);
                BaselineRow { group: 0, reward: rewards[row], norms }
            })
            .collect();
        let outputs = [matrix(&case["outputs"]["weights"]), matrix(&case["outputs"]["advantages"])];
        let found = token_baseline_advantages(&rows);
        for (row, found) in found.iter().enumerate() {
            assert_close("weights", &running_sums(&rows[row].norms), &outputs[0][row], 1e-6);
            assert_close("advantages", found, &outputs[1][row], 1e-6);
        }
    }

    #[test]
    fn groups_do_not_see_each_other_and_certain_tokens_have_no_weight() {
        let row =
            |group, reward, norms: &[f64]| BaselineRow { group, reward, norms: norms.to_vec() };
        let rows = [
            row(0, 1.0, &[0.5, 0.0]),
            row(1, 3.0, &[0.2]),
            row(0, 0.0, &[0.5, 0.0]),
            row(2, 1.0, &[0.0, 0.0]),
            row(2, 0.0, &[0.0]),
        ];
        let found = token_baseline_advantages(&rows);
        let wanted = [vec![0.5, 0.5], vec![3.0], vec![-0.5, -0.5], vec![1.0, 1.0], vec![0.0]];
        assert_eq!(found, wanted);
    }
}
