//! Weights of a decoder.

use std::ops::Deref;
#[cfg(any(feature = "cuda", feature = "candle"))]
use std::ops::Range;
#[cfg(feature = "candle")]
use std::sync::Arc;

use super::Tensor;
#[cfg(feature = "candle")]
use crate::files::gguf::BlockMatrix;
use crate::net::memory::{Cpu, Memory};

/// A weight: its values, and the slot of its gradient.
#[derive(Debug, Clone)]
pub struct Param<O: Memory = Cpu> {
    tensor: Tensor<O>,
    slot: Option<usize>,
}

impl<O: Memory> Param<O> {
    /// Creates a weight over an array's storage. `slot` is its index in
    /// [`Model::trainable`](crate::net::Model::trainable). A weight without one is frozen, and its gradient is never
    /// computed.
    pub fn new(tensor: Tensor<O>, slot: Option<usize>) -> Self {
        Self { tensor, slot }
    }

    /// Returns its index among the trainable weights.
    pub fn slot(&self) -> Option<usize> {
        self.slot
    }

    /// Borrows the array that holds the weight, with its place there.
    #[cfg(any(feature = "cuda", feature = "candle"))]
    pub(in crate::net) fn read(&self) -> (impl Deref<Target = O::Weights>, Range<usize>) {
        (self.tensor.storage.read(), self.tensor.range())
    }

    /// Returns its numbers in the blocks of a file, if they are there in place of values.
    #[cfg(feature = "candle")]
    pub(in crate::net) fn blocks(&self) -> Option<&Arc<BlockMatrix>> {
        self.tensor.blocks.as_ref()
    }

    /// Returns true if its values are in memory: see [`Params::keep`](super::Params::keep).
    pub(in crate::net) fn has_values(&self) -> bool {
        self.tensor.has_values()
    }

    /// Freezes the weight.
    pub(in crate::net) fn freeze(&mut self) {
        self.slot = None;
    }

    /// Returns the sizes of its dimensions.
    pub fn dims(&self) -> &[usize] {
        self.tensor.dims()
    }
}

impl Param {
    /// Borrows the current values.
    pub fn values(&self) -> impl Deref<Target = [f32]> {
        self.tensor.values()
    }
}
