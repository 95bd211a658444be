//! Routes of the Tinker API, below `/api/v1`.

mod creation;
mod samples;
mod training;

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path as UrlPath, Request, State as Given};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::TinkerServer;
use super::models::{Job, Queued};
use super::requests::{RetrieveRequest, SessionRequest};
use super::results::{Begun, Failure, Outcome, Promise};
use super::state::{LiveModel, State};
use crate::body;
use crate::refusal::{Refusal, json_response};
use creation::{create_model, load_weights, model_info, unload_model, weights_info};
use samples::{create_sampler, sample};
use training::{optim_step, pass, save_for_sampler, save_weights};

/// Time for which a request for a result waits; the clients give up after 45 seconds, and ask again.
const PATIENCE: Duration = Duration::from_secs(40);
/// Type of messages that are Protocol Buffers.
const PROTO: &str = "application/x-protobuf";

/// Answer to a request, or the reason for none.
type Answer = Result<Response, Problem>;

/// Problem of a request that gets no number.
pub(super) enum Problem {
    /// Of the request or the connection.
    Refused(Refusal),
    /// Of what it asks for.
    Failed(Failure),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Problem {
    fn into_response(self) -> Response {
        let (status, message, by_user) = match self {
            Self::Refused(refusal) => {
                let by_user = refusal.status.is_client_error();
                (refusal.status, refusal.message, by_user)
            }
            Self::Failed(Failure { message, by_user: true }) => {
                (StatusCode::BAD_REQUEST, message, true)
            }
            Self::Failed(Failure { message, .. }) => {
                (StatusCode::INTERNAL_SERVER_ERROR, message, false)
            }
        };
        json_response(status, &failed(&message, by_user))
    }
}

/// Returns the answer of a failure.
fn failed(message: &str, by_user: bool) -> Value {
    json!({"error": message, "category": if by_user { "user" } else { "server" }})
}

/// Declares the routes of requests with a body: each name is one of the API, and a function of this file.
macro_rules! posts {
    ($router:ident: $($name:ident => $path:literal),* $(,)?) => {
        $(let $router = $router.route(
            concat!("/api/v1/", $path),
            post(|Given(server): Given<Arc<TinkerServer>>, request: Request| async move {
                let answer = match read(&server, request).await {
                    Ok((state, body)) => $name(&server, &state, &body).await,
                    Err(problem) => Err(problem),
                };
                answered(&server, $path, answer)
            }),
        );)*
    };
}

/// Returns the routes.
pub(super) fn router(server: &Arc<TinkerServer>) -> Router {
    let router = Router::new();
    posts! { router:
        client_config => "client/config",
        dynamic_config => "client/dynamic_config",
        telemetry => "telemetry",
        create_session => "create_session",
        heartbeat => "session_heartbeat",
        create_model => "create_model",
        unload_model => "unload_model",
        model_info => "get_info",
        optim_step => "optim_step",
        save_weights => "save_weights",
        save_for_sampler => "save_weights_for_sampler",
        load_weights => "load_weights",
        weights_info => "weights_info",
        create_sampler => "create_sampling_session",
        sample => "asample",
        pass => "forward_backward",
    }
    router
        .route("/api/v1/retrieve_future", post(retrieve))
        .route("/api/v1/get_server_capabilities", get(capabilities))
        .route("/api/v1/samplers/{id}", get(sampler_info))
        .route("/api/v1/healthz", get(health))
        .fallback(other_path)
        .with_state(Arc::clone(server))
}

fn answered(server: &TinkerServer, route: &str, answer: Answer) -> Response {
    let response = answer.unwrap_or_else(Problem::into_response);
    let code = response.status().as_u16().to_string();
    server.metrics.add("maverl_requests_total", &[route, &code], 1);
    response
}

async fn other_path(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(80).collect();
    let message = format!("there is nothing at `{path}`; the Tinker API is below `/api/v1`");
    json_response(StatusCode::NOT_FOUND, &failed(&message, true))
}

/// Reads the body of a request, unpacked, once the server answers.
async fn read(server: &TinkerServer, request: Request) -> Result<(Arc<State>, Vec<u8>), Problem> {
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

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::malformed(format!("the body: {error}")))
}

fn told(value: &Value) -> Answer {
    Ok(json_response(StatusCode::OK, value))
}

/// Answers with the number of a request. `run` gets the promise of its result, unless the client has sent it again.
fn promised(
    state: &State,
    id: &str,
    more: Map<String, Value>,
    run: impl FnOnce(Promise),
) -> Answer {
    match state.futures.begin(id) {
        Begun::New(promise) => run(promise),
        Begun::Again => {}
        Begun::Full => return Err(full()),
    }
    let mut answer = Map::from_iter([("request_id".to_owned(), json!(id))]);
    answer.extend(more);
    told(&Value::Object(answer))
}

