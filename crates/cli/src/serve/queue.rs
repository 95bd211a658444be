//! Options of the queue of a server.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;

use crate::number;
use maverl_serve::QueueLimits;

/// Limits of requests that wait. The number of those that run is an option of each server.
#[derive(Args, Debug, Clone)]
pub(super) struct QueueArgs {
    /// Most requests that wait for it; further ones are answered 429.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = number::from_0)]
    max_waiting: usize,
    /// Seconds after which a waiting request is answered 503.
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = number::seed)]
    max_wait_s: u64,
    /// Most requests of a key that run or wait; 0 is no limit.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::from_0)]
    max_requests_per_key: usize,
}

impl QueueArgs {
    /// Returns the limits of a queue of which so many run.
    pub(super) fn limits(&self, running: NonZeroUsize) -> QueueLimits {
        QueueLimits {
            running,
            waiting: self.max_waiting,
            wait: Duration::from_secs(self.max_wait_s),
            per_key: self.max_requests_per_key,
        }
    }
}
