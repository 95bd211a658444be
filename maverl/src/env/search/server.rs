//! A server that speaks Search-R1's protocol: `POST /retrieve`.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Desk;
use super::protocol::{self, Question};
use crate::env::EnvError;

/// Where queries are asked.
const PATH: &str = "/retrieve";
/// Most bytes of a request.
const MOST_BYTES: usize = 8 << 20;
/// How long a client may take to send a request, and how long a stop waits for answers under way.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause after a connection that could not be taken, as when there are too many.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers queries at a desk until `stop` is done, then finishes the requests under way.
///
/// A request that cannot be answered gets `{"error": ".."}` with a status from 400 on; it ends nothing but itself.
pub async fn serve(listener: TcpListener, desk: Arc<Desk>, stop: impl Future<Output = ()>) {
    let connections = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let stream = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        // Without it answers may wait for more to send; where it cannot be had, they are only slower.
        let _ = stream.set_nodelay(true);
        let desk = Arc::clone(&desk);
        let service = service_fn(move |request: Request<Incoming>| {
            let desk = Arc::clone(&desk);
            async move { Ok::<_, Infallible>(reply(&desk, request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .serve_connection(TokioIo::new(stream), service);
        let connection = connections.watch(connection);
        // A connection that breaks is the client's loss, and nobody is left to be told.
        tokio::spawn(async move {
            let _ = connection.await;
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(PATIENCE, connections.shutdown()).await;
}

/// Why a request gets no documents.
struct Refusal(StatusCode, String);

async fn reply(desk: &Desk, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, body) = match answer(desk, request).await {
        Ok(body) => (StatusCode::OK, body),
        Err(Refusal(status, message)) => (status, json!({"error": message})),
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

async fn answer(desk: &Desk, request: Request<Incoming>) -> Result<Value, Refusal> {
    let path = request.uri().path();
    if path != PATH {
        let message = format!("there is nothing at `{path}`; POST to `{PATH}`");
        return Err(Refusal(StatusCode::NOT_FOUND, message));
    }
    if request.method() != Method::POST {
        let message = format!("`{PATH}` takes POST, not {}", request.method());
        return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    let body = body(request).await?;
    let bad = |message| Refusal(StatusCode::BAD_REQUEST, message);
    let ask = Question::read(&body).map_err(bad)?;
    let found = desk.search(&ask.queries, ask.k).await;
    let failed = |error: EnvError| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    Ok(protocol::answer(&found.map_err(failed)?, ask.scores))
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
