//! Norms of a decoder.

use crate::net::memory::{Cpu, Memory};
use crate::net::values::Param;

/// RMS norm of each row, with the `weight [D]` of a checkpoint:
///
/// ```text
/// y = weight x / sqrt(mean(x²) + eps)
/// ```
#[derive(Debug, Clone)]
pub struct Norm<O: Memory = Cpu> {
    pub(super) weight: Param<O>,
    /// Constant added to the mean square.
    pub(super) eps: f32,
}
