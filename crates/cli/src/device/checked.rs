//! The device that `maverl device check` checks.

use super::args::CheckArgs;
use super::report::DeviceReport;
use crate::Failure;
use maverl::runtime::DeviceKernels;

/// A device that is checked, with its limits.
pub(super) struct Checked<'a> {
    pub(super) args: &'a CheckArgs,
    pub(super) kernels: DeviceKernels,
    /// Peak of products, in operations a second, if it is known.
    pub(super) peak: Option<f64>,
    /// Bandwidth of a copy, in bytes a second, once it is measured.
    pub(super) copy: Option<f64>,
    pub(super) report: DeviceReport,
}

impl Checked<'_> {
    /// Returns the free and total bytes of the memory of a GPU.
    pub(super) fn memory(&self) -> Result<Option<[u64; 2]>, Failure> {
        match &self.kernels {
            DeviceKernels::Cuda(gpu) => Ok(Some(gpu.memory_bytes()?)),
            _ => Ok(None),
        }
    }
}
