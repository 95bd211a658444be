//! Bodies of requests, within limits of size, time and memory.

use std::ops::Deref;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::refusal::Refusal;

/// Timeout of a body.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum size of a body that is not counted in [`MEMORY`].
const SMALL: usize = 64 << 10;
/// Maximum number of values in the JSON of a request, and of names of its objects.
const MOST_VALUES: usize = 1 << 20;
/// Bytes of all bodies that are longer than [`SMALL`]. A client is not read while they are used up.
static MEMORY: Semaphore = Semaphore::const_new(512 << 20);

/// A body that was read. It counts in the memory of all bodies until it is dropped.
pub struct Received {
    bytes: Vec<u8>,
    memory: Option<SemaphorePermit<'static>>,
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Received {
    /// Adds a part of the body, once there is memory for it.
    async fn extend(&mut self, part: &[u8]) {
        let before = self.bytes.len().saturating_sub(SMALL);
        let counted = (self.bytes.len() + part.len()).saturating_sub(SMALL) - before;
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        if counted > 0
            && let Ok(more) = MEMORY.acquire_many(counted).await
        {
            match &mut self.memory {
                None => self.memory = Some(more),
                Some(memory) => memory.merge(more),
            }
        }
        self.bytes.extend_from_slice(part);
    }
}

/// Reads a body of at most `most` bytes.
///
/// # Errors
///
/// 413 for a longer one (of a declared length above the limit nothing is read), 408 for one that takes longer than 30
/// seconds, 400 for one that ends early.
pub async fn read(body: Body, most: usize) -> Result<Received, Refusal> {
    read_within(body, most, PATIENCE).await
}

async fn read_within(body: Body, most: usize, limit: Duration) -> Result<Received, Refusal> {
    tokio::time::timeout(limit, collect(body, most)).await.unwrap_or_else(|_| {
        let message = format!("the body did not come within {limit:?}");
        Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
    })
}

async fn collect(mut body: Body, most: usize) -> Result<Received, Refusal> {
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > most {
        return Err(too_long(most));
    }
    let mut received = Received { bytes: Vec::with_capacity(declared), memory: None };
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Refusal::malformed(format!("the body cannot be read: {error}")))?;
        let Ok(part) = frame.into_data() else { continue };
        if received.len() + part.len() > most {
            return Err(too_long(most));
        }
        received.extend(&part).await;
    }
    Ok(received)
}

fn too_long(most: usize) -> Refusal {
    let message = format!("the body is longer than {most} bytes");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
}

/// Fails for JSON with too many values: each takes some hundred bytes of memory, whatever its length in the text.
pub(crate) fn bound_values(json: &[u8]) -> Result<(), Refusal> {
    let values = count_values(json);
    if values <= MOST_VALUES {
        return Ok(());
    }
    let message = format!("the body has {values} values; {MOST_VALUES} are allowed");
    Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message))
}

/// Returns the number of values in JSON, names of objects included, without reading it.
pub(crate) fn count_values(json: &[u8]) -> usize {
    let (mut values, mut within, mut escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within => escaped = true,
            b'"' => within = !within,
            b',' | b':' | b'[' | b'{' if !within => values += 1,
            _ => {}
        }
    }
    values
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
        let late = read_within(endless(&["{\"a\":"]), 100, limit).await.err().unwrap();
        assert_eq!((late.status.as_u16(), late.code), (408, "request_timeout"));
        assert!(late.message.contains("20ms"), "{}", late.message);
        let long = read(endless(&["0123456789", "0123456789"]), 15).await.err().unwrap();
        assert_eq!((long.status.as_u16(), long.code), (413, "request_too_large"));
        let whole = Body::from_stream(stream::iter(["ab", "cd"]).map(Ok::<_, Infallible>));
        assert_eq!(&*read(whole, 4).await.unwrap(), b"abcd");
    }

    #[tokio::test]
    async fn a_large_body_counts_until_it_is_dropped_and_a_small_one_does_not() {
        let body = |parts: usize| {
            let part = "x".repeat(SMALL);
            Body::from_stream(stream::iter(
                (0..parts).map(move |_| Ok::<_, Infallible>(part.clone())),
            ))
        };
        let (small, large) =
            (read(body(1), 1 << 20).await.unwrap(), read(body(3), 1 << 20).await.unwrap());
        assert!(small.memory.is_none() && small.len() == SMALL);
        assert_eq!(large.memory.as_ref().unwrap().num_permits(), 2 * SMALL);
        assert_eq!(large.len(), 3 * SMALL);
    }
}
