//! The adapter of the pages to the HTTP library.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

use super::{Body, Request, Response, Viewer};

/// Maximum size of a request's head in bytes.
const HEAD_BYTES: usize = 64 << 10;
/// Maximum number of concurrent connections; further ones wait to be accepted.
const CONNECTIONS: usize = 256;
/// Timeout of a client for sending a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause after a failed accept, such as one with too many open connections.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of parts of a body that wait to be sent.
const PARTS: usize = 4;

/// Serves the pages until `stop` resolves. Open connections end with the process.
pub async fn serve(listener: TcpListener, viewer: Arc<Viewer>, stop: impl Future<Output = ()>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut stop = pin!(stop);
    loop {
        let taken = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream) = tokio::select! {
            biased;
            () = &mut stop => return,
            (place, accepted) = taken => match accepted {
                Ok((stream, _)) => (place, stream),
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        let viewer = Arc::clone(&viewer);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let viewer = Arc::clone(&viewer);
            async move { Ok::<_, Infallible>(answer(viewer, request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        // An error of a connection only concerns its client, which is gone.
        tokio::spawn(async move {
            let _ = connection.await;
            drop(place);
        });
    }
}

/// Answers a request in a thread that may block.
async fn answer(
    viewer: Arc<Viewer>,
    request: hyper::Request<Incoming>,
) -> hyper::Response<BoxBody<Bytes, Infallible>> {
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
    let mut response = hyper::Response::new(match body {
        Body::Whole(bytes) => Full::new(Bytes::from(bytes)).boxed(),
        Body::Parts(parts) => BodyExt::boxed(StreamBody::new(sent(parts))),
    });
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
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
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync {
    let (sender, receiver) = mpsc::channel(PARTS);
    tokio::task::spawn_blocking(move || {
        for part in parts {
            let gone = match part.is_empty() {
                true => sender.is_closed(),
                false => sender.blocking_send(Ok(Frame::data(Bytes::from(part)))).is_err(),
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
