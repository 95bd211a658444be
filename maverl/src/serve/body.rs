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
    read_within(body, most, PATIENCE).await
}

async fn read_within(body: Body, most: usize, limit: Duration) -> Result<Bytes, Refusal> {
    let too_long = || {
        let message = format!("the body is longer than {most} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_long());
    }
    match tokio::time::timeout(limit, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(error)) => Err(Refusal::malformed(format!("the body cannot be read: {error}"))),
        Err(_) => {
            let message = format!("the body did not come within {limit:?}");
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use futures::stream::{self, StreamExt as _};

    use super::*;

    /// Returns a body that has these parts and never ends.
    fn endless(parts: &'static [&'static str]) -> Body {
        let parts = stream::iter(parts).map(|part| Ok::<_, Infallible>(*part));
        Body::from_stream(parts.chain(stream::pending()))
    }

    #[tokio::test]
    async fn a_body_that_does_not_end_in_time_is_refused_and_one_that_is_too_long_at_once() {
        let limit = Duration::from_millis(20);
        let late = read_within(endless(&["{\"a\":"]), 100, limit).await.unwrap_err();
        assert_eq!((late.status.as_u16(), late.code), (408, "request_timeout"));
        assert!(late.message.contains("20ms"), "{}", late.message);
        let long = read(endless(&["0123456789", "0123456789"]), 15).await.unwrap_err();
        assert_eq!((long.status.as_u16(), long.code), (413, "request_too_large"));
        let whole = Body::from_stream(stream::iter(["ab", "cd"]).map(Ok::<_, Infallible>));
        assert_eq!(read(whole, 4).await.unwrap(), "abcd");
    }
}