/// Puts work into the queue of a model, and answers with its number.
async fn queued(state: &State, id: &str, seq: Option<u64>, job: Job) -> Answer {
    let LiveModel { model, inbox } = state.model(id)?;
    let seq = seq.filter(|seq| *seq > 0).ok_or_else(|| {
        Failure::user("`seq_id` is missing; number the requests of a model from 1")
    })?;
    let number = format!("{}:{seq}", model.id);
    match state.futures.begin(&number) {
        // A send fails if the model has just ended; the promise then fails.
        Begun::New(promise) => drop(inbox.send(Queued { seq, job, promise }).await),
        Begun::Again => {}
        Begun::Full => return Err(full()),
    }
    told(&json!({"request_id": number}))
}

/// Returns the problem of a request whose result has no room.
fn full() -> Problem {
    Refusal::unavailable("full", "too many results are there or to come; fetch them").into()
}

async fn client_config(_: &Arc<TinkerServer>, _: &Arc<State>, body: &[u8]) -> Answer {
    let _: Value = parse(body)?;
    told(&json!({
        "parallel_fwdbwd_chunks": true, "proto_compress_fwdbwd": true, "custom_loss_server_side": false,
        "sample_use_retrieve_futures": false, "sample_join_sampling_session": false, "pjwt_auth_enabled": false,
    }))
}

async fn dynamic_config(_: &Arc<TinkerServer>, _: &Arc<State>, body: &[u8]) -> Answer {
    let _: Value = parse(body)?;
    told(&json!({}))
}

async fn telemetry(_: &Arc<TinkerServer>, _: &Arc<State>, _: &[u8]) -> Answer {
    told(&json!({"status": "accepted"}))
}

async fn health() -> Response {
    json_response(StatusCode::OK, &json!({"status": "ok"}))
}

async fn create_session(_: &Arc<TinkerServer>, state: &Arc<State>, body: &[u8]) -> Answer {
    let _: Value = parse(body)?;
    let id = state.open_session();
    let id = id.ok_or_else(|| Refusal::unavailable("full", "there are too many sessions"))?;
    told(&json!({"type": "create_session", "session_id": id}))
}

async fn heartbeat(_: &Arc<TinkerServer>, state: &Arc<State>, body: &[u8]) -> Answer {
    let SessionRequest { session_id } = parse(body)?;
    state.require_session(&session_id)?;
    told(&json!({"type": "session_heartbeat"}))
}

async fn capabilities(Given(server): Given<Arc<TinkerServer>>) -> Response {
    let answer = server.state.get().map_err(Problem::from).and_then(|state| {
        let models = state.bases.iter().map(|base| {
            json!({
                "model_name": base.name, "max_context_length": base.limits.context, "trainable": true, "sampleable": true,
            })
        });
        told(&json!({"supported_models": models.collect::<Vec<_>>()}))
    });
    answered(&server, "get_server_capabilities", answer)
}

async fn sampler_info(
    Given(server): Given<Arc<TinkerServer>>,
    UrlPath(id): UrlPath<String>,
) -> Response {
    let answer = server.state.get().map_err(Problem::from).and_then(|state| {
        let source = state.sampler(&id)?;
        let base = &state.bases[source.base].name;
        told(&json!({"sampler_id": id, "base_model": base, "model_path": source.path}))
    });
    answered(&server, "samplers", answer)
}

async fn retrieve(Given(server): Given<Arc<TinkerServer>>, request: Request) -> Response {
    let answer = async {
        let (state, body) = read(&server, request).await?;
        let RetrieveRequest { request_id } = parse(&body)?;
        let Some(outcome) = state.futures.wait(&request_id, PATIENCE).await else {
            let message = format!("there is no request `{request_id}`, or its result was dropped");
            return Ok(json_response(StatusCode::NOT_FOUND, &failed(&message, true)));
        };
        let Some(outcome) = outcome else {
            let again =
                json!({"type": "try_again", "request_id": request_id, "queue_state": "active"});
            return Ok(json_response(StatusCode::REQUEST_TIMEOUT, &again));
        };
        let (kind, response) = match &*outcome {
            Outcome::Json(value) => ("result", json_response(StatusCode::OK, value)),
            Outcome::Proto(bytes) => {
                ("result", ([(CONTENT_TYPE, PROTO)], bytes.clone()).into_response())
            }
            Outcome::Failed(Failure { message, by_user }) => {
                let kind = if *by_user { "user" } else { "server" };
                (kind, json_response(StatusCode::OK, &failed(message, *by_user)))
            }
        };
        server.metrics.add("maverl_results_total", &[kind], 1);
        Ok(response)
    };
    let answer = answer.await;
    answered(&server, "retrieve_future", answer)
}
