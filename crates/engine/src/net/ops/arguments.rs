//! Arguments of operations.

use maverl_kernels::attention::Segment;

use crate::net::memory::Memory;
use crate::net::norm::Norm;

/// Row of a new token whose id the host gives.
pub const FROM_HOST: u32 = u32::MAX;

/// Tokens that a device has sampled and the host may not have read, as ids of new tokens.
#[derive(Debug)]
pub struct DrawnIds<'a, O: Memory> {
    /// The tokens.
    pub drawn: &'a O::Drawn,
    /// Row of each new token among them, or [`FROM_HOST`].
    pub rows: &'a [u32],
    /// Number of ids that a model knows. Larger ids are replaced by any other.
    pub vocab: usize,
}

impl<O: Memory> Clone for DrawnIds<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Memory> Copy for DrawnIds<'_, O> {}

/// New tokens of cached sequences.
#[derive(Debug)]
pub struct NewTokens<'a, O: Memory> {
    /// Ids `[N]`. Where the device has the id, it is any.
    pub ids: &'a [u32],
    /// Positions `[N]`.
    pub positions: &'a [u32],
    /// Sequences, in order.
    pub segments: &'a [Segment<'a>],
    /// Ids that the device has.
    pub drawn: Option<DrawnIds<'a, O>>,
}

impl<O: Memory> Clone for NewTokens<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Memory> Copy for NewTokens<'_, O> {}

/// Target tokens of hidden states: the same number `k` of each, usually one.
#[derive(Debug, Clone, Copy)]
pub struct Targets<'a> {
    /// Token ids `[M, k]`, in the vocabulary.
    pub ids: &'a [u32],
    /// Inverse temperatures `[M]`, positive.
    pub inv_temperature: &'a [f32],
}

impl Targets<'_> {
    /// Returns the number of targets of a hidden state; 1 without hidden states.
    pub fn each(&self) -> usize {
        self.ids.len().checked_div(self.inv_temperature.len()).unwrap_or(1)
    }
}

/// Norm and rope of the queries or keys of a layer.
#[derive(Debug)]
pub struct HeadTurn<'a, O: Memory> {
    /// Number of heads.
    pub heads: usize,
    /// Norm, if there is one: of each head, or of all heads together, by its width.
    pub norm: Option<&'a Norm<O>>,
    /// Angles of the positions, if they have an effect.
    pub rope: Option<&'a O::Rope>,
}
