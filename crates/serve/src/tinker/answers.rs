//! Bodies of requests, and answers to them: a result at once, or the number under which it is fetched.

use std::io::Read as _;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::model::{ModelJob, Queued};
use super::results::{Promise, RequestFailure, StartedFuture};
use super::server::TinkerServer;
use super::state::{LiveModel, TrainService};
use crate::body;
use crate::refusal::{Refusal, json_response};

/// Answer to a request, or the reason for none.
pub(super) type ApiResult = Result<Response, ApiError>;

/// Problem of a request that gets no number.
pub(super) enum ApiError {
    /// Of the request or the connection.
    Refused(Refusal),
    /// Of what it asks for.
    Failed(RequestFailure),
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<RequestFailure> for ApiError {
    fn from(failure: RequestFailure) -> Self {
        Self::Failed(failure)
    }
}

impl ApiError {
    pub(super) fn into_response(self) -> Response {
        let (status, message, by_user) = match self {
            Self::Refused(refusal) => {
                let by_user = refusal.status.is_client_error();
                (refusal.status, refusal.message, by_user)
            }
            Self::Failed(RequestFailure { message, by_user: true }) => {
                (StatusCode::BAD_REQUEST, message, true)
            }
            Self::Failed(RequestFailure { message, .. }) => {
                (StatusCode::INTERNAL_SERVER_ERROR, message, false)
            }
        };
        json_response(status, &failed(&message, by_user))
    }
}

/// Returns the answer of a failure.
pub(super) fn failed(message: &str, by_user: bool) -> Value {
    json!({"error": message, "category": if by_user { "user" } else { "server" }})
}

pub(super) fn answered(server: &TinkerServer, route: &str, answer: ApiResult) -> Response {
    let response = answer.unwrap_or_else(ApiError::into_response);
    let code = response.status().as_u16().to_string();
    server.metrics().add("maverl_requests_total", &[route, &code], 1);
    response
}

/// Reads the body of a request, unpacked, once the server answers.
pub(super) async fn read(
    server: &TinkerServer,
    request: Request,
) -> Result<(Arc<TrainService>, Vec<u8>), ApiError> {
    let state = Arc::clone(server.state.get()?);
    let packed = is_packed(request.headers())?;
    let most = server.settings.max_body;
    let received = body::read(request.into_body(), most).await?;
    if !packed {
        return Ok((state, received.to_vec()));
    }
    let mut bytes = Vec::new();
    let unpacked = zstd::stream::read::Decoder::new(&received[..])
        .and_then(|decoder| decoder.take(most as u64 + 1).read_to_end(&mut bytes));
    unpacked.map_err(|error| Refusal::malformed(format!("the body is no zstd: {error}")))?;
    if bytes.len() > most {
        let message = format!("the unpacked body is longer than {most} bytes");
        return Err(
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message).into()
        );
    }
    Ok((state, bytes))
}

/// Returns true for a body in zstd.
fn is_packed(headers: &HeaderMap) -> Result<bool, Refusal> {
    match headers.get(CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?")) {
        None | Some("identity") => Ok(false),
        Some("zstd") => Ok(true),
        Some(other) => {
            let message = format!("the body is encoded as {other:?}; send zstd, or no encoding");
            Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request", message))
        }
    }
}

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::malformed(format!("the body: {error}")))
}

pub(super) fn told(value: &Value) -> ApiResult {
    Ok(json_response(StatusCode::OK, value))
}

/// Answers with the number of a request. `run` gets the promise of its result, unless the client has sent it again.
pub(super) fn promised(
    state: &TrainService,
    id: &str,
    more: Map<String, Value>,
    run: impl FnOnce(Promise),
) -> ApiResult {
    match state.futures.begin(id) {
        StartedFuture::New(promise) => run(promise),
        StartedFuture::Again => {}
        StartedFuture::Full => return Err(full()),
    }
    let mut answer = Map::from_iter([("request_id".to_owned(), json!(id))]);
    answer.extend(more);
    told(&Value::Object(answer))
}

/// Puts work into the queue of a model, and answers with its number.
pub(super) async fn queued(
    state: &TrainService,
    id: &str,
    seq: Option<u64>,
    job: ModelJob,
) -> ApiResult {
    let LiveModel { model, inbox } = state.model(id)?;
    let seq = seq.filter(|seq| *seq > 0).ok_or_else(|| {
        RequestFailure::user("`seq_id` is missing; number the requests of a model from 1")
    })?;
    let number = format!("{}:{seq}", model.id);
    match state.futures.begin(&number) {
        // A send fails if the model has just ended; the promise then fails.
        StartedFuture::New(promise) => drop(inbox.send(Queued { seq, job, promise }).await),
        StartedFuture::Again => {}
        StartedFuture::Full => return Err(full()),
    }
    told(&json!({"request_id": number}))
}

/// Returns the problem of a request whose result has no room.
fn full() -> ApiError {
    Refusal::unavailable("full", "too many results are there or to come; fetch them").into()
}
