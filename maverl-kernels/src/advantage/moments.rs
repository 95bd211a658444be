//! Mean and deviation of groups, in one pass.

use rayon::prelude::*;

use super::Segments;
use crate::par;

/// How many, their mean, and the sum of squares of their distances to it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moments {
    /// How many; the sum of the weights, where there are weights.
    pub n: f64,
    /// Their mean; 0 if there are none.
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

    /// Of both together (Chan, Golub and LeVeque, 1983).
    fn and(self, other: Self) -> Self {
        if self.n == 0.0 || other.n == 0.0 {
            return if other.n == 0.0 { self } else { other };
        }
        let n = self.n + other.n;
        let apart = other.mean - self.mean;
        Self {
            n,
            mean: self.mean + apart * (other.n / n),
            m2: self.m2 + other.m2 + apart * apart * (self.n * other.n / n),
        }
    }

    /// Of values with weights. Distances are taken from the first value that counts, which is one of them: equal values
    /// have a deviation of exactly 0, and what cancels costs at most a factor `n` of f64's precision.
    fn sum(mut values: impl Iterator<Item = (f64, f64)>) -> Self {
        let Some((shift, first)) = values.find(|(_, weight)| *weight > 0.0) else {
            return Self::default();
        };
        let (mut n, mut s, mut q) = (first, 0.0, 0.0);
        for (value, weight) in values.filter(|(_, weight)| *weight > 0.0) {
            let d = value - shift;
            n += weight;
            s += weight * d;
            q += weight * d * d;
        }
        Self { n, mean: shift + s / n, m2: (q - s * s / n).max(0.0) }
    }
}

/// The moments of each group `[groups]`; `at` gives value and weight of a row.
///
/// Pieces are spread over threads; those of a group meet in their order, so the bits are the same on any number.
pub(crate) fn moments(by: &Segments, at: impl Fn(usize) -> (f64, f64) + Sync) -> Vec<Moments> {
    let piece = |p: usize| Moments::sum(by.piece(p).map(|place| at(by.row(place))));
    let count = by.starts().len() - 1;
    let pieces: Vec<Moments> = match par::worth_it(by.len()) {
        true => (0..count).into_par_iter().with_min_len(32).map(piece).collect(),
        false => (0..count).map(piece).collect(),
    };
    let Some(offsets) = by.pieces() else { return pieces };
    let of = |pair: &[u32]| &pieces[pair[0] as usize..pair[1] as usize];
    let together =
        |pieces: &[Moments]| pieces.iter().copied().fold(Moments::default(), Moments::and);
    offsets.windows(2).map(|pair| together(of(pair))).collect()
}
