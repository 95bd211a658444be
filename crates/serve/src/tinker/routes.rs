//! Routes of the Tinker API, below `/api/v1`.

mod creation;
mod samples;
mod training;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path as UrlPath, Request, State as Given};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::answers::{ApiError, ApiResult, answered, failed, parse, read, told};
use super::requests::{RetrieveRequest, SessionRequest};
use super::results::{FutureOutcome, RequestFailure};
use super::server::TinkerServer;
use super::state::TrainService;
use crate::refusal::{Refusal, json_response};
use creation::{create_model, load_weights, model_info, unload_model, weights_info};
use samples::{create_sampler, sample};
use training::{optim_step, pass, save_for_sampler, save_weights};

/// Time for which a request for a result waits; the clients give up after 45 seconds, and ask again.
const PATIENCE: Duration = Duration::from_secs(40);
/// Type of messages that are Protocol Buffers.
const PROTO: &str = "application/x-protobuf";

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

/// Returns the routes of a server.
pub fn router(server: &Arc<TinkerServer>) -> Router {
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

async fn other_path(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(80).collect();
    let message = format!("there is nothing at `{path}`; the Tinker API is below `/api/v1`");
    json_response(StatusCode::NOT_FOUND, &failed(&message, true))
}

async fn client_config(_: &Arc<TinkerServer>, _: &Arc<TrainService>, body: &[u8]) -> ApiResult {
    let _: Value = parse(body)?;
    told(&json!({
        "parallel_fwdbwd_chunks": true, "proto_compress_fwdbwd": true, "custom_loss_server_side": false,
        "sample_use_retrieve_futures": false, "sample_join_sampling_session": false, "pjwt_auth_enabled": false,
    }))
}

async fn dynamic_config(_: &Arc<TinkerServer>, _: &Arc<TrainService>, body: &[u8]) -> ApiResult {
    let _: Value = parse(body)?;
    told(&json!({}))
}

async fn telemetry(_: &Arc<TinkerServer>, _: &Arc<TrainService>, _: &[u8]) -> ApiResult {
    told(&json!({"status": "accepted"}))
}

async fn health() -> Response {
    json_response(StatusCode::OK, &json!({"status": "ok"}))
}

async fn create_session(
    _: &Arc<TinkerServer>,
    state: &Arc<TrainService>,
    body: &[u8],
) -> ApiResult {
    let _: Value = parse(body)?;
    let id = state.open_session();
    let id = id.ok_or_else(|| Refusal::unavailable("full", "there are too many sessions"))?;
    told(&json!({"type": "create_session", "session_id": id}))
}

async fn heartbeat(_: &Arc<TinkerServer>, state: &Arc<TrainService>, body: &[u8]) -> ApiResult {
    let SessionRequest { session_id } = parse(body)?;
    state.require_session(&session_id)?;
    told(&json!({"type": "session_heartbeat"}))
}

async fn capabilities(Given(server): Given<Arc<TinkerServer>>) -> Response {
    let answer = server.state.get().map_err(ApiError::from).and_then(|state| {
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
    let answer = server.state.get().map_err(ApiError::from).and_then(|state| {
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
            FutureOutcome::Json(value) => ("result", json_response(StatusCode::OK, value)),
            FutureOutcome::Proto(bytes) => {
                ("result", ([(CONTENT_TYPE, PROTO)], bytes.clone()).into_response())
            }
            FutureOutcome::Failed(RequestFailure { message, by_user }) => {
                let kind = if *by_user { "user" } else { "server" };
                (kind, json_response(StatusCode::OK, &failed(message, *by_user)))
            }
        };
        server.metrics().add("maverl_results_total", &[kind], 1);
        Ok(response)
    };
    let answer = answer.await;
    answered(&server, "retrieve_future", answer)
}
