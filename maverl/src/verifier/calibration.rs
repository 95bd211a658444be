//! Calibration of logits: their probabilities, with a slope and an offset that are fitted to rows which were not trained on.

/// Bounds of the slope 1 / T.
const BOUNDS: (f64, f64) = (1e-3, 1e3);
/// Halvings of an interval: of the logarithm of the slope, and of the offset.
const HALVINGS: usize = 60;

/// From logits to probabilities: `p = 1 / (1 + exp(−(z / T + c)))`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Calibration {
    /// Divisor T of logits.
    pub(crate) temperature: f64,
    /// Offset c.
    pub(crate) offset: f64,
}

impl Calibration {
    /// Probabilities of the logits as they are.
    pub(crate) const NONE: Self = Self { temperature: 1.0, offset: 0.0 };

    /// Returns the log-odds of a logit.
    pub(crate) fn odds(&self, logit: f64) -> f64 {
        logit / self.temperature + self.offset
    }

    /// Returns the probability of a logit.
    pub(crate) fn probability(&self, logit: f64) -> f64 {
        sigmoid(self.odds(logit))
    }

    /// Fits slope and offset by Platt scaling ([1706.04599](https://arxiv.org/abs/1706.04599), section 4.1). Nothing is scaled
    /// without a right and a wrong row.
    ///
    /// ```text
    /// minimize  −Σ t log p + (1 − t) log(1 − p),   t = (P + 1) / (P + 2) of the P right rows, 1 / (N + 2) of the N wrong ones
    /// ```
    ///
    /// - The targets are Platt's: those of a row more of each label, so that logits which separate the labels have a finite slope.
    ///   scikit-learn's `CalibratedClassifierCV` has the same.
    /// - The slope stays within 0.001 and 1000: it is positive, so that the order of the logits is that of the probabilities.
    pub(crate) fn fit(logits: &[f64], labels: &[bool]) -> Self {
        let Some([right, wrong]) = class_sizes(labels) else { return Self::NONE };
        let (high, low) = ((right as f64 + 1.0) / (right as f64 + 2.0), 1.0 / (wrong as f64 + 2.0));
        let rows: Vec<(f64, f64)> = logits
            .iter()
            .zip(labels)
            .map(|(logit, label)| (*logit, if *label { high } else { low }))
            .collect();
        // The minimum over the offset is convex in the slope, and its derivative is that at the best offset.
        let log_slope = bisect_zero((libm::log(BOUNDS.0), libm::log(BOUNDS.1)), |log_slope| {
            let slope = libm::exp(log_slope);
            let offset = best_offset(&rows, slope);
            rows.iter().map(|(z, t)| (sigmoid(slope * z + offset) - t) * z).sum()
        });
        let slope = libm::exp(log_slope);
        Self { temperature: 1.0 / slope, offset: best_offset(&rows, slope) }
    }
}

/// Returns the numbers of right and of wrong rows; `None` without both.
pub(super) fn class_sizes(labels: &[bool]) -> Option<[usize; 2]> {
    let right = labels.iter().filter(|label| **label).count();
    Some([right, labels.len() - right]).filter(|sizes| !sizes.contains(&0))
}

/// Computes the offset of the lowest loss at a slope.
///
/// ```text
/// Σ σ(s z + c) − t = 0          the sum grows with c, and its sign is known beyond ±(|s z| + 40)
/// ```
fn best_offset(rows: &[(f64, f64)], slope: f64) -> f64 {
    let far = rows.iter().map(|(z, _)| (slope * z).abs()).fold(0.0, f64::max) + 40.0;
    bisect_zero((-far, far), |offset| {
        rows.iter().map(|(z, t)| sigmoid(slope * z + offset) - t).sum()
    })
}

/// Returns the place in an interval at which a growing function is 0.
fn bisect_zero((mut low, mut high): (f64, f64), of: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if of(middle) > 0.0 { high = middle } else { low = middle }
    }
    f64::midpoint(low, high)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::rng::SplitMix64;
    use crate::verifier::statistics;

    fn rows() -> (Vec<f64>, Vec<bool>) {
        let logits: Vec<f64> = (0..200).map(|i| f64::from(i % 41) / 4.0 - 5.0).collect();
        let labels = logits.iter().zip(0..).map(|(z, i)| *z > 0.0 || i % 3 == 0).collect();
        (logits, labels)
    }

    /// `_sigmoid_calibration(-z, y)` of scikit-learn 1.9.1, whose p is 1 / (1 + exp(a f + b)).
    #[test]
    fn slope_and_offset_are_those_of_scikit_learn() {
        let (logits, labels) = rows();
        let found = Calibration::fit(&logits, &labels);
        assert!((1.0 / found.temperature - 0.584_920_51).abs() < 1e-7, "{found:?}");
        assert!((found.offset - 1.064_494_33).abs() < 1e-7, "{found:?}");
    }

    #[test]
    fn an_offset_of_the_logits_and_their_scale_are_found() {
        let mut rng = SplitMix64::new(3);
        let odds: Vec<f64> = (0..4000).map(|i| f64::from(i % 81) / 10.0 - 4.0).collect();
        let drawn = |odds: &f64| {
            (rng.index(1 << 20) as f64) < Calibration::NONE.probability(*odds) * f64::from(1 << 20)
        };
        let labels: Vec<bool> = odds.iter().map(drawn).collect();
        let logits: Vec<f64> = odds.iter().map(|odds| 3.0 * (odds - 0.7)).collect();
        let found = Calibration::fit(&logits, &labels);
        assert!(
            (found.temperature - 3.0).abs() < 0.25 && (found.offset - 0.7).abs() < 0.1,
            "{found:?}"
        );
        let ece = |calibration| statistics(&logits, &labels, calibration).unwrap().ece;
        assert!(ece(found) < 0.03 && ece(Calibration::NONE) > 0.05);
    }

    #[test]
    fn logits_that_separate_or_mislead_stay_within_the_bounds() {
        assert_eq!(Calibration::fit(&[1.0, 2.0], &[true, true]), Calibration::NONE);
        let apart = Calibration::fit(&[1.0, -1.0], &[true, false]);
        // Targets of 2/3 and 1/3.
        assert!((apart.temperature - 1.0 / 2f64.ln()).abs() < 1e-9 && apart.offset.abs() < 1e-9);
        let misled = Calibration::fit(&[1.0, -1.0], &[false, true]);
        assert!((misled.temperature - 1e3).abs() < 1e-3, "{misled:?}");
        let equal = Calibration::fit(&[2.0; 4], &[true, true, true, false]);
        assert!((equal.probability(2.0) - (3.0 * 4.0 / 5.0 + 1.0 / 3.0) / 4.0).abs() < 1e-9);
    }
}
