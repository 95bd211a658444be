//! Loss of a verifier.

use super::Term;

/// Computes the binary cross-entropy of a logit against a target from 0 to 1. The derivative is with respect to the logit.
///
/// ```text
/// L = log(1 + exp(z)) − y z,   dL/dz = σ(z) − y
/// ```
///
/// The loss of verifiers, [2110.14168](https://arxiv.org/abs/2110.14168) section 4.
pub fn cross_entropy(logit: f64, target: f64) -> Term {
    let value = logit.max(0.0) + libm::log1p(libm::exp(-logit.abs())) - target * logit;
    Term { value, grad: 1.0 / (1.0 + libm::exp(-logit)) - target }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::central;

    #[test]
    fn the_slope_is_the_derivative_and_the_loss_is_lowest_at_the_target() {
        for target in [0.0, 0.3, 1.0] {
            for logit in [-40.0, -3.0, -0.1, 0.0, 0.7, 5.0, 40.0] {
                let want = central(|z| cross_entropy(z, target).value, logit);
                let term = cross_entropy(logit, target);
                assert!((term.grad - want).abs() < 1e-6, "{logit} {target}");
                assert!(term.value.is_finite() && term.value >= -1e-12);
            }
        }
        assert_eq!(cross_entropy(0.0, 0.5).grad, 0.0);
        assert!((cross_entropy(0.0, 1.0).value - 2.0_f64.ln()).abs() < 1e-15);
    }
}
