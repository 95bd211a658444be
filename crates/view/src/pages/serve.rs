//! The adapter of the pages to the listener of the servers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body as HttpBody, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use futures::Stream;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::query::{Body, Request, Response};
use super::viewer::Viewer;
use maverl::serve::{Limits, Listener};

/// Maximum number of concurrent connections; further ones wait to be accepted.
const CONNECTIONS: usize = 256;
/// Maximum time that a stop waits for requests: streams of events have no end.
const DRAIN: Duration = Duration::from_millis(200);
/// Number of parts of a body that wait to be sent.
const PARTS: usize = 4;

/// Serves the pages until `stop` resolves.
pub async fn serve(listener: TcpListener, viewer: Arc<Viewer>, stop: impl Future<Output = ()>) {
    let limits = Limits { connections: CONNECTIONS, drain: DRAIN, ..Limits::default() };
    let router = Router::new().fallback(answer).with_state(viewer);
    Listener::new(listener, limits).serve(router, stop).await;
}

/// Answers a request in a thread that may block.
async fn answer(
    State(viewer): State<Arc<Viewer>>,
    request: axum::extract::Request,
) -> axum::response::Response {
    let answered = tokio::task::spawn_blocking(move || {
        let headers: Option<Vec<(&str, &str)>> = request
            .headers()
            .iter()
            .map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
            .collect();
        let target = request.uri().path_and_query().map_or("", |target| target.as_str());
        let method = request.method().as_str();
        match headers {
            Some(headers) => viewer.answer(&Request { method, target, headers: &headers }),
            None => Response::refusal(400, "a header is not text"),
        }
    });
    let failed = |_| Response::refusal(500, "the answer failed");
    let Response { status, headers, body } = answered.await.unwrap_or_else(failed);
    let mut response = axum::response::Response::new(match body {
        Body::Whole(bytes) => HttpBody::from(bytes),
        Body::Parts(parts) => HttpBody::from_stream(sent(parts)),
    });
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// Makes the parts of a body in a thread of their own, until the client is gone.
fn sent(
    parts: Box<dyn Iterator<Item = Vec<u8>> + Send>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let (sender, receiver) = mpsc::channel(PARTS);
    tokio::task::spawn_blocking(move || {
        for part in parts {
            let gone = match part.is_empty() {
                true => sender.is_closed(),
                false => sender.blocking_send(Ok(Bytes::from(part))).is_err(),
            };
            if gone {
                return;
            }
        }
    });
    futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|part| (part, receiver))
    })
}
