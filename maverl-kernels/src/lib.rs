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
//! Threads are those of the current rayon pool; within [`run_alone`] only the calling thread is used. Vector instructions
//! are chosen at run time ([`simd`]). The bits are those of fused multiply-adds, so processors without them give
//! correct results, but slowly.
//!
//! # Files
//!
//! | module | contents |
//! |---|---|
//! | `matmul` | products: `matmul/engine` divides a product among threads and caches, `matmul/kernel` is the inner loop of all paths, `matmul/layout` packs matrices, `matmul/{x86,neon,amx}` have what single paths add |
//! | `attention` | `attention/forward` and `attention/backward` are tasks, `attention/vector`, `attention/weighted` and `attention/accumulate` the inner loops, `attention/rows` and `attention/blocks` the memory of keys and values |
//! | `recurrent` | causal convolutions and the gated delta rule, token after token |
//! | `norm`, `rope`, `mlp`, `experts`, `embedding`, `bias`, `elementwise`, `logprob` | the other operations of a model, each with its backward pass |
//! | `sample`, `adamw`, `adamw8`, `muon` | a sampled token and its log-prob; a step of an optimizer |
//! | `advantage` | estimators, and the trait `Arithmetic` of the machines that compute them |
//! | `cuda` (feature) | kernels in CUDA C++ (`cuda/*.cu`), their launches (`cuda/model`, `cuda/kernels`), and machines that run them: a GPU (`cuda/driver`), the CPU (`cuda/emulated`), one without memory (`cuda/counted`) |
//! | `emulate` | CUDA C++ compiled by a C++ compiler; each thread of CUDA is a fiber |
//! | `lanes`, `par`, `pages`, `simd` | sums over sixteen lanes in one order; division of work among threads; memory of large arrays; the *path*, which is the set of vector instructions in use |
//!
//! Operations of a model, but products, implement `lanes::Kernel`: code over sixteen lanes that is compiled for each
//! path, so that nothing depends on the compiler's vectorizer. Products use `matmul::vectors::Vectors`. Estimators are
//! scalar code in f64.
//!
//! Each operation is compared with a reference in f64, and with itself in another batch, in another order and on
//! another number of threads. All paths must give the bits of each other (`tests/paths.rs`) and recorded ones
//! (`tests/golden.rs`), but for products in `bf16` (see [`matmul`]).
#![cfg_attr(test, allow(clippy::disallowed_methods))] // tests compare with the functions of the C library
#![deny(missing_docs)]

mod lanes;
mod pages;
mod par;

pub mod adamw;
pub mod adamw8;
pub mod advantage;
pub mod attention;
pub mod bias;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod elementwise;
pub mod embedding;
pub mod emulate;
pub mod experts;
pub mod logprob;
pub mod matmul;
pub mod mlp;
pub mod muon;
pub mod norm;
pub mod recurrent;
pub mod rope;
pub mod sample;
pub mod simd;

pub use pages::{large_zero_bytes, large_zeros};
pub use par::{copy_numbers, run_alone, sum_numbers};

#[cfg(any(test, feature = "cuda"))]
#[cfg_attr(not(test), allow(dead_code, reason = "tests have more than the checks of `cuda`"))]
mod testing;
