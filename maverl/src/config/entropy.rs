//! `[algorithm.adaptive_entropy]`: the controller of `loss.entropy_coef`.

use serde::Serialize;

use crate::settings::Settings;

/// Controller of `entropy_coef`, of each policy alone (Skywork-OR1, [2505.22312] §4.3).
///
/// ```text
/// applied   c if the entropy of the step before was at most the target, else 0; in the first step c
/// c ← clip(c + change, low, high)     if the entropy of this step is at most the target
/// c ← clip(c − change, low, high)     if it is above it
/// ```
///
/// [2505.22312]: https://arxiv.org/abs/2505.22312
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "AdaptiveEntropyConfig", level = "team")]
pub struct AdaptiveEntropy {
    /// Entropy of a policy in nats, at or below which `entropy_coef` grows; 0 keeps it constant.
    #[setting(default = 0.0, range = 0.0..)]
    pub target: f64,
    /// Change of `entropy_coef` in a step.
    #[setting(default = 0.005, range = above(0.0).., idle_when = "target = 0")]
    pub change: f64,
    /// Least value of `entropy_coef`.
    #[setting(default = 0.0, range = 0.0.., idle_when = "target = 0")]
    pub low: f64,
    /// Largest value of `entropy_coef`.
    #[setting(default = 1.0, range = 0.0.., idle_when = "target = 0")]
    pub high: f64,
}

impl AdaptiveEntropy {
    /// Returns the coefficient that a step has, by that of the controller and the entropy of the step before.
    pub(crate) fn applied(&self, coefficient: f64, before: Option<f64>) -> f64 {
        let needed = before.is_none_or(|entropy| entropy <= self.target);
        if needed { coefficient } else { 0.0 }
    }

    /// Returns the coefficient after a step with a mean entropy.
    pub(crate) fn next(&self, coefficient: f64, entropy: f64) -> f64 {
        let change = if entropy <= self.target { self.change } else { -self.change };
        (coefficient + change).max(self.low).min(self.high)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{assert_close, learning, numbers};

    #[test]
    fn coefficients_are_the_recorded_ones() {
        let case = learning("regularizer/adaptive_entropy");
        let [start, target, change, low, high] = ["start", "target", "change", "low", "high"]
            .map(|key| case["params"][key].as_f64().unwrap());
        let controller = AdaptiveEntropy { target, change, low, high };
        let (mut coefficient, mut before) = (start, None);
        let steps = case["outputs"]["steps"].as_array().unwrap();
        for (entropy, step) in numbers(&case["inputs"]["entropies"]).into_iter().zip(steps) {
            let wanted = ["applied", "coef"].map(|key| step[key].as_f64().unwrap());
            let found = [controller.applied(coefficient, before), coefficient];
            assert_close("step", &found, &wanted, 1e-12);
            (coefficient, before) = (controller.next(coefficient, entropy), Some(entropy));
        }
        assert_close("end", &[coefficient], &[case["outputs"]["end"].as_f64().unwrap()], 1e-12);
    }
}
