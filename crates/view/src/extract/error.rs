//! The error of an extraction.

use std::path::Path;

use maverl::run_dir::RunDirError;

/// Error of an extraction.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// A file of the run cannot be read.
    #[error(transparent)]
    Run(#[from] RunDirError),
    /// The run does not have the part.
    #[error("`{path}` has no {part}: {reason}")]
    Missing {
        /// The run directory.
        path: String,
        /// Part that is missing.
        part: &'static str,
        /// Reason.
        reason: &'static str,
    },
    /// The output cannot be written.
    #[error("cannot write `{path}`: {reason}")]
    Output {
        /// The file.
        path: String,
        /// Reason.
        reason: String,
    },
}

/// Returns the error of a file that cannot be written, by its reason.
pub(super) fn write_failure(out: &Path) -> impl Fn(String) -> ExtractError + '_ {
    |reason| ExtractError::Output { path: out.display().to_string(), reason }
}
