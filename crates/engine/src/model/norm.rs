//! Norms of a decoder.

use crate::model::ops::{Cpu, Ops};
use crate::model::values::Param;

/// RMS norm of each row, with the `weight [D]` of a checkpoint:
///
/// ```text
/// y = weight x / sqrt(mean(x²) + eps)
/// ```
#[derive(Debug, Clone)]
pub struct Norm<O: Ops = Cpu> {
    pub(super) weight: Param<O>,
    /// Constant added to the mean square.
    pub(super) eps: f32,
}
