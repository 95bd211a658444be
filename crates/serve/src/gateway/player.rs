//! Players of an episode: a process of its own, or the worker that claimed it.

use super::log::Log;
use super::process::{PlayerEnd, Process};
use super::workers::WorkerLease;

/// Player of an episode.
pub(super) enum GatewayPlayer {
    /// A process with its output.
    Process(Box<Process>, Log),
    /// A worker that claimed the episode.
    Worker(WorkerLease),
}

impl GatewayPlayer {
    /// Waits until the player is gone. May be cancelled.
    pub(super) async fn wait_for_end(&mut self) -> PlayerEnd {
        match self {
            Self::Process(process, _) => PlayerEnd::Exited(process.wait_for_exit().await),
            Self::Worker(lease) => lease.wait_for_loss().await,
        }
    }

    /// Returns the output. That of a worker begins with the end of its last episode.
    pub(super) fn log(&self) -> Log {
        match self {
            Self::Process(_, log) => log.clone(),
            Self::Worker(lease) => lease.log(),
        }
    }

    /// Extends the lease of a worker.
    pub(super) fn renew(&mut self) {
        if let Self::Worker(lease) = self {
            lease.renew();
        }
    }

    /// Gives a process a moment to end by itself, because the episode is finished.
    pub(super) fn let_finish(&mut self) {
        if let Self::Process(process, _) = self {
            process.let_finish();
        }
    }
}
