//! Advantages on a GPU: [`Gpu`] computes what [`Cpu`](crate::advantage::Cpu) does, from host slices or device slices.
//!
//! ```no_run
//! use maverl_kernels::advantage::{Estimate, GaeParams, GaeSteps, RaggedRows};
//! use maverl_kernels::cuda::Gpu;
//!
//! let gpu = Gpu::open(0)?;
//! let places = RaggedRows::rows(&[3, 2]);
//! let hops = GaeSteps::all(GaeParams { gamma: 1.0, lambda: 0.95 });
//! let (advantages, returns) = gpu.gae(&[0.0; 5], &[0.0; 5], &[0.0; 2], &places, hops)?;
//! # Ok::<(), maverl_kernels::cuda::CudaError>(())
//! ```
//!
//! Building needs no CUDA. The driver and NVRTC are loaded when a device is opened, which compiles [`SOURCE`] for it; see
//! [`nvrtc`] for where NVRTC is looked for. What is missing is an error, and the CPU is there instead.
//!
//! Memory moved, in bytes a row (a place for scans), where rows of a group lie together; `+ 4` where they do not:
//!
//! | function | kernels | read | written |
//! |---|---|---|---|
//! | `relative`, no group over 512 | `relative_groups` | 4 | 4 |
//! | `relative`, any groups | `moments_f32`, `merge`, `relative_rows` | 12 | 4 |
//! | `relative_apart` | `moments_f32` and `merge` twice, `relative_rows` | 20 | 4 |
//! | `gae` | `gae` | 8, chains 9 | 8 |
//! | `returns` | `gae` | 4 | 4 |
//! | `step_groups` | `gae`, then as `relative` | 12 | 8 |
//! | `whiten` | `moments_f32`, `merge`, `whiten_rows` | 16 | 4 |
//! | `ema` | `moments_f32`, `merge`, `ema_rows`, `ema_move` | 12 | 4 |
//!
//! Beside that 24 bytes for each piece of a group, which is all its rows or 512 of them. Units of several rows add 12 a
//! row, and 72 a unit, by `moments_f32`, `means` and `moments_f64`.
//!
//! Logic above the driver is generic over [`Machine`], so that tests run it, and the kernels, without a GPU.

mod driver;
mod estimate;
mod kernels;
pub mod nvrtc;
mod resident;

pub use driver::{CudaError, Driver, Gpu};
pub use kernels::Kernels;
pub use resident::{GroupingOn, PlacesOn, SegmentsOn};

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

/// The kernels, as NVRTC and, in tests, a C++ compiler read them.
pub const SOURCE: &str = include_str!("cuda/advantage.cu");

/// The names of the kernels in [`SOURCE`].
pub const NAMES: [&str; 10] = [
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
];

/// Threads of a block, for every kernel.
pub const BLOCK: u32 = 256;

/// What arrays on a machine hold.
pub trait Element: Copy + Default + DeviceRepr + ValidAsZeroBits {}

impl Element for f32 {}
impl Element for f64 {}
impl Element for u32 {}
impl Element for u8 {}

/// What has memory of its own and runs [`SOURCE`]'s kernels one after the other.
pub trait Machine {
    /// What may go wrong.
    type Error;
    /// An array in its memory.
    type Array<T: Element>;

    /// A copy of an array of the host's. An empty one may have any address.
    fn upload<T: Element>(&self, host: &[T]) -> Result<Self::Array<T>, Self::Error>;

    /// Room for `n` elements, which may hold anything.
    fn space<T: Element>(&self, n: usize) -> Result<Self::Array<T>, Self::Error>;

    /// The first `n` elements, when all that was launched before is done.
    fn download<T: Element>(&self, array: &Self::Array<T>, n: usize)
    -> Result<Vec<T>, Self::Error>;

    /// Where an array lies.
    fn address<T: Element>(&self, array: &Self::Array<T>) -> u64;

    /// Runs a kernel in so many blocks of [`BLOCK`] threads; an argument is the bits of an
    /// address, an integer or an `f64`.
    ///
    /// # Safety
    ///
    /// There are as many arguments as the kernel has parameters, of their meaning; what lies at the addresses is as
    /// long as the kernel reads and writes, lives until the launch has run, and what is written is not read by others
    /// meanwhile.
    #[allow(unsafe_code)]
    unsafe fn launch(
        &self,
        kernel: &'static str,
        blocks: u32,
        args: &[u64],
    ) -> Result<(), Self::Error>;
}

#[cfg(test)]
mod tests;
