//! Responses of the pages: data, files, streams, and reasons why there is none.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::report::problem::{ProblemKind, ReportProblem};

/// Maximum size of an answer in bytes.
const LARGEST: usize = 8 << 20;
/// Maximum number of values of a table of numbers, each with what is around it in JSON.
pub(crate) const MOST_VALUES: usize = LARGEST / 32;
/// Number of parts of a body that wait to be sent.
const PARTS: usize = 4;

/// Parts of a body that are made while they are sent. An empty part only asks whether the client is still there.
pub(crate) type BodyParts = Box<dyn Iterator<Item = Vec<u8>> + Send>;

impl IntoResponse for ReportProblem {
    fn into_response(self) -> Response {
        let status = match self.kind {
            ProblemKind::Invalid => StatusCode::BAD_REQUEST,
            ProblemKind::Missing => StatusCode::NOT_FOUND,
            ProblemKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ProblemKind::Unreadable => StatusCode::INTERNAL_SERVER_ERROR,
            ProblemKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
        };
        refusal_response(status, &self.reason)
    }
}

/// Creates a response with the reason why there is nothing else.
pub(crate) fn refusal_response(status: StatusCode, reason: &str) -> Response {
    let body = json!({ "error": reason }).to_string();
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Creates a response of JSON.
pub(crate) fn json_response(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Creates a response of JSON within the limit of an answer.
pub(crate) fn bounded_data(value: &Value) -> Result<Response, ReportProblem> {
    let text = value.to_string();
    check_size(text.len())?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// Fails if an answer of so many bytes is too large.
pub(crate) fn check_size(bytes: usize) -> Result<(), ReportProblem> {
    if bytes > LARGEST {
        let reason = format!("the answer has more than {} MiB", LARGEST >> 20);
        return Err(ReportProblem::too_large(reason));
    }
    Ok(())
}

/// Creates a response whose parts are made in a thread of their own, until the client is gone.
pub(crate) fn stream_response(content_type: &'static str, parts: BodyParts) -> Response {
    ([(CONTENT_TYPE, content_type)], Body::from_stream(sent_parts(parts))).into_response()
}

fn sent_parts(parts: BodyParts) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let (sender, receiver) = mpsc::channel(PARTS);
    tokio::task::spawn_blocking(move || {
        for part in parts {
            let is_gone = if part.is_empty() {
                sender.is_closed()
            } else {
                sender.blocking_send(Ok(Bytes::from(part))).is_err()
            };
            if is_gone {
                return;
            }
        }
    });
    futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|part| (part, receiver))
    })
}
