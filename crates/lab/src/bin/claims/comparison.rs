//! Paired comparison of two arms over seeds.

use std::collections::BTreeMap;

use maverl::eval::Interval;
use maverl_lab::statistics::{corrected_interval, runs_needed};

use crate::claims::{Claim, ClaimTest};
use crate::quantity::{ArmOutcome, Measure};

/// Outcomes by arm and seed.
pub(crate) type Outcomes = BTreeMap<&'static str, BTreeMap<u64, ArmOutcome>>;

/// Result of a test.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArmComparison {
    /// Means over the seeds: of the arm that is expected to be better, and of the other.
    pub(crate) means: [f64; 2],
    /// Mean of the differences, the expected arm minus the other. The intervals of a claim hold together with 95 %.
    pub(crate) difference: Interval,
    /// Number of seeds with both runs.
    pub(crate) seeds: usize,
    /// Result in a word.
    pub(crate) verdict: TestVerdict,
    /// Number of seeds that would decide in four of five repetitions, if differences stayed as they are, at least one more
    /// than there are; `None` if they have no direction.
    pub(crate) needed: Option<f64>,
}

/// Result of a comparison in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestVerdict {
    /// The interval of the difference is on the side of the claim.
    Shown,
    /// The interval contains 0.
    NotShown,
    /// The interval is on the other side.
    Opposite,
}

impl TestVerdict {
    /// Returns the verdict of a difference whose sign is positive where the claim holds.
    fn from_interval(Interval { low, high, .. }: Interval, sign: f64) -> Self {
        let (least, most) = if sign > 0.0 { (low, high) } else { (-high, -low) };
        match (least > 0.0, most < 0.0) {
            (true, _) => Self::Shown,
            (_, true) => Self::Opposite,
            _ => Self::NotShown,
        }
    }

    /// Name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::NotShown => "not shown",
            Self::Opposite => "opposite",
        }
    }
}

/// Compares two arms by the differences of runs with the same seed, in one of `tests` tests of a claim. `None` with fewer than two
/// such seeds.
fn compare_arms(test: &ClaimTest, tests: usize, outcomes: &Outcomes) -> Option<ArmComparison> {
    let (ours, theirs) = (outcomes.get(test.better)?, outcomes.get(test.other)?);
    let pairs =
        ours.iter().filter_map(|(seed, run)| test.measure.paired_values([run, theirs.get(seed)?]));
    compare_pairs(&pairs.collect::<Vec<_>>(), tests, test.measure)
}

/// Returns the comparison of pairs of values, in one of `tests` tests of a claim.
///
/// ```text
/// dᵢ = aᵢ - bᵢ          one difference for each seed, with the interval of `corrected_interval`
/// ```
fn compare_pairs(pairs: &[[f64; 2]], tests: usize, measure: Measure) -> Option<ArmComparison> {
    if pairs.len() < 2 {
        return None;
    }
    let n = pairs.len() as f64;
    let differences: Vec<f64> = pairs.iter().map(|[a, b]| a - b).collect();
    let difference = corrected_interval(&differences, tests)?;
    Some(ArmComparison {
        means: [0, 1].map(|side| pairs.iter().map(|pair| pair[side]).sum::<f64>() / n),
        difference,
        seeds: pairs.len(),
        verdict: TestVerdict::from_interval(difference, measure.sign()),
        needed: runs_needed(&differences, tests).map(|seeds| seeds.max(n + 1.0)),
    })
}

