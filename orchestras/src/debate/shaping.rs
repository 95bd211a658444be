//! Rewards of statements over the rounds of a debate, after MAPoRL (arXiv 2502.18439).
//!
//! `s[t][a]` is the value of the statement of debater `a` in round `t`: 1 if its answer is correct, else 0.

use serde::{Deserialize, Serialize};

/// Rounds whose values reward a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Horizon {
    /// The current round.
    #[default]
    Current,
    /// The current round and later ones, as a discounted weighted mean.
    Discounted,
    /// The last round.
    Last,
}

/// Debaters whose values reward a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// The debater itself.
    #[default]
    Own,
    /// All debaters, as the mean. In the current round of a discounted horizon, the debater itself.
    All,
}

/// Computes the reward of each statement:
///
/// | | own | all |
/// |---|---|---|
/// | current | `s(t, a)` | `mean_j s(t, j)` |
/// | discounted | `Σ_{u≥t} γ^{u-t} s(u, a) / Γ` | `(s(t, a) + Σ_{u>t} γ^{u-t} mean_j s(u, j)) / Γ` |
/// | last | `s(T-1, a)` | `mean_j s(T-1, j)` |
///
/// with `Γ = Σ_{u≥t} γ^{u-t}` over the rounds that were held.
pub(super) fn shape_rewards(
    s: &[Vec<f64>],
    horizon: Horizon,
    share: Share,
    discount: f64,
) -> Vec<Vec<f64>> {
    let rounds = s.iter().enumerate().map(|(t, round)| {
        (0..round.len()).map(|a| horizon.reward(s, (t, a), share, discount)).collect()
    });
    rounds.collect()
}

impl Horizon {
    /// Returns the reward of the statement of debater `a` in round `t`.
    fn reward(self, s: &[Vec<f64>], (t, a): (usize, usize), share: Share, discount: f64) -> f64 {
        match self {
            Self::Current => share.of(&s[t], a),
            Self::Last => share.of(&s[s.len() - 1], a),
            Self::Discounted => discount_reward(s, (t, a), share, discount),
        }
    }
}

impl Share {
    /// Returns the value of a round for debater `a`.
    fn of(self, round: &[f64], a: usize) -> f64 {
        match self {
            Self::Own => round[a],
            Self::All => round.iter().sum::<f64>() / round.len() as f64,
        }
    }
}

/// Returns the discounted reward of the statement of debater `a` in round `t`.
fn discount_reward(s: &[Vec<f64>], (t, a): (usize, usize), share: Share, discount: f64) -> f64 {
    let (mut sum, mut weights, mut weight) = (s[t][a], 1.0, 1.0);
    for later in &s[t + 1..] {
        weight *= discount;
        sum += weight * share.of(later, a);
        weights += weight;
    }
    sum / weights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: &[Vec<f64>], expected: &[[f64; 2]]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{found} and not {expected}");
            }
        }
    }

    fn rounds(s: &[[f64; 2]]) -> Vec<Vec<f64>> {
        s.iter().map(|round| round.to_vec()).collect()
    }

    /// Values of a re-implementation of MAPoRL's formulas.
    #[test]
    fn rewards_over_rounds_are_those_of_the_reference() {
        let s = rounds(&[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]);
        let of = |share, discount| shape_rewards(&s, Horizon::Discounted, share, discount);
        let all = [[0.892_086, 0.172_662], [0.230_769, 1.0], [1.0, 1.0]];
        close(&of(Share::All, 0.3), &all);
        close(&of(Share::All, 1.0), &[[0.833_333, 0.5], [0.5, 1.0], [1.0, 1.0]]);
        let own = [[0.784_173, 0.280_576], [0.230_769, 1.0], [1.0, 1.0]];
        close(&of(Share::Own, 0.3), &own);
        // A debate that ended after its second round.
        let ended = shape_rewards(&s[..2], Horizon::Discounted, Share::All, 0.3);
        close(&ended, &[[0.884_615, 0.115_385], [0.0, 1.0]]);
        close(&shape_rewards(&s, Horizon::Last, Share::All, 0.3), &[[1.0; 2]; 3]);
        close(
            &shape_rewards(&s, Horizon::Current, Share::All, 0.3),
            &[[0.5; 2], [0.5; 2], [1.0; 2]],
        );
        assert_eq!(shape_rewards(&s, Horizon::Discounted, Share::Own, 0.0), s);
    }
}
