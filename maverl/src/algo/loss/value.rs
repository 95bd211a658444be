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
