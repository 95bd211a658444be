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
pub(super) fn shaped(
    s: &[Vec<f64>],
    horizon: Horizon,
    share: Share,
    discount: f64,
) -> Vec<Vec<f64>> {
    let mean = |round: &[f64]| round.iter().sum::<f64>() / round.len() as f64;
    let worth = |t: usize, a: usize| match share {
        Share::Own => s[t][a],
        Share::All => mean(&s[t]),
    };
    let reward = |t: usize, a: usize| match horizon {
        Horizon::Current => worth(t, a),
        Horizon::Last => worth(s.len() - 1, a),
        Horizon::Discounted => {
            let (mut sum, mut weights, mut weight) = (s[t][a], 1.0, 1.0);
            for later in t + 1..s.len() {
                weight *= discount;
                sum += weight * worth(later, a);
                weights += weight;
            }
            sum / weights
        }
    };
    (0..s.len()).map(|t| (0..s[t].len()).map(|a| reward(t, a)).collect()).collect()
}

/// Computes the reward of each statement for changes of opinion. With `o(t)` the mean of the others in round `t`, and
/// `α` the four weights:
///
/// - from the second round on, for changing one's own opinion: `α₀` if the others had the new opinion, `α₁` if they had
///   the old one; plus from wrong to right, minus from right to wrong;
/// - from the second round to the last but one, for the others' change of opinion in the next round: `α₃` if one had
///   the opinion that they change to, `α₂` if not; plus from wrong to right, minus from right to wrong.
///
/// If exactly half of the others are right, they have no opinion. `forward` multiplies the second part: 1 here;
/// MAPoRL's code has -1, contrary to its paper.
pub(super) fn influence(s: &[Vec<f64>], alpha: [f64; 4], forward: f64) -> Vec<Vec<f64>> {
    let own = |t: usize, a: usize| s[t][a] > 0.5;
    let others = |t: usize, a: usize| {
        let n = s[t].len() - 1;
        let sum = s[t].iter().enumerate().filter(|(j, _)| *j != a).map(|(_, s)| s).sum::<f64>();
        let mean = sum / n as f64;
        if n == 0 || mean == 0.5 { None } else { Some(mean > 0.5) }
    };
    let sign = |right: bool| if right { 1.0 } else { -1.0 };
    let bonus = |t: usize, a: usize| {
        let mut bonus = 0.0;
        if t >= 1 && own(t, a) != own(t - 1, a) {
            let now = own(t, a);
            let alone = s[t].len() == 1;
            bonus += sign(now)
                * match others(t - 1, a) {
                    Some(mind) if mind == now => alpha[0],
                    Some(_) => alpha[1],
                    None if alone => alpha[1],
                    None => 0.0,
                };
        }
        if (1..s.len() - 1).contains(&t)
            && let (Some(before), Some(after)) = (others(t, a), others(t + 1, a))
            && before != after
        {
            let weight = if own(t, a) == after { alpha[3] } else { alpha[2] };
            bonus += forward * sign(after) * weight;
        }
        bonus
    };
    (0..s.len()).map(|t| (0..s[t].len()).map(|a| bonus(t, a)).collect()).collect()
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
        let of = |share, discount| shaped(&s, Horizon::Discounted, share, discount);
        let all = [[0.892_086, 0.172_662], [0.230_769, 1.0], [1.0, 1.0]];
        close(&of(Share::All, 0.3), &all);
        close(&of(Share::All, 1.0), &[[0.833_333, 0.5], [0.5, 1.0], [1.0, 1.0]]);
        let own = [[0.784_173, 0.280_576], [0.230_769, 1.0], [1.0, 1.0]];
        close(&of(Share::Own, 0.3), &own);
        // A debate that ended after its second round.
        let ended = shaped(&s[..2], Horizon::Discounted, Share::All, 0.3);
        close(&ended, &[[0.884_615, 0.115_385], [0.0, 1.0]]);
        close(&shaped(&s, Horizon::Last, Share::All, 0.3), &[[1.0; 2]; 3]);
        close(&shaped(&s, Horizon::Current, Share::All, 0.3), &[[0.5; 2], [0.5; 2], [1.0; 2]]);
        assert_eq!(shaped(&s, Horizon::Discounted, Share::Own, 0.0), s);
    }

    #[test]
    fn influence_is_that_of_the_reference_but_for_the_sign_of_its_second_part() {
        let alpha = [0.1, 0.2, 0.3, 0.4];
        for (s, coded) in [
            ([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [-0.1, -0.3], [0.1, 0.0]]),
            ([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [-0.2, 0.0], [0.0, 0.1]]),
            ([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.2, 0.0], [0.0, -0.1]]),
        ] {
            close(&influence(&rounds(&s), alpha, -1.0), &coded);
        }
        // A debater that is right before the other becomes so is rewarded, and not penalized.
        let persuaded = rounds(&[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]);
        assert!((influence(&persuaded, alpha, 1.0)[1][0] - 0.6).abs() < 1e-12);
        // Repeating a statement, right or wrong, has reward zero.
        for same in [0.0, 1.0] {
            assert_eq!(influence(&vec![vec![same; 3]; 4], alpha, 1.0), vec![vec![0.0; 3]; 4]);
        }
        assert_eq!(influence(&[vec![0.0], vec![1.0]], alpha, 1.0), [[0.0], [0.2]]);
    }
}
