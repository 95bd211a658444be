//! Operations of a model on one device. The decoder, its tape and its linear maps are written once, over [`Ops`].
//!
//! An operation is a unit of work that a GPU does in one launch or a fixed few; [`Cpu`] composes it of the kernels of
//! `maverl-kernels`. The device is a type parameter, so that a call costs nothing.

mod arguments;
mod backend;
#[cfg(feature = "candle")]
pub mod candle;
mod cpu;
#[cfg(feature = "cuda")]
pub mod device;
mod linear;
mod parts;
mod recurrent;

use std::ops::Range;

use maverl_kernels::attention::Heads;

pub use arguments::{DrawnIds, FROM_HOST, HeadTurn, NewTokens, Targets};
pub use backend::{Backend, KvCache, TokenChoice};
pub use cpu::Placed;
pub(super) use cpu::project;
pub use linear::LinearOps;
pub use parts::PartOps;
pub use recurrent::{DeltaInputs, DeltaWeights, RecurrentOps};

#[cfg(feature = "cuda")]
pub use crate::net::memory::Transfer;
pub use crate::net::memory::{Buffer, Buffers, Cpu, Done, Memory};

use crate::files::hf_config::Frequencies;
use crate::net::gradients::Gradients;
use crate::net::linear::{Linear, OutputHead};
use crate::net::norm::Norm;
use crate::net::pool::{Pool, ThreadBuffers};
use crate::net::rows::Rows;
use crate::net::values::Param;

/// Operations on the memory of a device, forward and backward. `N` is the number of tokens of a pass, `D` the width of
/// the residual stream. Buffers come from a [`Pool`] and may go back there.
///
/// A token's result never depends on the other tokens of a forward pass, to the bit (K-1). Gradients of weights are
/// added to the sums, if the weight is trained.
pub trait Ops: RecurrentOps {
    /// Creates the angles of frequencies, for so many positions.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn rope(&self, frequencies: &Frequencies, positions: usize) -> Done<Self::Rope>;

    /// Places packed rows, for a forward and a backward pass.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn place<'a>(&self, rows: Rows<'a>) -> Done<Self::Placed<'a>>;

    /// Places the new tokens of cached sequences.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn place_cached<'a>(&self, tokens: NewTokens<'a, Self>) -> Done<Self::Placed<'a>>;

    /// Computes the hidden states of new tokens from a recorded pass, if the device has or records one: `run` computes a
    /// pass with other operations, keys and values, which record it.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn decode(
        &self,
        _passes: &Self::Passes,
        _tokens: NewTokens<'_, Self>,
        _kv: &mut Self::Kv,
        _run: impl FnOnce(&Self, &Self::Placed<'_>, &Self::Kv) -> Done<Self::Act>,
    ) -> Done<Option<Self::Act>> {
        Ok(None)
    }

    /// Returns some of the new tokens of cached sequences: one of the parts of [`Ops::parts`].
    fn part<'p>(&self, all: &'p Self::Placed<'_>, tokens: Range<usize>) -> Self::Placed<'p>;

