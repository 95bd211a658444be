//! The error of writing pages.

/// Maximum size of a page in bytes.
pub(super) const LARGEST_PAGE: usize = 32 << 20;

/// Error of writing a page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// There is no run.
    #[error("there is no run in the directories; give run directories")]
    NoRun,
    /// A part of a run cannot be read.
    #[error("`{run}`: {path}: {reason}")]
    Part {
        /// Name of the run.
        run: String,
        /// Path in the interface.
        path: String,
        /// Reason.
        reason: String,
    },
    /// The page would be too large.
    #[error(
        "the page would have {} MiB, more than {} MiB; about {fits} episodes of each run fit: `--episodes {fits}`. A \
         directory has no bound: give a name without `.html`",
        bytes >> 20, LARGEST_PAGE >> 20
    )]
    TooLarge {
        /// Size of the page.
        bytes: usize,
        /// Number of episodes that fit.
        fits: usize,
    },
    /// The file cannot be written.
    #[error("cannot write `{path}`: {source}")]
    Output {
        /// The file.
        path: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}
