//! `maverl serve retriever`: Search-R1's protocol, `POST /retrieve`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::Full;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body;
use crate::listener::{Limits, Listener};
use crate::refusal::json_response;
use maverl::env::search::BatchedSearch;
use maverl::env::search::protocol::{self, MOST_ANSWERED, Question};

/// Path of the endpoint.
const PATH: &str = "/retrieve";
/// Maximum size of a request in bytes.
const MOST_BYTES: usize = 2 << 20;
/// Maximum number of answers that are written or sent concurrently; further requests wait.
const ANSWERS: usize = 16;
/// Time that a shutdown waits for running requests.
const GRACE: Duration = Duration::from_secs(5);
/// Default time limit of a search.
const LIMIT: Duration = Duration::from_secs(300);

/// Answers queries from a [`BatchedSearch`] until `stop` resolves. Then finishes the running requests, within a few
/// seconds.
///
/// A request that cannot be answered gets `{"error": ".."}` with a status of 400 or above and affects nothing else. The
/// memory that all clients together can occupy is bounded: connections, the bytes of each request, and the unsent
/// answers.
pub async fn serve_retriever(
    listener: TcpListener,
    batched: Arc<BatchedSearch>,
    stop: impl Future<Output = ()>,
) {
    let limits = Limits { drain: GRACE, half_close: true, ..Limits::default() };
    Listener::new(listener, limits).serve(retriever(batched, LIMIT), stop).await;
}

/// Returns the route of a retriever. A request whose search takes longer than `limit` is refused, and what is left of it is not
/// searched.
pub fn retriever(batched: Arc<BatchedSearch>, limit: Duration) -> Router {
    let answers = Arc::new(Semaphore::new(ANSWERS));
    Router::new()
        .route(PATH, post(reply).fallback(other_method))
        .fallback(other_path)
        .with_state(Counter { batched, answers, limit })
}

/// Error response to a request, in the words of Search-R1's servers.
struct RetrieverProblem(StatusCode, String);

#[derive(Serialize)]
struct ProblemAnswer<'a> {
    error: &'a str,
}

impl IntoResponse for RetrieverProblem {
    fn into_response(self) -> Response {
        json_response(self.0, &ProblemAnswer { error: &self.1 })
    }
}

/// A search with a limit on the number of its answers in memory.
#[derive(Clone)]
struct Counter {
    batched: Arc<BatchedSearch>,
    answers: Arc<Semaphore>,
    limit: Duration,
}

async fn other_path(uri: Uri) -> RetrieverProblem {
    let path: String = uri.path().chars().take(80).collect();
    RetrieverProblem(
        StatusCode::NOT_FOUND,
        format!("there is nothing at `{path}`; POST to `{PATH}`"),
    )
}

async fn other_method(request: Request) -> Response {
    let message = format!("`{PATH}` takes POST, not {}", request.method());
    let problem = RetrieverProblem(StatusCode::METHOD_NOT_ALLOWED, message);
    ([(ALLOW, "POST")], problem).into_response()
}

async fn reply(
    State(counter): State<Counter>,
    request: Request,
) -> Result<Response, RetrieverProblem> {
    let (bytes, place) = counter.answer(request.into_body()).await?;
    let body = Body::new(Reserved { body: Full::new(bytes), _place: place });
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

impl Counter {
    /// Returns the answer with its slot, which is released once it is sent.
    async fn answer(&self, body: Body) -> Result<(Bytes, OwnedSemaphorePermit), RetrieverProblem> {
        let body = body::read(body, MOST_BYTES).await;
        let body = body.map_err(|refusal| RetrieverProblem(refusal.status, refusal.message))?;
        let failed = StatusCode::INTERNAL_SERVER_ERROR;
        let place = Arc::clone(&self.answers).acquire_owned().await;
        let place = place.map_err(|error| RetrieverProblem(failed, error.to_string()))?;
        let ask = Question::read(&body)
            .map_err(|message| RetrieverProblem(StatusCode::BAD_REQUEST, message))?;
        let search = tokio::time::timeout(self.limit, self.batched.search(&ask.queries, ask.k));
        let found = search.await.map_err(|_| {
            let seconds = self.limit.as_secs_f64();
            let message = format!("the search took longer than {seconds} s; send fewer `queries`");
            RetrieverProblem(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        let found = found.map_err(|error| RetrieverProblem(failed, error.to_string()))?;
        let answer = protocol::answer(&found, ask.scores).ok_or_else(|| {
            let most = MOST_ANSWERED >> 20;
            let message = format!(
                "the answer has more than {most} MiB; send fewer `queries`, or a smaller `topk`"
            );
            RetrieverProblem(StatusCode::PAYLOAD_TOO_LARGE, message)
        })?;
        Ok((answer.into(), place))
    }
}

/// A body that releases its slot once it is sent or dropped.
struct Reserved {
    body: Full<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl HttpBody for Reserved {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
