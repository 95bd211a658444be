//! What a critic loses.

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
