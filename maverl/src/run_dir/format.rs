//! Version of the format of run directories, and files that differ from what was written.

use std::path::PathBuf;

/// Version of the format of run directories and checkpoints.
pub const FORMAT: u64 = 3;

/// A file that has changed since it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// The file.
    pub path: PathBuf,
    /// Description of the difference.
    pub reason: String,
}
