//! Intervals of shares and of values of runs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Quantile of the standard normal distribution for a two-sided 95 % interval.
const Z: f64 = 1.959_963_984_540_054;
/// Difference of two shares or rewards that is rounding, times the first of them if that is above 1.
const ROUNDING: f64 = 1e-9;

/// A mean, with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Mean over tasks.
    pub mean: f64,
    /// Lower end; NaN if unknown, which is `null` in JSON.
    #[serde(deserialize_with = "known_or_nan")]
    pub low: f64,
    /// Upper end; NaN if unknown.
    #[serde(deserialize_with = "known_or_nan")]
    pub high: f64,
}

impl Interval {
    /// Creates an interval with a known mean and unknown ends.
    pub(crate) fn unknown_interval(mean: f64) -> Self {
        Self { mean, low: f64::NAN, high: f64::NAN }
    }

    /// Returns true if the ends are known.
    pub fn is_known(&self) -> bool {
        !self.low.is_nan() && !self.high.is_nan()
    }
}

/// Reads a number, or NaN for `null`.
fn known_or_nan<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_known() {
            write!(f, "{:.3} ({:.3} to {:.3})", self.mean, self.low, self.high)
        } else {
            write!(f, "{:.3} (unknown)", self.mean)
        }
    }
}

/// Returns the mean of one value per run, with its 95 % interval by Student's t for a run from another seed. `None`
/// without a run. For one run, and for runs with equal values, the spread is unknown, and so is the interval.
#[doc(hidden)]
pub fn over_runs(values: &[f64]) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if are_equal(values) {
        return Some(Interval::unknown_interval(mean));
    }
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let half = student(values.len() - 1) * (squares / (n - 1.0) / n).sqrt();
    Some(Interval { mean, low: mean - half, high: mean + half })
}

/// Returns true if no two values differ by more than rounding: 3/5 - 2/5 and 1/5 - 0/5 are not the same number.
pub(super) fn are_equal(values: &[f64]) -> bool {
    let mut pairs = values.windows(2);
    pairs.all(|pair| (pair[0] - pair[1]).abs() <= ROUNDING * pair[0].abs().max(1.0))
}

