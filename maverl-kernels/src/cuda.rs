//! Kernels on a GPU: advantages, and the operations of a model. [`Gpu`] computes the same estimators as
//! [`CpuArithmetic`](crate::advantage::CpuArithmetic), from host or device slices.
//!
//! ```no_run
//! use maverl_kernels::advantage::{Arithmetic, GaeParams, GaeSteps, RaggedRows};
//! use maverl_kernels::cuda::Gpu;
//!
//! let gpu = Gpu::open(0)?;
//! let places = RaggedRows::from_lengths(&[3, 2]);
//! let hops = GaeSteps::all(GaeParams { gamma: 1.0, lambda: 0.95 });
//! let (advantages, returns) = gpu.gae_advantages(&[0.0; 5], &[0.0; 5], &[0.0; 2], &places, hops)?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! Building needs no CUDA. Opening a device loads the driver, and the code of [`ADVANTAGES`] from a file of [`cubins`]
//! or, without one, by NVRTC; [`nvrtc`] lists the folders that are searched for NVRTC. A missing library is an error;
//! the CPU computes the same without it.
//!
//! Memory traffic, in bytes per row (per step of a scan), where the rows of a group are contiguous; `+ 4` where they
//! are not:
//!
//! | function | kernels | read | written |
//! |---|---|---|---|
//! | `relative_advantages`, no group over 512 | `relative_groups` | 4 | 4 |
//! | `relative_advantages`, any groups | `moments_f32`, `merge`, `relative_rows` | 12 | 4 |
//! | `relative_advantages`, with another deviation | `moments_f32` and `merge` twice, `relative_rows` | 20 | 4 |
//! | `gae_advantages` | `gae` | 8, chains 9 | 8 |
//! | `discounted_returns` | `gae` | 4 | 4 |
//! | `step_groups` | `gae`, then as `relative_advantages` | 12 | 8 |
//! | `whiten_groups` | `moments_f32`, `merge`, `whiten_rows` | 16 | 4 |
//! | `subtract_average` | `moments_f32`, `merge`, `ema_rows`, `ema_move` | 12 | 4 |
//!
//! Each piece of a group (the whole group, or 512 rows of it) adds 24 bytes. Units of several rows add 12 a row and 72
//! a unit, in `moments_f32`, `means` and `moments_f64`.
//!
//! The kernels of a model are in [`MODEL`]: embedding, norms, rope, products, attention, softmax and sampling, AdamW, and
//! their backward passes, in bf16 with sums in f32. [`Kernels`] launches them.
//!
//! The logic above the driver is generic over [`Machine`], so that tests run it, and the kernels, without a GPU:
//! [`Emulated`] is a machine of the CPU.

mod arithmetic;
mod array;
mod code;
mod copies;
mod counted;
pub mod cubins;
mod cublaslt;
mod driver;
mod emulated;
mod estimator;
mod folders;
mod found;
mod gpu;
mod kernels;
mod machine;
mod model;
pub mod nvrtc;
mod recording;
mod resident;
#[doc(hidden)]
pub mod speed;
mod usage;

pub use array::{DeviceArray, Slice, SliceMut, from_bf16, to_bf16};
pub use counted::{CountingMachine, NoArray};
pub use cublaslt::{CublasLt, CublasLtError, LibraryProduct, ProductGradient};
pub use driver::{CudaError, Driver, DriverGraph, Gpu};
pub use emulated::{Emulated, HostArray};
pub use estimator::StepKernel;
pub use folders::library_folders;
pub use found::{GpuInfo, LibraryInfo, find_gpus, find_libraries};
pub use kernels::Kernels;
pub use machine::{BLOCK, DeviceElement, LaunchShape, Machine, Module, RecordedLaunch};
#[doc(hidden)]
pub use model::tests as checks;
pub use model::{
    AdapterTerms, AttentionLayout, BackwardLayout, BlockTables, DecodingPass, Destination,
    EmbeddingLayout, FROM_HOST, HeadInput, HeadNorm, KvShape, LinearOutput, LogProbabilities,
    MODEL, MapOutput, Master, Positions, RopeTables, RowSources, SampledTokens, SoftmaxRows,
    count_pieces, fit_one_launch,
};
pub use recording::Recording;
pub use resident::{GroupingOn, PlacesOn, SegmentsOn};
pub use usage::MemoryUsage;

/// The kernels of advantages.
pub const ADVANTAGES: Module = Module {
    name: "advantage.cu",
    source: &[include_str!("cuda/advantage.cu")],
    kernels: &[
        "moments_f32",
        "moments_f64",
        "means",
        "merge",
        "relative_groups",
        "relative_rows",
        "whiten_rows",
        "ema_rows",
        "ema_move",
        "gae",
    ],
};

#[cfg(test)]
mod tests;
