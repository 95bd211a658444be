//! Scale of the loss of a model with products in f16 (Micikevicius et al., 2018, arXiv:1710.03740, §3.2).
//!
//! f16 has no number between 0 and 6·10⁻⁸, so small gradients would vanish where products round them. The derivatives of a
//! loss are therefore multiplied by a scale `s = 2ᵏ`. The norm of the gradient and the factor of the optimizer are divided by
//! it. Both are exact, because `s` is a power of two.
//!
//! ```text
//! norm not finite     the optimizer step is skipped: weights, moments and their counter stay;  s ← s / 2,  good ← 0
//! else                good ← good + 1;  at `every`:  s ← 2 s, up to 2²⁴,  good ← 0
//! ```
//!
//! An overflow at `s = 1` is an error, because a smaller scale would only hide it. The norm is that of the gradients of all ranks,
//! so all ranks take the same decision.

use serde::{Deserialize, Serialize};

use crate::files::ModelError;
use crate::settings::Settings;

/// Name of the tensor with the scale and its counters in a checkpoint.
pub(crate) const SCALE: &str = "loss_scale";

/// Exponent of the largest scale.
const LARGEST: u32 = 24;

/// Scale of the loss: `loss_scale = { .. }` of a model with products in f16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Settings)]
#[settings(partial = "LossScaleConfig", level = "policy", crate = crate)]
pub struct LossScaleOptions {
    /// First scale of the loss, a power of two.
    #[setting(default = 65_536, range = 1..=16_777_216)]
    pub start: u64,
    /// Optimizer steps without an overflow after which the scale is doubled, up to 16777216.
    #[setting(default = 400, range = 1..=1_048_576)]
    pub every: u64,
}

/// Scale of the loss of a model with products in f16.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ScaleStats {
    /// Scale of the next optimizer step.
    pub scale: f64,
    /// Optimizer steps that were skipped because a gradient overflowed, of all updates.
    pub skipped: u64,
}

/// Scale of the loss of a policy or a critic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LossScale {
    /// The scale is 2ᵏ.
    k: u32,
    /// Optimizer steps since the scale changed or a step was skipped.
    good: u64,
    /// Optimizer steps that were skipped.
    skipped: u64,
    /// Steps after which the scale is doubled.
    every: u64,
}

impl LossScale {
    /// Creates the first scale.
    ///
    /// Fails if it is no power of two up to 2²⁴.
    pub(crate) fn new(options: LossScaleOptions) -> Result<Self, ModelError> {
        let LossScaleOptions { start, every } = options;
        if !start.is_power_of_two() || start.ilog2() > LARGEST {
            let what =
                format!("`loss_scale.start` is {start}; write a power of two, up to 16777216");
            return Err(ModelError::wrong_argument(what));
        }
        Ok(Self { k: start.ilog2(), good: 0, skipped: 0, every })
    }

    /// Returns the scale.
    pub(crate) fn factor(&self) -> f32 {
        (1_u32 << self.k) as f32
    }

    /// Counts an optimizer step that is taken.
    pub(crate) fn count_step(&mut self) {
        self.good += 1;
        if self.good >= self.every {
            (self.k, self.good) = (LARGEST.min(self.k + 1), 0);
        }
    }

    /// Counts an optimizer step that is skipped. Returns false if the scale is 1, so that no smaller one is left.
    pub(crate) fn skip_step(&mut self) -> bool {
        let Some(k) = self.k.checked_sub(1) else { return false };
        (self.k, self.good, self.skipped) = (k, 0, self.skipped + 1);
        true
    }

    /// Returns the statistics of an update.
    pub(crate) fn stats(&self) -> ScaleStats {
        ScaleStats { scale: f64::from(self.factor()), skipped: self.skipped }
    }

    /// Returns the scale and its counters for a checkpoint. Each number holds at most 24 bits.
    pub(crate) fn saved(&self) -> [f32; 5] {
        let [good, skipped] = [self.good, self.skipped].map(|n| [n >> 24, n & 0xff_ffff]);
        [u64::from(self.k), good[0], good[1], skipped[0], skipped[1]].map(|part| part as f32)
    }

    /// Restores what [`LossScale::saved`] returned.
    pub(crate) fn restore(&mut self, saved: &[f32]) {
        let mut parts = [0; 5];
        parts.iter_mut().zip(saved).for_each(|(part, &number)| *part = number as u64);
        let [k, good, good_low, skipped, skipped_low] = parts;
        self.k = LARGEST.min(k as u32);
        (self.good, self.skipped) = (good << 24 | good_low, skipped << 24 | skipped_low);
    }
}

/// Returns the factor of a scale; 1 without one.
pub(crate) fn factor_of(scale: Option<&LossScale>) -> f32 {
    scale.map_or(1.0, LossScale::factor)
}

/// Multiplies derivatives of a loss by a scale, if there is one.
pub(crate) fn scale_slopes(scale: Option<&LossScale>, slopes: &mut [f32]) {
    if let Some(scale) = scale {
        let factor = scale.factor();
        slopes.iter_mut().for_each(|slope| *slope *= factor);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn scale(start: u64, every: u64) -> LossScale {
        LossScale::new(LossScaleOptions { start, every }).unwrap()
    }

    /// Returns the scales after steps, of which `x` overflows.
    fn after(scale: &mut LossScale, steps: &str) -> Vec<f32> {
        let mut found = Vec::new();
        for step in steps.chars() {
            match step {
                'x' => assert!(scale.skip_step()),
                _ => scale.count_step(),
            }
            found.push(scale.factor());
        }
        found
    }

    #[test]
    fn a_scale_halves_at_an_overflow_and_doubles_after_as_many_steps_without_one() {
        let mut scale = scale(8, 3);
        assert_eq!(after(&mut scale, "..x.."), [8.0, 8.0, 4.0, 4.0, 4.0]);
        // An overflow begins the count again, and so does a growth.
        assert_eq!(after(&mut scale, "....."), [8.0, 8.0, 8.0, 16.0, 16.0]);
        assert_eq!(after(&mut scale, "xx"), [8.0, 4.0]);
        assert_eq!(scale.stats(), ScaleStats { scale: 4.0, skipped: 3 });
    }

    #[test]
    fn a_scale_grows_up_to_two_to_the_24_and_an_overflow_at_1_leaves_none() {
        let mut largest = scale(1 << 24, 1);
        assert_eq!(after(&mut largest, ".."), [16_777_216.0; 2]);
        let mut least = scale(1, 400);
        assert!(!least.skip_step());
        assert_eq!(least.stats(), ScaleStats { scale: 1.0, skipped: 0 });
    }

    #[test]
    fn a_scale_that_is_saved_and_restored_goes_on_as_if_it_had_not_been() {
        let mut scale = scale(8, 3);
        after(&mut scale, ".x..");
        let mut other = self::scale(65_536, 3);
        other.restore(&scale.saved());
        assert_eq!(other, scale);
        assert_eq!(after(&mut other, "..x"), after(&mut scale, "..x"));
        let large = LossScale { good: 1 << 30, skipped: (1 << 40) + 1, ..scale };
        other.restore(&large.saved());
        assert_eq!(other, large);
    }

    #[test]
    fn a_first_scale_that_is_no_power_of_two_is_refused() {
        for start in [0, 1000, 1 << 25] {
            let error = LossScale::new(LossScaleOptions { start, every: 3 }).unwrap_err();
            assert!(
                error.to_string().contains(&format!("`loss_scale.start` is {start}")),
                "{error}"
            );
        }
    }
}
