//! Faults that the run of an episode finds itself: its time limit, panics, and rewards that are no rewards.

use std::any::Any;
use std::time::Duration;

use crate::task::Score;
use crate::trajectory::{Fault, FaultKind};

/// Returns the fault of an episode that took too long.
pub(super) fn timeout_fault(timeout: Duration) -> Fault {
    let message =
        format!("the episode took longer than `rollout.timeout_s` = {}", timeout.as_secs_f64());
    Fault::new(FaultKind::Timeout, message)
}

/// Returns the fault of a part of an episode that panicked.
pub(super) fn panic_fault(what: &str, panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!("{what} panicked: {}", text.unwrap_or("(no message)"));
    Fault::new(FaultKind::Panic, message)
}

/// Refuses a reward that is no number, or beyond [`Score::LIMIT`].
pub(super) fn bounded_reward(what: &str, value: f64) -> Result<f64, Fault> {
    Score::check_bounds(what, value).map_err(|reason| Fault::new(FaultKind::Environment, reason))
}
