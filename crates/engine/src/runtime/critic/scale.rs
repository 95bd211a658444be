//! Normalization of values by running statistics of returns.

/// Running mean and deviation of returns, with exponential decay. Values are normalized by them.
///
/// ```text
/// m = 0.99 m + 0.01 mean(G),   s = 0.99 s + 0.01 mean(G²),   w = 0.99 w + 0.01
/// μ = m / w,   σ² = max(s / w − μ², 0.01)                    before any: μ = 0, σ = 1
/// ```
///
/// The normalization of MAPPO, [2103.01955](https://arxiv.org/abs/2103.01955), over steps instead of minibatches.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Scale {
    /// Running sums `[m, s, w]`.
    pub sums: [f32; 3],
}

impl Scale {
    const DECAY: f64 = 0.99;
    const SMALLEST_VARIANCE: f64 = 0.01;

    /// Updates the statistics with the returns of a step, at least one.
    pub fn update(&mut self, returns: &[f64]) {
        let n = returns.len().max(1) as f64;
        let means = [
            returns.iter().sum::<f64>() / n,
            returns.iter().map(|value| value * value).sum::<f64>() / n,
            1.0,
        ];
        for (sum, mean) in self.sums.iter_mut().zip(means) {
            *sum = (Self::DECAY * f64::from(*sum) + (1.0 - Self::DECAY) * mean) as f32;
        }
    }

    /// Returns `(μ, σ)`.
    pub fn moments(&self) -> (f64, f64) {
        let [mean, square, weight] = self.sums.map(f64::from);
        if weight == 0.0 {
            return (0.0, 1.0);
        }
        let mean = mean / weight;
        (mean, (square / weight - mean * mean).max(Self::SMALLEST_VARIANCE).sqrt())
    }

    /// Returns values in the units of the head.
    pub(super) fn all_normalized(self, values: &[f32]) -> Vec<f32> {
        values.iter().map(|&value| self.normalize_value(value)).collect()
    }

    /// Normalizes a value.
    pub fn normalize_value(&self, value: f32) -> f32 {
        let (mean, deviation) = self.moments();
        ((f64::from(value) - mean) / deviation) as f32
    }

    /// Denormalizes a value.
    pub fn value(&self, normalized: f32) -> f32 {
        let (mean, deviation) = self.moments();
        (f64::from(normalized) * deviation + mean) as f32
    }

    /// Returns the factor and the offset for a head that keep its denormalized values when the statistics change from
    /// `before` to these (PopArt, [1602.07714](https://arxiv.org/abs/1602.07714)).
    pub fn preserving(&self, before: &Self) -> (f32, f32) {
        let ((old_mean, old), (mean, new)) = (before.moments(), self.moments());
        ((old / new) as f32, ((old_mean - mean) / new) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_step_is_measured_in_its_own_mean_and_deviation() {
        let mut scale = Scale::default();
        assert_eq!((scale.moments(), scale.value(0.5)), ((0.0, 1.0), 0.5));
        scale.update(&[1.0, 3.0]);
        let (mean, deviation) = scale.moments();
        assert!((mean - 2.0).abs() < 1e-5 && (deviation - 1.0).abs() < 1e-5);
        assert!((scale.value(scale.normalize_value(1.7)) - 1.7).abs() < 1e-6);
    }

    #[test]
    fn what_preserves_a_head_preserves_every_value() {
        let (mut before, head) = (Scale::default(), [0.3_f32, -2.0, 1.5]);
        before.update(&[0.0, 1.0, 1.0]);
        let mut after = before;
        after.update(&[5.0, -3.0, 8.0]);
        let (by, plus) = after.preserving(&before);
        for said in head {
            assert!((after.value(by * said + plus) - before.value(said)).abs() < 1e-5);
        }
    }
}
