//! Generalized advantage estimation, along one text or along a chain of agents.

use crate::plan::CriticPlan;

/// How rewards fade from one place to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaeParams {
    /// Discount of what comes later.
    pub gamma: f64,
    /// How far an estimate looks: 0 is one place, 1 is to the end.
    pub lambda: f64,
}

impl From<&CriticPlan> for GaeParams {
    fn from(plan: &CriticPlan) -> Self {
        Self { gamma: plan.gamma, lambda: plan.lambda }
    }
}

/// Advantages and returns of one row, both `[T]`; the value after its end is `after`.
///
/// ```text
/// δₜ = rₜ + γ · Vₜ₊₁ − Vₜ
/// Aₜ = δₜ + γ · λ · Aₜ₊₁
/// Gₜ = Aₜ + Vₜ
/// ```
///
/// [1506.02438](https://arxiv.org/abs/1506.02438) eq. 16.
///
/// # Panics
///
/// If the lengths differ.
pub fn gae(rewards: &[f64], values: &[f64], hop: GaeParams, after: f64) -> (Vec<f64>, Vec<f64>) {
    let hops = vec![hop; rewards.len()];
    scan(rewards, values, &hops, after)
}

/// Advantages and returns along a chain of segments `[S][T]`, one for each reply in the order in which they were given:
/// the last place of a segment goes on with the first of the next.
///
/// MARFT, [2504.16129](https://arxiv.org/abs/2504.16129). At token level a segment is a reply and a place a token; at
/// action level a segment has one place. `within` fades between the tokens of a reply, `between` from agent to agent.
/// The reference implementation has one for both; `within` of `γ = λ = 1` leaves length out of it.
///
/// # Panics
///
/// If the lengths differ.
pub fn chained_gae(
    rewards: &[&[f64]],
    values: &[&[f64]],
    within: GaeParams,
    between: GaeParams,
) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let lengths: Vec<usize> = rewards.iter().map(|segment| segment.len()).collect();
    let same = values.len() == lengths.len()
        && values.iter().zip(&lengths).all(|(segment, &length)| segment.len() == length);
    assert!(same, "chained_gae: one value per reward");
    let hops: Vec<GaeParams> = lengths
        .iter()
        .flat_map(|&length| (1..=length).map(move |t| if t < length { within } else { between }))
        .collect();
    let (advantages, returns) = scan(&rewards.concat(), &values.concat(), &hops, 0.0);
    (split(advantages, &lengths), split(returns, &lengths))
}

/// From the end to the start; `hops[t]` leads from place `t` to the next.
fn scan(rewards: &[f64], values: &[f64], hops: &[GaeParams], after: f64) -> (Vec<f64>, Vec<f64>) {
    assert_eq!(rewards.len(), values.len(), "gae: one value per reward");
    let mut advantages = vec![0.0; rewards.len()];
    let (mut next, mut running) = (after, 0.0);
    for t in (0..rewards.len()).rev() {
        let GaeParams { gamma, lambda } = hops[t];
        running = rewards[t] + gamma * next - values[t] + gamma * lambda * running;
        next = values[t];
        advantages[t] = running;
    }
    let returns = advantages.iter().zip(values).map(|(a, v)| a + v).collect();
    (advantages, returns)
}

fn split(packed: Vec<f64>, lengths: &[usize]) -> Vec<Vec<f64>> {
    let mut packed = packed.into_iter();
    lengths.iter().map(|&length| packed.by_ref().take(length).collect()).collect()
}
