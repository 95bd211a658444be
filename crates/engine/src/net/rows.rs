//! Rows of a forward pass.

use maverl_kernels::attention::Packing;

/// Rows packed one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Token ids `[N]`.
    pub ids: &'a [u32],
    /// Position of each token in its row, `[N]`.
    pub positions: &'a [u32],
    /// Bounds of the rows.
    pub packing: Packing<'a>,
}
