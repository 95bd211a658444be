//! Reasons for which cuBLASLt is not used.

use std::path::PathBuf;

/// Reason for which the library is not used, or a call of it that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CublasLtError {
    /// The library was not found.
    #[error(
        "no cuBLASLt: libcublasLt is neither on the library path nor in {searched:?}; backward products are those of \
         maverl's own kernels, which are slower; install a CUDA toolkit, or `pip install nvidia-cublas` and name the \
         folder in `MAVERL_SITE_PACKAGES`"
    )]
    Missing {
        /// Folders searched in addition to the library path.
        searched: Vec<PathBuf>,
    },
    /// A library lacks a function.
    #[error(
        "`{}` has no function `{function}`; backward products are those of maverl's own kernels; install cuBLAS 12 or newer",
        path.display()
    )]
    Lacks {
        /// Path of the library.
        path: PathBuf,
        /// Name of the function.
        function: String,
    },
    /// The library is switched off.
    #[error(
        "switched off by `MAVERL_CUBLASLT=off`; backward products are those of maverl's own kernels"
    )]
    Off,
    /// The machine has no use for the library.
    #[error("not used: no backward product runs on this machine")]
    Unused,
    /// A call failed.
    #[error("{call} of cuBLASLt failed with status {status}")]
    Failed {
        /// Name of the function.
        call: &'static str,
        /// Status of the library.
        status: u32,
    },
}
