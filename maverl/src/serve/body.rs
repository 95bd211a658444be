//! Bodies of requests, within limits of size and time.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::Refusal;

/// Timeout of a body.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Reads a body of at most `most` bytes.
///
/// # Errors
///
/// 413 for a longer one (of a declared length above the limit nothing is read), 408 for one that takes longer than 30
/// seconds, 400 for one that ends early.
pub async fn read(body: Body, most: usize) -> Result<Bytes, Refusal> {
    let too_long = || {
        let message = format!("the body is longer than {most} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_long());
    }
    match tokio::time::timeout(PATIENCE, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(error)) => Err(Refusal::malformed(format!("the body cannot be read: {error}"))),
        Err(_) => {
            let message = format!("the body did not come within {PATIENCE:?}");
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
        }
    }
}
