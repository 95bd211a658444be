//! Advantages on a GPU: [`Gpu`] computes the same estimators as [`Cpu`](crate::advantage::Cpu), from host or device
//! slices.
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
//! Building needs no CUDA. Opening a device loads the driver and NVRTC and compiles [`SOURCE`] for the device;
//! [`nvrtc`] lists the folders that are searched for NVRTC. A missing library is an error; the CPU computes the same
//! without it.
//!
//! Memory traffic, in bytes per row (per step of a scan), where the rows of a group are contiguous; `+ 4` where they
//! are not:
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
//! Each piece of a group (the whole group, or 512 rows of it) adds 24 bytes. Units of several rows add 12 a row and 72
//! a unit, in `moments_f32`, `means` and `moments_f64`.
//!
//! The logic above the driver is generic over [`Machine`], so that tests run it, and the kernels, without a GPU.

mod driver;
mod estimate;
mod kernels;
pub mod nvrtc;
mod resident;

pub use driver::{CudaError, Driver, Gpu};
pub use kernels::Kernels;
pub use resident::{GroupingOn, PlacesOn, SegmentsOn};

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

/// Source of the kernels. NVRTC compiles it; in tests a C++ compiler does.
pub const SOURCE: &str = include_str!("cuda/advantage.cu");

/// Names of the kernels in [`SOURCE`].
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

/// Element type of arrays on a machine.
pub trait Element: Copy + Default + DeviceRepr + ValidAsZeroBits {}

impl Element for f32 {}
impl Element for f64 {}
impl Element for u32 {}
impl Element for u8 {}

/// A device with its own memory that runs the kernels of [`SOURCE`] one after the other.
pub trait Machine {
    /// Error of the device.
    type Error;
    /// Array in the device's memory.
    type Array<T: Element>;

    /// Copies a host array to the device. An empty array may have any address.
    fn upload<T: Element>(&self, host: &[T]) -> Result<Self::Array<T>, Self::Error>;

    /// Allocates `n` elements of arbitrary content.
    fn space<T: Element>(&self, n: usize) -> Result<Self::Array<T>, Self::Error>;

    /// Copies the first `n` elements to the host, after everything launched before has finished.
    fn download<T: Element>(&self, array: &Self::Array<T>, n: usize)
    -> Result<Vec<T>, Self::Error>;

    /// Returns the address of an array.
    fn address<T: Element>(&self, array: &Self::Array<T>) -> u64;

    /// Runs a kernel in `blocks` blocks of [`BLOCK`] threads. An argument is the bits of an address, an integer or an
    /// `f64`.
    ///
    /// # Safety
    ///
    /// The arguments match the kernel's parameters in number and meaning. The memory at each address is as long as the
    /// kernel reads and writes, and lives until the launch has run. Memory that the kernel writes is not read by others
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
