//! Norms of a decoder.

use crate::files::parts::Gain;
use crate::net::memory::{Cpu, Memory};
use crate::net::values::Param;

/// RMS norm of each row, with the `weight [D]` of a checkpoint, which gives the gain: itself, or one more:
///
/// ```text
/// y = gain x / sqrt(mean(x²) + eps)
/// ```
#[derive(Debug, Clone)]
pub struct Norm<O: Memory = Cpu> {
    pub(super) weight: Param<O>,
    /// Constant added to the mean square.
    pub(super) eps: f32,
    /// Gain by the weight.
    pub(super) gain: Gain,
}

impl Norm {
    /// Calls `f` with the gains `[D]`. Sums with 1 are taken in f32 and not stored, as weights of bf16 would lose digits.
    pub(super) fn with_gains<R>(&self, f: impl FnOnce(&[f32]) -> R) -> R {
        let weight = self.weight.values();
        match self.gain {
            Gain::Weight => f(&weight),
            Gain::OnePlus => f(&weight.iter().map(|w| 1.0 + w).collect::<Vec<_>>()),
        }
    }
}
