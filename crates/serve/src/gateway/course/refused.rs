//! Refusals of calls that end with a fault.

use axum::http::StatusCode;

use crate::refusal::Refusal;
use maverl::trajectory::{Fault, FaultKind};

/// Returns the refusal of a prompt that does not fit; `None` for another fault.
pub(super) fn refused_prompt(fault: &Fault) -> Option<Refusal> {
    let message = &fault.message;
    let refusal = match fault.kind {
        FaultKind::Overflow => {
            let what = format!("This model's maximum context length is exceeded: {message}");
            Refusal::invalid("messages", what).with_code("context_length_exceeded")
        }
        FaultKind::Program => {
            let what = format!("the messages do not fit the chat template: {message}");
            Refusal::invalid("messages", what)
        }
        _ => return None,
    };
    Some(Refusal { retry: Some(false), ..refusal })
}

/// Returns the answer to a request that a fault ended.
pub(super) fn failed_request(fault: &Fault) -> Refusal {
    let message = format!("the episode ended with a fault of kind `{}`", fault.kind.name());
    let refusal = Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "episode_failed", message);
    Refusal { retry: Some(false), ..refusal }
}
