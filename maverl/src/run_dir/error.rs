//! Errors of the files of a run.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::format::{ChangedFile, FORMAT};
use crate::metrics::NotFinite;

/// Error of writing, reading or verifying a run directory or a file in it. Every message names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// An operation of the operating system failed.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// Attempted operation.
        action: &'static str,
        /// Path of the operation.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// `--out` names a directory that is not empty.
    #[error(
        "`{0}` is not empty; give another `--out`, or continue the run in it with `--resume {0}`",
        path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// `--out` names a file, or a directory below a file.
    #[error("`{}` is a file; give a new directory as `--out`", path.display())]
    AFile {
        /// The file.
        path: PathBuf,
    },
    /// The directory was not created by maverl.
    #[error("`{}` is not a run directory: it has no `manifest.json`", path.display())]
    NotARun {
        /// The directory.
        path: PathBuf,
    },
    /// A file has changed since it was written.
    #[error("`{}` is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Difference and remedy.
        reason: String,
    },
    /// Several files have changed since they were written.
    #[error("`{}` is not as its run left it:{}", dir.display(), lines(differences))]
    Altered {
        /// The directory.
        dir: PathBuf,
        /// Each file with its difference.
        differences: Vec<ChangedFile>,
    },
    /// A manifest has another version of the format.
    #[error(
        "`{}` has format {found}, this maverl reads format {FORMAT}; use the version that wrote it",
        path.display()
    )]
    Format {
        /// The manifest.
        path: PathBuf,
        /// Version of the manifest.
        found: u64,
    },
    /// `--resume` was given other settings than the run started with.
    #[error(
        "`{}` was made with something else:\n  {}\nstart a new run for that. A resumed run may change only keys of the level \
         `run`: `maverl explain KEY` shows the level of a key, and docs/src/resume.md lists them",
        path.display(), differences.join("\n  ")
    )]
    Changed {
        /// The run directory.
        path: PathBuf,
        /// Each key with its value then and now.
        differences: Vec<String>,
    },
    /// Another process has the run open for writing.
    #[error("`{}` is being written by another process; wait for it, or end it", path.display())]
    InUse {
        /// The locked file.
        path: PathBuf,
    },
    /// The run has no checkpoint that matches the request.
    #[error("`{}` has no {wanted}; it has {}", path.display(), if found.is_empty() { "none".to_owned() } else { found.join(", ") })]
    NoCheckpoint {
        /// The directory of checkpoints.
        path: PathBuf,
        /// Requested checkpoint.
        wanted: String,
        /// Existing checkpoints.
        found: Vec<String>,
    },
    /// A value cannot be written as TOML or JSON.
    #[error("cannot write `{}`: {reason}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// Message of the serializer.
        reason: String,
    },
    /// A metric is NaN or infinite.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
}

impl RunDirError {
    /// Returns an error that lists all changed files of a directory, or `Ok` if there are none.
    pub(super) fn unless_none(dir: &Path, mut differences: Vec<ChangedFile>) -> Result<(), Self> {
        match differences.len() {
            0 => Ok(()),
            1 => {
                let ChangedFile { path, reason } = differences.remove(0);
                Err(damaged_error(&path, reason))
            }
            _ => Err(Self::Altered { dir: dir.to_owned(), differences }),
        }
    }
}

/// Adds the path of the operation to an [`io::Result`].
pub(crate) trait At<T> {
    /// Adds the attempted operation and its path to an error.
    fn at(self, action: &'static str, path: &Path) -> Result<T, RunDirError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, RunDirError> {
        self.map_err(|source| RunDirError::Io { action, path: path.to_owned(), source })
    }
}

/// Formats differences, one per line.
fn lines(differences: &[ChangedFile]) -> String {
    let differences = differences.iter();
    differences.map(|its| format!("\n  `{}`: {}", its.path.display(), its.reason)).collect()
}

/// Returns a [`RunDirError::Encode`].
pub(super) fn encode_error(path: &Path, error: impl fmt::Display) -> RunDirError {
    RunDirError::Encode { path: path.to_owned(), reason: error.to_string() }
}

/// Returns a [`RunDirError::Damaged`].
pub(crate) fn damaged_error(path: &Path, reason: impl Into<String>) -> RunDirError {
    RunDirError::Damaged { path: path.to_owned(), reason: reason.into() }
}
