//! Reusable buffers, so that a repeated forward pass allocates nothing.

use std::ops::Range;

use crate::net::memory::{Cpu, Memory};

/// Buffers of a device that are not in use.
#[derive(Debug)]
pub struct Pool<O: Memory = Cpu> {
    spare: O::Spare,
    /// Buffers of threads that process rows of their own.
    pub(super) shares: Vec<ThreadBuffers<O>>,
}

/// Buffers of a thread that processes rows of its own.
#[derive(Debug)]
pub struct ThreadBuffers<O: Memory = Cpu> {
    /// Tokens of the thread, `start..end` of the pass.
    pub(super) rows: Range<usize>,
    /// Buffers of the thread.
    pub(super) pool: Pool<O>,
    /// Residual stream of the thread's rows.
    pub(super) x: O::Stream,
    /// Inputs of the current layer's mixer.
    pub(super) inputs: MixerInputs<O>,
    /// Hidden states after the last norm.
    pub(super) hidden: O::Act,
}

/// Inputs of a layer's attention.
#[derive(Debug)]
pub struct Projected<O: Memory> {
    /// Queries and keys before their norms, if they have norms.
    pub(super) raw_q: Option<O::Act>,
    pub(super) raw_k: Option<O::Act>,
    /// Queries as attention reads them: normalized and rotated.
    pub(super) q: O::Act,
    pub(super) k: O::Act,
    pub(super) v: O::Act,
    /// Output gates, if there are any.
    pub(super) gate: Option<O::Act>,
}

/// Inputs of a Gated DeltaNet, and its result before the norm.
#[derive(Debug)]
pub struct DeltaProjected<O: Memory> {
    /// Queries, keys and values before the convolution.
    pub(super) mixed: O::Act,
    /// Gate of the result.
    pub(super) z: O::Act,
    /// Gates of the state.
    pub(super) b: O::Act,
    pub(super) a: O::Act,
    /// Result, once the state is advanced.
    pub(super) out: O::Act,
}

/// Inputs of a short convolution, and its result.
#[derive(Debug)]
pub struct ConvProjected<O: Memory> {
    /// Gate of the convolution's input.
    pub(super) b: O::Act,
    /// Gate of its result.
    pub(super) c: O::Act,
    /// Input.
    pub(super) u: O::Act,
    /// Result, once the state is advanced.
    pub(super) out: O::Act,
}

/// Inputs of a layer's mixer.
#[derive(Debug)]
pub enum MixerInputs<O: Memory> {
    /// Of attention.
    Attention(Projected<O>),
    /// Of Gated DeltaNet.
    Delta(DeltaProjected<O>),
    /// Of a short convolution.
    Conv(ConvProjected<O>),
}

impl<O: Memory> Default for Projected<O> {
    fn default() -> Self {
        let (q, k, v) = Default::default();
        Self { raw_q: None, raw_k: None, q, k, v, gate: None }
    }
}

impl<O: Memory> Default for MixerInputs<O> {
    fn default() -> Self {
        Self::Attention(Projected::default())
    }
}

impl<O: Memory> Default for Pool<O> {
    fn default() -> Self {
        Self { spare: O::Spare::default(), shares: Vec::new() }
    }
}

impl<O: Memory> Default for ThreadBuffers<O> {
    fn default() -> Self {
        let (x, hidden) = Default::default();
        let (rows, inputs) = (0..0, MixerInputs::default());
        Self { rows, pool: Pool::default(), x, inputs, hidden }
    }
}

impl Pool {
    /// Returns a buffer of `len` numbers of arbitrary content. Its capacity is at most half as large again.
    pub fn take(&mut self, len: usize) -> Vec<f32> {
        self.spare.take(len)
    }

    /// Returns a buffer with a copy of these numbers.
    pub fn copy(&mut self, values: &[f32]) -> Vec<f32> {
        let mut buffer = self.take(values.len());
        maverl_kernels::copy_numbers(values, &mut buffer);
        buffer
    }
}

impl<O: Memory> Pool<O> {
    /// Returns buffers to the pool.
    pub fn give(&mut self, buffers: impl IntoIterator<Item = O::Act>) {
        O::give(&mut self.spare, buffers);
    }

    /// Returns residual streams to the pool.
    pub fn give_streams(&mut self, buffers: impl IntoIterator<Item = O::Stream>) {
        O::give_streams(&mut self.spare, buffers);
    }
}
