//! Repeated attempts of requests over HTTP: which failures are transient, the pauses between attempts, and waits that end.

use std::iter::successors;
use std::time::{Duration, Instant};

/// Pause before the second attempt; doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Pause between two looks at what another process does.
pub const LOOK: Duration = FIRST_PAUSE;

/// A wait that ends after a time without progress.
#[derive(Debug)]
pub struct Wait {
    patience: Duration,
    since: Instant,
}

impl Wait {
    /// Begins a wait.
    pub fn begin(patience: Duration) -> Self {
        Self { patience, since: Instant::now() }
    }

    /// Records progress.
    pub fn goes_on(&mut self) {
        self.since = Instant::now();
    }

    /// Returns true if there was no progress for the time.
    pub fn is_over(&self) -> bool {
        self.since.elapsed() > self.patience
    }
}

/// Returns a time of seconds, which are not negative.
pub fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Returns the pause before each of a number of repeated attempts.
pub fn pauses(retries: u32) -> impl Iterator<Item = Duration> {
    let pauses = successors(Some(FIRST_PAUSE), |pause| Some((*pause * 2).min(MAX_PAUSE)));
    (0..retries).zip(pauses).map(|(_, pause)| pause)
}

/// Returns true if a later attempt may have another status: the server is busy or failing.
pub fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// Returns true for timeouts, broken connections, and servers that cannot be reached.
pub fn is_transient(error: &ureq::Error) -> bool {
    use ureq::Error::{ConnectionFailed, HostNotFound, Io, Protocol, Timeout};
    matches!(error, Io(_) | Timeout(_) | ConnectionFailed | HostNotFound | Protocol(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses: Vec<u128> = pauses(8).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(super::pauses(0).count(), 0);
    }

    #[test]
    fn a_busy_or_failing_server_is_tried_again_and_a_refusal_is_not() {
        let transient: Vec<u16> =
            (100..600).filter(|status| is_transient_status(*status)).collect();
        assert_eq!((transient[..3].to_vec(), transient.len()), (vec![408, 429, 500], 102));
    }
}
