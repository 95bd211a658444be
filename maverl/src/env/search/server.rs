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

/// Where queries are asked.
const PATH: &str = "/retrieve";
/// Most bytes of a request.
const MOST_BYTES: usize = 2 << 20;
/// Most bytes of a request's head.
const HEAD_BYTES: usize = 64 << 10;
/// Connections at once; further ones wait to be taken.
const CONNECTIONS: usize = 256;
/// Answers that are written or sent at once; further requests wait for theirs.
const ANSWERS: usize = 16;
/// How long a client may take to send a request, or to take any part of its answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a stop waits for answers under way.
const GRACE: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be taken, as when there are too many.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers queries at a batched until `stop` is done, then finishes the requests under way, as far as a few seconds let it.
///
/// A request that cannot be answered gets `{"error": ".."}` with a status from 400 on; it ends nothing but itself. What all
/// clients together can make the server hold is bounded: connections, the bytes of each request, and the answers that are
/// not yet sent.
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
        // Without it answers may wait for more to send; where it cannot be had, they are only slower.
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
            // A client that has sent all it has to say still waits for its answer.
            .half_close(true)
            .serve_connection(TokioIo::new(Impatient::new(stream, PATIENCE)), service);
        let connection = connections.watch(connection);
        // A connection that breaks is the client's loss, and nobody is left to be told.
        tokio::spawn(async move {
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, connections.shutdown()).await;
}

/// Why a request gets no documents.
struct Refusal(StatusCode, String);

/// A batched, and how many of its answers may be in memory.
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

    /// The answer, and the place among answers that it has until it is sent.
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

/// The body of a request, if it is not too long and comes in time.
async fn body(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let too_long = || {
        let message = format!("the body is longer than {MOST_BYTES} bytes");
        Refusal(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    // What says so itself need not be read to find out.
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
