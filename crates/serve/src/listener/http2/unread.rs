//! Bodies that a client does not read, although it keeps the connection.
//!
//! HTTP/2 has windows of its own: a client that opens none for a body still reads its socket and answers pings.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

/// Maximum size of a frame. The connection buffers one of each body.
const LARGEST: usize = 16 << 10;

/// Bodies of a connection of which a frame waits to be sent, and since when.
#[derive(Clone, Default)]
pub(super) struct UnreadBodies(Arc<Mutex<UnreadFrames>>);

#[derive(Default)]
struct UnreadFrames {
    since: BTreeMap<u64, Instant>,
    next: u64,
}

/// A body that is passed on in frames of bounded size, each once the one before it was sent.
pub(super) struct Watched {
    body: Body,
    /// Part of the last frame of the body that was not passed on.
    rest: Bytes,
    id: u64,
    unread: UnreadBodies,
}

impl UnreadBodies {
    /// Watches the body of an answer.
    pub(super) fn watch(&self, answer: Response) -> Response<Watched> {
        let id = {
            let mut state = self.lock();
            state.next += 1;
            state.next
        };
        answer.map(|body| Watched { body, rest: Bytes::new(), id, unread: self.clone() })
    }

    /// Waits until a frame of some body has waited for so long.
    pub(super) async fn expires(&self, patience: Duration) {
        loop {
            let oldest = self.lock().since.values().min().copied();
            let end = oldest.unwrap_or_else(Instant::now) + patience;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnreadFrames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.unread.lock().since.remove(&self.id);
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        // The frame before was sent.
        this.unread.lock().since.remove(&this.id);
        if this.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            match frame?.into_data() {
                Ok(data) => this.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let part = this.rest.split_to(this.rest.len().min(LARGEST));
        this.unread.lock().since.insert(this.id, Instant::now());
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::response::IntoResponse as _;
    use futures::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_body_is_unread_while_a_frame_of_it_waits() {
        let (unread, patience) = (UnreadBodies::default(), Duration::from_millis(50));
        let whole = "x".repeat(LARGEST + 1);
        let mut body = unread.watch(whole.into_response()).into_body();
        assert_eq!(body.size_hint().exact(), Some(LARGEST as u64 + 1));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), body.is_end_stream()), (LARGEST, false));
        let begin = Instant::now();
        unread.expires(patience).await;
        assert!(begin.elapsed() >= patience / 2);
        let second = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((second.len(), body.is_end_stream()), (1, true));
        assert!(unread.expires(Duration::from_secs(600)).now_or_never().is_none());
        drop(body);
        assert!(unread.lock().since.is_empty());
    }
}