/// Returns the comparisons of a claim, each with its test.
pub(crate) fn compare_claim(
    claim: &'static Claim,
    outcomes: &Outcomes,
) -> Vec<(&'static ClaimTest, ArmComparison)> {
    let tests = claim.tests.len();
    let compared = claim.tests.iter().map(|test| (test, compare_arms(test, tests, outcomes)));
    compared.filter_map(|(test, found)| Some((test, found?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_difference_is_paired_by_seed() {
        // Differences 0.1, 0.2, 0.3: mean 0.2, s = 0.1, half width 4.302653 * 0.1 / sqrt(3) = 0.248414.
        let pairs = [[0.5, 0.4], [0.9, 0.7], [0.6, 0.3]];
        let comparison = compare_pairs(&pairs, 1, Measure::Solved).unwrap();
        let Interval { mean, low, high } = comparison.difference;
        assert!((mean - 0.2).abs() < 1e-12, "{mean}");
        assert!((low + 0.048_414).abs() < 1e-5 && (high - 0.448_414).abs() < 1e-5, "{low} {high}");
        assert_eq!((comparison.verdict, comparison.seeds), (TestVerdict::NotShown, 3));
        assert_eq!(
            comparison.needed,
            Some(4.0),
            "(2.80 * 0.1 / 0.2)^2 = 1.96, but three did not suffice"
        );
        assert!(compare_pairs(&pairs[..1], 1, Measure::Solved).is_none());
    }

    #[test]
    fn differences_that_are_equal_up_to_rounding_show_nothing() {
        for pairs in [[[0.5, 0.25]; 3], [[0.6, 0.4], [0.2, 0.0], [0.8, 0.6]], [[0.0, 0.25]; 3]] {
            let comparison = compare_pairs(&pairs, 1, Measure::Solved).unwrap();
            assert!(!comparison.difference.is_known(), "{comparison:?}");
            assert_eq!(comparison.verdict, TestVerdict::NotShown);
            assert_eq!(comparison.needed, Some(4.0), "one more than there are");
        }
        assert_eq!(compare_pairs(&[[0.5, 0.5]; 3], 1, Measure::Solved).unwrap().needed, None);
    }

    #[test]
    fn a_claim_is_shown_on_its_side_of_zero_only() {
        let interval = |low, high| Interval { mean: f64::midpoint(low, high), low, high };
        assert_eq!(TestVerdict::from_interval(interval(0.1, 0.2), 1.0), TestVerdict::Shown);
        assert_eq!(TestVerdict::from_interval(interval(0.1, 0.2), -1.0), TestVerdict::Opposite);
        assert_eq!(TestVerdict::from_interval(interval(-0.2, -0.1), -1.0), TestVerdict::Shown);
        assert_eq!(TestVerdict::from_interval(interval(-0.2, 0.1), 1.0), TestVerdict::NotShown);
        assert_eq!(TestVerdict::from_interval(interval(0.0, 0.0), 1.0), TestVerdict::NotShown);
    }

    #[test]
    fn seeds_without_both_runs_are_left_out() {
        let outcome = |solved| ArmOutcome { solved, ..ArmOutcome::default() };
        let arm = |runs: &[(u64, f64)]| runs.iter().map(|&(seed, s)| (seed, outcome(s))).collect();
        let outcomes = BTreeMap::from([
            ("a", arm(&[(0, 0.5), (1, 0.6), (3, 0.9)])),
            ("b", arm(&[(0, 0.4), (1, 0.3), (2, 0.1)])),
        ]);
        let test = ClaimTest { measure: Measure::Solved, better: "a", other: "b" };
        let comparison = compare_arms(&test, 1, &outcomes).unwrap();
        assert_eq!(comparison.seeds, 2);
        assert!((comparison.difference.mean - 0.2).abs() < 1e-12);
    }

    #[test]
    fn an_interval_that_excludes_zero_alone_may_contain_it_among_others() {
        // Differences 0.1, 0.15, 0.2: mean 0.15, s = 0.05. Half width 4.302653 · 0.05 / √3 = 0.124207 alone, and
        // 8.860200 · 0.05 / √3 = 0.255772 among four.
        let pairs = [[0.5, 0.4], [0.9, 0.75], [0.6, 0.4]];
        let alone = compare_pairs(&pairs, 1, Measure::Solved).unwrap();
        let among = compare_pairs(&pairs, 4, Measure::Solved).unwrap();
        assert!((alone.difference.low - 0.025_793).abs() < 1e-5, "{alone:?}");
        assert!((among.difference.low + 0.105_772).abs() < 1e-5, "{among:?}");
        assert_eq!((alone.verdict, among.verdict), (TestVerdict::Shown, TestVerdict::NotShown));
    }

    /// Returns a standard normal number (Box and Muller).
    fn normal(draw: &mut impl FnMut() -> f64) -> f64 {
        (-2.0 * libm::log(1.0 - draw())).sqrt() * libm::cos(std::f64::consts::TAU * draw())
    }

    #[test]
    fn the_seeds_needed_decide_in_four_of_five_repetitions() {
        // A generator of Park and Miller.
        let mut state = 1_u64;
        let mut draw = || {
            state = state * 48_271 % 0x7fff_ffff;
            state as f64 / 2_147_483_647.0
        };
        // Mean 0.1 and deviation 0.25.
        let known = [0.1 - 0.25 / 2_f64.sqrt(), 0.1 + 0.25 / 2_f64.sqrt()];
        let seeds = runs_needed(&known, 1).unwrap();
        assert_eq!(seeds, 50.0, "(2.80 * 0.25 / 0.1)^2 = 49.06");
        let decided = (0..1000).filter(|_| {
            let differences: Vec<f64> =
                (0..seeds as usize).map(|_| 0.1 + 0.25 * normal(&mut draw)).collect();
            let interval = corrected_interval(&differences, 1).unwrap();
            TestVerdict::from_interval(interval, 1.0) == TestVerdict::Shown
        });
        let power = decided.count() as f64 / 1000.0;
        assert!((0.75..=0.85).contains(&power), "{power}");
    }
}
