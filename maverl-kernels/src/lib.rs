//! The numeric hot spots of maverl, as safe functions over slices.
//!
//! Every array is a row-major slice of `f32`, every shape is asserted in the first lines of the function that takes it,
//! and every operation with a gradient has its backward next to it. Two promises hold for all of them:
//!
//! - **K-1**: a row's result never depends on the other rows, to the bit. A row alone, in a batch, in another order, in
//!   another number of threads, in one piece or token by token with a cache: the same bits.
//! - Sums over rows (weight gradients, statistics) are taken in an order that the shapes alone decide, never the
//!   scheduler.
//!
//! Threads are those of the current rayon pool, or within [`alone`] only the calling one. Vector instructions
//! are chosen at run time ([`simd`]); the bits are those of fused multiply-adds, so processors without them are correct but
//! slow.
#![deny(missing_docs)]

mod lanes;
mod par;

pub mod adamw;
pub mod advantage;
pub mod attention;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod embedding;
pub mod emulate;
pub mod logprob;
pub mod matmul;
pub mod mlp;
pub mod norm;
pub mod rope;
pub mod sample;
pub mod simd;

pub use par::alone;

#[cfg(test)]
mod testing;
