//! Mean and deviation of groups.

use rayon::prelude::*;

use super::{Segments, assert_same_length};
use crate::par;

/// Count, mean, and sum of squared distances to the mean.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moments {
    /// Count; the sum of the weights, where there are weights.
    pub n: f64,
    /// Mean; 0 if there are none.
    pub mean: f64,
    /// Σ (x − mean)².
    pub m2: f64,
}

impl Moments {
    /// Σ (x − mean)² / (n − 1); 0 for fewer than two.
    pub fn variance(&self) -> f64 {
        if self.n > 1.0 { self.m2 / (self.n - 1.0) } else { 0.0 }
    }

    /// The sample deviation.
    pub fn std(&self) -> f64 {
        self.variance().sqrt()
    }

    /// Returns true if the values differ by more than rounding.
    pub fn has_spread(&self) -> bool {
        self.std() > super::ROUNDING * self.mean.abs().max(1.0)
    }

    /// Moments of a group, in two passes; `at` gives value and weight of a row. A value of weight 0 is left out, whatever
    /// it is.
    fn of_group(by: &Segments, group: usize, at: impl Fn(usize) -> (f64, f64)) -> Self {
        let values = by.range_of_group(group).map(|place| at(by.row_at(place)));
        let counted = values.filter(|(_, weight)| *weight > 0.0);
        let (mut n, mut mean) = (0.0, 0.0);
        for (value, weight) in counted.clone() {
            n += weight;
            mean += weight * value;
        }
        mean /= if n == 0.0 { 1.0 } else { n };
        let mut m2 = 0.0;
        for (value, weight) in counted {
            m2 += weight * (value - mean).powi(2);
        }
        Self { n, mean, m2 }
    }
}

/// Moments of the values `[N]` of each group, `[groups]`.
///
/// # Panics
///
/// If the lengths differ.
pub fn group_moments(values: &[f64], by: &Segments) -> Vec<Moments> {
    assert_same_length("moments", values.len(), by.len());
    weighted_moments(by, |row| (values[row], 1.0))
}

/// Moments of each group `[groups]`; `at` gives value and weight of a row.
///
/// The sums of a group are taken in the order of its rows, so the bits are the same on any number of threads.
pub(super) fn weighted_moments(
    by: &Segments,
    at: impl Fn(usize) -> (f64, f64) + Sync,
) -> Vec<Moments> {
    let groups = 0..by.group_count();
    if par::worth_it(by.len()) {
        let groups = groups.into_par_iter().with_min_len(32);
        groups.map(|group| Moments::of_group(by, group, &at)).collect()
    } else {
        groups.map(|group| Moments::of_group(by, group, &at)).collect()
    }
}
