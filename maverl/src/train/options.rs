//! Options of a run.

use std::sync::Arc;

use crate::dist::Launch;
use crate::run_dir::{Missing, RunLocation};
use crate::train::progress::interrupt::Interrupt;
use crate::train::progress::{Progress, Silent};
use crate::train::step::sink::EpisodeSink;

/// Options of a run that do not change its numbers.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// Run directory.
    pub place: RunLocation,
    /// Configuration as the user gave it, for `config.toml`, such as [`crate::config::source::Sources::merged_file`]; empty if there
    /// was no file.
    pub given: String,
    /// Files that may be missing in a run directory that is resumed.
    pub missing: Missing,
    /// Receiver of progress.
    pub progress: Arc<dyn Progress>,
    /// Request to stop.
    pub interrupt: Interrupt,
    /// Receivers of the episodes of training and evaluations, each as soon as it ends.
    pub sinks: Vec<Arc<dyn EpisodeSink>>,
    /// Place of this process among those that train together; `None` if it trains alone.
    pub launch: Option<Launch>,
    /// True if this process trains again with the same ranks after this run. Over MPI, which connects processes once, they
    /// stay connected until then.
    pub again: bool,
}

impl Options {
    /// Returns options of a silent run that cannot be interrupted.
    pub fn new(place: RunLocation) -> Self {
        Self {
            place,
            given: String::new(),
            missing: Missing::default(),
            progress: Arc::new(Silent),
            interrupt: Interrupt::default(),
            sinks: Vec::new(),
            launch: None,
            again: false,
        }
    }

    /// Registers a receiver of the run's episodes.
    #[must_use]
    pub fn sink(mut self, sink: impl EpisodeSink + 'static) -> Self {
        self.sinks.push(Arc::new(sink));
        self
    }
}
