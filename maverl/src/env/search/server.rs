//! A server that speaks Search-R1's protocol: `POST /retrieve`.

mod limited;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::BatchedSearch;
use super::protocol::{self, MOST_ANSWERED, Question};
use crate::env::EnvError;
use limited::{Impatient, Reserved};

/// Path of the endpoint.
const PATH: &str = "/retrieve";
/// Maximum size of a request in bytes.
const MOST_BYTES: usize = 2 << 20;
/// Maximum size of a request's head in bytes.
const HEAD_BYTES: usize = 64 << 10;
/// Maximum number of concurrent connections; further ones wait to be accepted.
const CONNECTIONS: usize = 256;
/// Maximum number of answers that are written or sent concurrently; further requests wait.
const ANSWERS: usize = 16;
/// Timeout of a client for sending a request, or for reading any part of its answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time that a shutdown waits for running requests.
const GRACE: Duration = Duration::from_secs(5);
/// Pause after a failed accept, such as one with too many open connections.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers queries from a [`BatchedSearch`] until `stop` resolves. Then finishes the running requests, within a few
/// seconds.
///
/// A request that cannot be answered gets `{"error": ".."}` with a status of 400 or above and affects nothing else. The
/// memory that all clients together can occupy is bounded: connections, the bytes of each request, and the unsent
/// answers.
pub async fn serve(
    listener: TcpListener,
    batched: Arc<BatchedSearch>,
    stop: impl Future<Output = ()>,
) {
    let connections = GracefulShutdown::new();
    let batched = Arc::new(Counter { batched, answers: Arc::new(Semaphore::new(ANSWERS)) });
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut stop = pin!(stop);
    loop {
        let taken = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream) = tokio::select! {
            biased;
            () = &mut stop => break,
            (place, accepted) = taken => match accepted {
                Ok((stream, _)) => (place, stream),
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        // Without `TCP_NODELAY` answers may be delayed until more data is sent; if it is not available, they are only
        // slower.
        let _ = stream.set_nodelay(true);
        let batched = Arc::clone(&batched);
        let service = service_fn(move |request: Request<Incoming>| {
            let batched = Arc::clone(&batched);
            async move { Ok::<_, Infallible>(batched.reply(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(HEAD_BYTES)
            // A client that has closed its sending half still waits for its answer.
            .half_close(true)
            .serve_connection(TokioIo::new(Impatient::new(stream, PATIENCE)), service);
        let connection = connections.watch(connection);
        // An error of a connection only concerns its client, which is gone.
        tokio::spawn(async move {
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, connections.shutdown()).await;
}

/// Error response to a request.
struct Refusal(StatusCode, String);

/// A search with a limit on the number of its answers in memory.
struct Counter {
    batched: Arc<BatchedSearch>,
    answers: Arc<Semaphore>,
}

impl Counter {
    async fn reply(&self, request: Request<Incoming>) -> Response<Reserved> {
        let (status, body) = match self.answer(request).await {
            Ok((body, place)) => (StatusCode::OK, Reserved::new(body, Some(place))),
            Err(Refusal(status, message)) => {
                (status, Reserved::new(json!({"error": message}).to_string().into(), None))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }

    /// Returns the answer with its slot, which is released once it is sent.
    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<(Bytes, OwnedSemaphorePermit), Refusal> {
        let path = request.uri().path();
        if path != PATH {
            let path: String = path.chars().take(80).collect();
            let message = format!("there is nothing at `{path}`; POST to `{PATH}`");
            return Err(Refusal(StatusCode::NOT_FOUND, message));
        }
        if request.method() != Method::POST {
            let message = format!("`{PATH}` takes POST, not {}", request.method());
            return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let body = body(request).await?;
        let failed = |error: String| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error);
        let place = Arc::clone(&self.answers).acquire_owned().await;
        let place = place.map_err(|error| failed(error.to_string()))?;
        let bad = |message| Refusal(StatusCode::BAD_REQUEST, message);
        let ask = Question::read(&body).map_err(bad)?;
        let found = self.batched.search(&ask.queries, ask.k).await;
        let found = found.map_err(|error: EnvError| failed(error.to_string()))?;
        let answer = protocol::answer(&found, ask.scores).ok_or_else(|| {
            let most = MOST_ANSWERED >> 20;
            let message = format!(
                "the answer has more than {most} MiB; send fewer `queries`, or a smaller `topk`"
            );
            Refusal(StatusCode::PAYLOAD_TOO_LARGE, message)
        })?;
        Ok((answer.into(), place))
    }
}

/// Reads the body of a request, within the limits of size and time.
async fn body(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let too_long = || {
        let message = format!("the body is longer than {MOST_BYTES} bytes");
        Refusal(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    // A declared length above the limit is rejected without reading the body.
    if request.body().size_hint().lower() > MOST_BYTES as u64 {
        return Err(too_long());
    }
    let body = Limited::new(request.into_body(), MOST_BYTES).collect();
    match tokio::time::timeout(PATIENCE, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(error)) => Err(Refusal(StatusCode::BAD_REQUEST, error.to_string())),
        Err(_) => {
            let message = format!("the body did not come within {PATIENCE:?}");
            Err(Refusal(StatusCode::REQUEST_TIMEOUT, message))
        }
    }
}

#[cfg(test)]
mod tests;
