//! Loss of a critic.

use std::ops::AddAssign;

use super::Term;

/// Computes the clipped value loss. The derivative is with respect to `value`.
///
/// ```text
/// V' = V_old + clip(V − V_old, −range, range)
/// L  = max(huber(V − R), huber(V' − R))            ½ · max((V − R)², (V' − R)²) where `delta` is infinite
/// ```
///
/// PPO as implemented by its authors, see [2006.05990]; with [`huber`] as in MAPPO, [2103.01955].
///
/// [2006.05990]: https://arxiv.org/abs/2006.05990
/// [2103.01955]: https://arxiv.org/abs/2103.01955
pub fn clipped_value(value: f64, old: f64, target: f64, range: f64, delta: f64) -> Term {
    let clipped = old + (value - old).clamp(-range, range);
    let (free, cut) = (huber(value - target, delta), huber(clipped - target, delta));
    // If the clipped loss is larger, the value is at the bound and the gradient is 0.
    if free.value >= cut.value { free } else { Term::constant(cut.value) }
}

/// Bounds of the value loss; 0 means unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ValueLimits {
    /// Distance of a value from its old value at which the loss is clipped, as in [`clipped_value`].
    pub clip: f64,
    /// Distance of a value from its target at which the loss becomes linear, as in [`huber`].
    pub huber: f64,
}

/// Sums over values. Sums of several rows can be added.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ValueLoss {
    /// Total loss, `Σ w · loss`.
    pub loss: f64,
    /// Number of values with a clipped loss.
    pub clipped: u64,
    /// Number of values.
    pub values: u64,
}

impl AddAssign for ValueLoss {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.clipped += other.clipped;
        self.values += other.values;
    }
}

/// Computes the value loss of one row, with each value weighted by `weight`. Adds its derivatives by the values `[T]`.
///
/// # Panics
///
/// If the lengths differ.
pub fn value_loss(
    [values, old, returns]: [&[f32]; 3],
    weight: f64,
    limits: ValueLimits,
    d_values: &mut [f32],
) -> ValueLoss {
    let n = values.len();
    assert!([old.len(), returns.len(), d_values.len()] == [n; 3], "value_loss: {n} values");
    let ValueLimits { clip, huber: delta } = limits;
    let delta = if delta == 0.0 { f64::INFINITY } else { delta };
    let mut sums = ValueLoss { values: n as u64, ..ValueLoss::default() };
    for (t, d_value) in d_values.iter_mut().enumerate() {
        let [value, old, target] = [values[t], old[t], returns[t]].map(f64::from);
        let term = match clip {
            0.0 => huber(value - target, delta),
            _ => clipped_value(value, old, target, clip, delta),
        };
        sums.loss += weight * term.value;
        sums.clipped += u64::from(clip != 0.0 && (value - old).abs() > clip);
        *d_value += (weight * term.grad) as f32;
    }
    sums
}

/// Computes Huber's loss of an error: quadratic up to `delta`, linear beyond, on both sides.
///
/// ```text
/// L = e² / 2                        |e| ≤ delta
/// L = delta · (|e| − delta / 2)     else
/// ```
pub fn huber(error: f64, delta: f64) -> Term {
    if error.abs() <= delta {
        Term { value: error * error / 2.0, grad: error }
    } else {
        Term { value: delta * (error.abs() - delta / 2.0), grad: delta * error.signum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::central;

    #[test]
    fn the_slopes_of_a_row_are_the_derivatives_of_its_loss() {
        let (values, old, returns) =
            ([0.3_f32, 0.9, -0.4, 0.1], [0.2_f32, 0.1, 0.5, 0.1], [1.0_f32, 0.0, 1.0, 0.1]);
        for (clip, huber) in [(0.0, 0.0), (0.2, 0.0), (5.0, 0.0), (0.0, 0.5), (0.2, 0.5)] {
            let mut grads = [0.0; 4];
            let limits = ValueLimits { clip, huber };
            let sums = value_loss([&values, &old, &returns], 0.25, limits, &mut grads);
            assert_eq!(sums.values, 4);
            assert_eq!(sums.clipped, if clip == 0.2 { 2 } else { 0 });
            let [range, delta] = [clip, huber].map(|limit| if limit == 0.0 { 1e9 } else { limit });
            for (t, grad) in grads.iter().enumerate() {
                let [old, target] = [old[t], returns[t]].map(f64::from);
                let loss = |value| 0.25 * clipped_value(value, old, target, range, delta).value;
                let want = central(loss, f64::from(values[t]));
                assert!((f64::from(*grad) - want).abs() < 1e-6, "{limits:?}, {t}: {grad}, {want}");
            }
        }
    }
}
