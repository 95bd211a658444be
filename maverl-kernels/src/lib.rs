//! The numeric hot spots of maverl, as safe functions over slices.
//!
//! Every array is a row-major slice of `f32`. Every function asserts its shapes in its first lines. Every operation
//! with a gradient has its backward pass next to it. Two guarantees hold for all of them:
//!
//! - **K-1**: a row's result never depends on the other rows, to the bit. A row alone, in a batch, in another order, on
//!   another number of threads, in one piece or token by token with a cache: the bits are the same.
//! - Sums over rows (weight gradients, statistics) are taken in an order that depends on the shapes alone, never on the
//!   scheduler.
//!
//! Threads are those of the current rayon pool; within [`alone`] only the calling thread is used. Vector instructions
//! are chosen at run time ([`simd`]). The bits are those of fused multiply-adds, so processors without them give
//! correct results, but slowly.
#![deny(missing_docs)]

mod lanes;
mod par;

pub mod adamw;
pub mod advantage;
pub mod attention;
pub mod bias;
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

pub use par::{alone, copy, sum};

#[cfg(any(test, feature = "cuda"))]
#[cfg_attr(not(test), allow(dead_code, reason = "tests have more than the checks of `cuda`"))]
mod testing;
