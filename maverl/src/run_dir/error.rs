//! What can go wrong with the files of a run.

use std::io;
use std::path::{Path, PathBuf};

use super::manifest::{Difference, FORMAT};
use super::origin::MAY_CHANGE;
use crate::metrics::NotFinite;

/// Why a run directory, or a file in it, could not be written, read or trusted. Every message names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// The operating system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `--out` names a directory with something in it.
    #[error(
        "`{0}` is not empty; give another `--out`, or continue the run in it with `--resume {0}`",
        path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is not one that maverl made.
    #[error("`{}` is not a run directory: it has no `manifest.json`", path.display())]
    NotARun {
        /// The directory.
        path: PathBuf,
    },
    /// A file is not what it was when it was written.
    #[error("`{}` is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How it differs, and what would help.
        reason: String,
    },
    /// Several files are not what they were when they were written.
    #[error("`{}` is not as its run left it:{}", dir.display(), lines(differences))]
    Altered {
        /// The directory.
        dir: PathBuf,
        /// Each file, and how it differs.
        differences: Vec<Difference>,
    },
    /// A manifest of another version of the format.
    #[error(
        "`{}` has format {found}, this maverl reads format {FORMAT}; use the version that wrote it",
        path.display()
    )]
    Format {
        /// The manifest.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// `--resume` with something else than the run was started with.
    #[error(
        "`{}` was made with something else; a run that goes on may change {MAY_CHANGE}:\n  {}",
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
        /// The file it holds.
        path: PathBuf,
    },
    /// The run has no checkpoint that fits the request.
    #[error("`{}` has no {wanted}; it has {}", path.display(), if found.is_empty() { "none".to_owned() } else { found.join(", ") })]
    NoCheckpoint {
        /// The directory of checkpoints.
        path: PathBuf,
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: Vec<String>,
    },
    /// A value cannot be written as TOML or JSON.
    #[error("cannot write `{}`: {reason}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// What the serializer said.
        reason: String,
    },
    /// A metric is NaN or infinite.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
}

impl RunDirError {
    /// An error about everything in a directory that is not as it was written, if anything is.
    pub(super) fn unless_none(dir: &Path, mut differences: Vec<Difference>) -> Result<(), Self> {
        match differences.len() {
            0 => Ok(()),
            1 => {
                let Difference { path, reason } = differences.remove(0);
                Err(damaged(&path, reason))
            }
            _ => Err(Self::Altered { dir: dir.to_owned(), differences }),
        }
    }
}

/// Gives an [`io::Result`] the file it is about.
pub(crate) trait At<T> {
    /// The same result, with what was tried and on which path.
    fn at(self, action: &'static str, path: &Path) -> Result<T, RunDirError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, RunDirError> {
        self.map_err(|source| RunDirError::Io { action, path: path.to_owned(), source })
    }
}

/// Differences, a line each.
fn lines(differences: &[Difference]) -> String {
    let line =
        |Difference { path, reason }: &Difference| format!("\n  `{}`: {reason}", path.display());
    differences.iter().map(line).collect()
}

/// A [`RunDirError::Damaged`].
pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> RunDirError {
    RunDirError::Damaged { path: path.to_owned(), reason: reason.into() }
}