/// Returns the quantile of Student's t distribution for a two-sided 95 % interval; NaN without degrees of freedom.
/// Above 30 degrees, Cornish and Fisher's expansion (Abramowitz and Stegun, 26.7.5).
#[doc(hidden)]
pub fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
        2.262_157, 2.228_139, 2.200_985, 2.178_813, 2.160_369, 2.144_787, 2.131_450, 2.119_905,
        2.109_816, 2.100_922, 2.093_024, 2.085_963, 2.079_614, 2.073_873, 2.068_658, 2.063_899,
        2.059_539, 2.055_529, 2.051_831, 2.048_407, 2.045_230, 2.042_272,
    ];
    let Some(place) = freedom.checked_sub(1) else { return f64::NAN };
    if let Some(quantile) = TABLE.get(place) {
        return *quantile;
    }
    let v = freedom as f64;
    let terms = [
        (Z.powi(3) + Z) / 4.0,
        (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0,
        (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0,
    ];
    Z + terms[0] / v + terms[1] / v.powi(2) + terms[2] / v.powi(3)
}

/// Returns the mean of one value in `[0, 1]` per task, with the interval of the module's documentation.
pub(super) fn share(values: &[f64], episodes: u64) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let variance = if values.len() > 1 { squares / (n - 1.0) } else { 0.0 };
    let draws = if variance > 0.0 {
        (mean * (1.0 - mean) * n / variance).clamp(n, (episodes as f64).max(n))
    } else {
        n
    };
    let scale = 1.0 + Z * Z / draws;
    let center = (mean + Z * Z / (2.0 * draws)) / scale;
    let half = Z / scale * (mean * (1.0 - mean) / draws + (Z / (2.0 * draws)).powi(2)).sqrt();
    Some(Interval { mean, low: (center - half).max(0.0), high: (center + half).min(1.0) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn with_one_episode_a_task_the_interval_is_wilsons() {
        // 8 of 10: the textbook's 0.490 to 0.943.
        let values: Vec<f64> = (0..10).map(|i| f64::from(i < 8)).collect();
        let estimate = share(&values, 10).unwrap();
        assert!((estimate.low - 0.490_162).abs() < 1e-5, "{estimate}");
        assert!((estimate.high - 0.943_318).abs() < 1e-5, "{estimate}");
        let none = share(&[0.0; 20], 20).unwrap();
        assert!(none.low == 0.0 && (none.high - 0.161_125).abs() < 1e-5, "{none}");
    }

    #[test]
    fn the_standard_error_divides_by_n_minus_1() {
        // Mean 1/2, s² = (1/4 + 1/4) / 3 = 1/6, SE² = 1/24, n_eff = 1/4 / (1/24) = 6; dividing by n it would be 8.
        let estimate = share(&[1.0, 0.5, 0.5, 0.0], 8).unwrap();
        let wilson = |n: f64| {
            let half = (0.25 / n + (Z / (2.0 * n)).powi(2)).sqrt() * Z / (1.0 + Z * Z / n);
            (0.5 - half, 0.5 + half)
        };
        let (low, high) = wilson(6.0);
        let off = (estimate.low - low).abs().max((estimate.high - high).abs());
        assert!(off < 1e-12, "{estimate}, not {low:.3} to {high:.3}");
        let one = share(&[0.5], 4).unwrap();
        assert!(one.low >= 0.0 && one.low < 0.5 && one.high > 0.5, "{one}");
    }

    #[test]
    fn runs_have_students_interval() {
        let Interval { mean, low, high } = over_runs(&[0.7, 0.8, 0.9]).unwrap();
        assert!((mean - 0.8).abs() < 1e-12);
        // s = 0.1; 4.302653 * 0.1 / sqrt(3)
        assert!(
            (high - mean - 0.248_413_8).abs() < 1e-6 && (mean - low - 0.248_413_8).abs() < 1e-6
        );
        assert!(over_runs(&[0.5]).unwrap().low.is_nan() && over_runs(&[]).is_none());
        for equal in [&[0.5; 2][..], &[1.0; 5], &[0.6 - 0.4, 0.2], &[1e9, 1e9 + 0.1]] {
            let interval = over_runs(equal).unwrap();
            assert!(
                !interval.is_known() && interval.mean == equal[0].midpoint(equal[1]),
                "{interval}"
            );
        }
        let falls = (1..200).all(|freedom| student(freedom) > student(freedom + 1));
        assert!(falls && student(0).is_nan() && student(1_000_000) - Z < 1e-5);
        for (freedom, quantile) in [(31, 2.039_513), (40, 2.021_075), (120, 1.979_930)] {
            assert!((student(freedom) - quantile).abs() < 1e-5, "{freedom}: {}", student(freedom));
        }
    }

    /// Returns the next of a fixed sequence of numbers in `[0, 1)` (SplitMix64).
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn the_interval_covers_the_truth_95_times_in_100() {
        // Tasks differ in difficulty: each is solved with probability u² for u uniform, so the truth is 1/3.
        for (tasks, k) in [(60, 1u32), (60, 4), (300, 8)] {
            let mut state = 7;
            let trials = 2000;
            let covered = (0..trials).filter(|_| {
                let values: Vec<f64> = (0..tasks)
                    .map(|_| {
                        let chance = uniform(&mut state).powi(2);
                        let solved = (0..k).filter(|_| uniform(&mut state) < chance).count();
                        solved as f64 / f64::from(k)
                    })
                    .collect();
                let estimate = share(&values, tasks * u64::from(k)).unwrap();
                (estimate.low..=estimate.high).contains(&(1.0 / 3.0))
            });
            let coverage = covered.count() as f64 / f64::from(trials);
            assert!((0.93..=0.97).contains(&coverage), "{tasks} tasks of {k}: {coverage}");
        }
    }
}
