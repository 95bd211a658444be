//! What a critic loses.

use std::ops::AddAssign;

use super::Term;

/// The clipped value loss; the derivative is with respect to `value`.
///
/// ```text
/// V' = V_old + clip(V − V_old, −range, range)
/// L  = ½ · max((V − R)², (V' − R)²)
/// ```
///
/// PPO as implemented by its authors; see [2006.05990].
///
/// [2006.05990]: https://arxiv.org/abs/2006.05990
pub fn clipped_value(value: f64, old: f64, target: f64, range: f64) -> Term {
    let clipped = old + (value - old).clamp(-range, range);
    let (free, cut) = (value - target, clipped - target);
    if free.abs() >= cut.abs() {
        Term { value: free * free / 2.0, slope: free }
    } else {
        // The clip is what made it larger, so it is at its bound and does not move.
        Term::flat(cut * cut / 2.0)
    }
}

/// Sums over values; those of rows add up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ValueLoss {
    /// `Σ w · loss`.
    pub loss: f64,
    /// Values that the clip held back.
    pub clipped: u64,
    /// How many values.
    pub values: u64,
}

impl AddAssign for ValueLoss {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.clipped += other.clipped;
        self.values += other.values;
    }
}

/// The value loss of one row, each value of which counts `weight`; adds its derivatives by the values `[T]`.
///
/// `range` is that of [`clipped_value`]; 0 is no clip.
///
/// # Panics
///
/// If the lengths differ.
pub fn value_loss(
    [values, old, returns]: [&[f32]; 3],
    weight: f64,
    range: f64,
    d_values: &mut [f32],
) -> ValueLoss {
    let n = values.len();
    assert!([old.len(), returns.len(), d_values.len()] == [n; 3], "value_loss: {n} values");
    let mut sums = ValueLoss { values: n as u64, ..ValueLoss::default() };
    for (t, d_value) in d_values.iter_mut().enumerate() {
        let [value, old, target] = [values[t], old[t], returns[t]].map(f64::from);
        let free = value - target;
        let term = match range {
            0.0 => Term { value: free * free / 2.0, slope: free },
            _ => clipped_value(value, old, target, range),
        };
        sums.loss += weight * term.value;
        sums.clipped += u64::from(range != 0.0 && (value - old).abs() > range);
        *d_value += (weight * term.slope) as f32;
    }
    sums
}

/// Huber's loss of an error: quadratic to `delta`, linear beyond, on both sides.
///
/// ```text
/// L = e² / 2                        |e| ≤ delta
/// L = delta · (|e| − delta / 2)     else
/// ```
pub fn huber(error: f64, delta: f64) -> Term {
    if error.abs() <= delta {
        Term { value: error * error / 2.0, slope: error }
    } else {
        Term { value: delta * (error.abs() - delta / 2.0), slope: delta * error.signum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::testing::central;

    #[test]
    fn the_slopes_of_a_row_are_the_derivatives_of_its_loss() {
        let (values, old, returns) =
            ([0.3_f32, 0.9, -0.4, 0.1], [0.2_f32, 0.1, 0.5, 0.1], [1.0_f32, 0.0, 1.0, 0.1]);
        for range in [0.0, 0.2, 5.0] {
            let mut slopes = [0.0; 4];
            let sums = value_loss([&values, &old, &returns], 0.25, range, &mut slopes);
            assert_eq!(sums.values, 4);
            assert_eq!(sums.clipped, if range == 0.2 { 2 } else { 0 });
            for (t, slope) in slopes.iter().enumerate() {
                let [old, target] = [old[t], returns[t]].map(f64::from);
                let range = if range == 0.0 { 1e9 } else { range };
                let loss = |value| 0.25 * clipped_value(value, old, target, range).value;
                let want = central(loss, f64::from(values[t]));
                assert!((f64::from(*slope) - want).abs() < 1e-6, "{range}, {t}: {slope}, {want}");
            }
        }
    }
}