    /// Returns the number of parts into which so many new tokens are split, each computed by a thread of its own from
    /// one attention to the next.
    fn parts<'l>(&self, tokens: usize, maps: impl Iterator<Item = &'l Linear<Self>>) -> usize;

    /// Joins the hidden states of the parts, which are taken from them.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn join(&self, parts: &mut [ThreadBuffers<Self>], pool: &mut Pool<Self>) -> Done<Self::Act>;

    /// Packs a weight `[O, I]`.
    fn pack(&self, weight: &Param<Self>) -> Self::Packed;

    /// Reads the rows `[N, D]` of a table.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn gather(
        &self,
        table: &Param<Self>,
        at: &Self::Placed<'_>,
        pool: &mut Pool<Self>,
    ) -> Done<Self::Stream>;

    /// Adds the gradients of [`Ops::gather`] to the table's.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn gather_back(
        &self,
        table: &Param<Self>,
        dx: &Self::Stream,
        at: &Self::Placed<'_>,
        sums: &mut Gradients<'_, Self>,
    ) -> Done<()>;

    /// Computes the RMS norm of each row.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn norm(&self, x: &Self::Stream, norm: &Norm<Self>, pool: &mut Pool<Self>) -> Done<Self::Act>;

    /// Computes the gradient of [`Ops::norm`] by its input, added to `onto` if there is one.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn norm_back(
        &self,
        x: &Self::Stream,
        norm: &Norm<Self>,
        dy: &Self::Act,
        onto: Option<Self::Stream>,
        sums: &mut Gradients<'_, Self>,
        pool: &mut Pool<Self>,
    ) -> Done<Self::Stream>;

    /// Normalizes each head of `x`, or all of them, if there is a norm, and rotates each by its position, if positions have
    /// an effect. With a norm, also returns its input.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn turn(
        &self,
        x: Self::Act,
        turn: &HeadTurn<'_, Self>,
        at: &Self::Placed<'_>,
        pool: &mut Pool<Self>,
    ) -> Done<(Self::Act, Option<Self::Act>)>;

    /// Computes the gradient of [`Ops::turn`] by its input, from that of its result and the norm's input.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn turn_back(
        &self,
        dx: Self::Act,
        raw: Option<Self::Act>,
        turn: &HeadTurn<'_, Self>,
        at: &Self::Placed<'_>,
        sums: &mut Gradients<'_, Self>,
        pool: &mut Pool<Self>,
    ) -> Done<Self::Act>;

    /// Computes `silu(gate) * up`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn swiglu(&self, gate: &Self::Act, up: &Self::Act, pool: &mut Pool<Self>) -> Done<Self::Act>;

    /// Computes the gradients of [`Ops::swiglu`] by `gate` and `up`. The buffer of its result is used again.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn swiglu_back(
        &self,
        inputs: [&Self::Act; 2],
        dact: &Self::Act,
        act: Self::Act,
        pool: &mut Pool<Self>,
    ) -> Done<[Self::Act; 2]>;

    /// Computes causal attention of packed rows, from queries, keys and values.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn attend(
        &self,
        qkv: [&Self::Act; 3],
        at: &Self::Placed<'_>,
        heads: Heads,
        pool: &mut Pool<Self>,
    ) -> Done<(Self::Act, Self::Lse)>;

    /// Computes the gradients of [`Ops::attend`] by queries, keys and values, from its result and the gradient of it.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn attend_back(
        &self,
        qkv: [&Self::Act; 3],
        out: [&Self::Act; 2],
        lse: &Self::Lse,
        at: &Self::Placed<'_>,
        heads: Heads,
        pool: &mut Pool<Self>,
    ) -> Done<[Self::Act; 3]>;

    /// Writes keys and values of new tokens to the cache of a layer.
    ///
    /// # Safety
    ///
    /// Meanwhile, nobody else reads or writes the blocks that receive tokens.
    ///
    /// # Errors
    ///
    /// If the device fails.
    #[allow(unsafe_code)] // threads append to different sequences of one cache
    unsafe fn append(
        &self,
        kv: &Self::Kv,
        layer: usize,
        keys_and_values: [&Self::Act; 2],
        at: &Self::Placed<'_>,
    ) -> Done<()>;

    /// Computes causal attention of new tokens to the cache of a layer.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn attend_cached(
        &self,
        q: &Self::Act,
        cache: (&Self::Kv, usize),
        at: &Self::Placed<'_>,
        heads: Heads,
        pool: &mut Pool<Self>,
    ) -> Done<Self::Act>;

    /// Computes log-probabilities `[M, k]` of targets and entropies `[M]` under `softmax(logits * inv_temperature)`, without
    /// keeping the logits of all rows.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn logprobs(
        &self,
        hidden: &Self::Act,
        head: &OutputHead<Self>,
        of: Targets<'_>,
    ) -> Done<(Vec<f32>, Vec<f32>)>;

    /// Computes the gradient of the hidden states from a loss of the results of [`Ops::logprobs`]. Sequence `s` is the
    /// rows `offsets[s]..offsets[s + 1]`. `loss` gets some sequences at a time, with log-probs `[rows, k]` and entropies `[rows]`
    /// of their rows, and writes its derivatives by both.
    ///
    /// # Errors
    ///
    /// The error of `loss`, or if the device fails.
    fn loss(
        &self,
        hidden: &Self::Act,
        head: &OutputHead<Self>,
        of: Targets<'_>,
        offsets: &[usize],
        loss: impl FnMut(Range<usize>, [&[f32]; 2], [&mut [f32]; 2]) -> Done<()>,
        sums: &mut Gradients<'_, Self>,
    ) -> Done<Self::Act>;
}
