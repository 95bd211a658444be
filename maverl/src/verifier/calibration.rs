//! Temperature scaling of logits ([1706.04599](https://arxiv.org/abs/1706.04599), section 4.2).

use super::probability;

/// Bounds of the inverse temperature.
const BOUNDS: (f64, f64) = (1e-3, 1e3);
/// Halvings of the interval of its logarithm: to 1e-15.
const HALVINGS: usize = 60;

/// Computes the temperature of the lowest negative log-likelihood, within 0.001 and 1000; 1 without a right and a wrong row.
///
/// ```text
/// d NLL / dβ = Σ (σ(β z) − y) z = 0,   T = 1 / β          the sum grows with β, so the interval is halved
/// ```
pub(crate) fn temperature(logits: &[f64], labels: &[bool]) -> f64 {
    let right = labels.iter().filter(|label| **label).count();
    if right == 0 || right == labels.len() {
        return 1.0;
    }
    let slope = |beta: f64| {
        let term = |(&logit, &label): (&f64, &bool)| {
            (probability(logit, 1.0 / beta) - if label { 1.0 } else { 0.0 }) * logit
        };
        logits.iter().zip(labels).map(term).sum::<f64>()
    };
    let (mut low, mut high) = (BOUNDS.0.ln(), BOUNDS.1.ln());
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if slope(middle.exp()) > 0.0 { high = middle } else { low = middle }
    }
    (-f64::midpoint(low, high)).exp()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::verifier::statistics;

    #[test]
    fn no_other_temperature_has_a_lower_likelihood() {
        let logits: Vec<f64> = (0..200).map(|i| f64::from(i % 41) / 4.0 - 5.0).collect();
        let labels: Vec<bool> =
            logits.iter().zip(0..).map(|(z, i)| *z > 0.0 || i % 3 == 0).collect();
        let best = temperature(&logits, &labels);
        let nll = |t: f64| statistics(&logits, &labels, t).unwrap().nll;
        for factor in [0.5, 0.9, 0.99, 1.01, 1.1, 2.0] {
            assert!(nll(best * factor) > nll(best), "{best} {factor}");
        }
    }

    #[test]
    fn logits_that_separate_or_mislead_stay_within_the_bounds() {
        assert_eq!(temperature(&[1.0, 2.0], &[true, true]), 1.0);
        assert!((temperature(&[1.0, -1.0], &[true, false]) - 1e-3).abs() < 1e-6);
        assert!((temperature(&[1.0, -1.0], &[false, true]) - 1e3).abs() < 1e-3);
    }
}
