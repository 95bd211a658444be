//! Routes that every server has: `/health`, `/metrics`, `/version`.

use std::future::ready;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde::Serialize;

use crate::metrics::ServerMetrics;
use crate::refusal::Refusal;
use crate::refusal::json_response;

/// State of a server, from start to stop. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<AtomicU8>);

/// Stages of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ready {
    /// It is still loading.
    Loading = 0,
    /// It answers.
    Yes = 1,
    /// It finishes the running requests and takes no more.
    Draining = 2,
}

impl Health {
    /// Returns the stage.
    pub fn get(&self) -> Ready {
        match self.0.load(Ordering::Acquire) {
            0 => Ready::Loading,
            1 => Ready::Yes,
            _ => Ready::Draining,
        }
    }

    /// Enters a stage. Stages are never left for an earlier one.
    pub fn enter(&self, stage: Ready) {
        self.0.fetch_max(stage as u8, Ordering::AcqRel);
    }

    /// Fails with 503 unless the server answers.
    ///
    /// # Errors
    ///
    /// The reason why it does not.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.get() {
            Ready::Yes => Ok(()),
            Ready::Loading => Err(still_loading()),
            Ready::Draining => Err(Refusal::unavailable("draining", "the server is stopping")),
        }
    }
}

fn still_loading() -> Refusal {
    Refusal::unavailable("loading", "the server is still loading")
}

/// What a server answers with, which is loaded while it listens.
pub(crate) struct Loaded<T> {
    value: OnceLock<T>,
    health: Health,
}

impl<T> Loaded<T> {
    pub(crate) fn new(health: Health) -> Self {
        Self { value: OnceLock::new(), health }
    }

    /// Begins to answer with a value.
    pub(crate) fn open(&self, value: T) {
        // A second call would have no effect; there is one.
        let _ = self.value.set(value);
        self.health.enter(Ready::Yes);
    }

    /// Returns the value, or the reason why the server does not answer.
    pub(crate) fn get(&self) -> Result<&T, Refusal> {
        self.health.check()?;
        self.value.get().ok_or_else(still_loading)
    }

    /// Returns the value, also while the server stops.
    pub(crate) fn peek(&self) -> Option<&T> {
        self.value.get()
    }

    #[cfg(any(feature = "grpc", feature = "openenv"))]
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }
}

/// Answer of `/version`.
#[derive(Serialize)]
struct VersionAnswer {
    version: &'static str,
    server: &'static str,
}

/// Answer of `/health`.
#[derive(Serialize)]
struct HealthAnswer {
    status: &'static str,
}

/// Adds the common routes to those of a server called `name`.
pub fn with_common_routes(
    router: Router,
    name: &'static str,
    health: Health,
    metrics: ServerMetrics,
) -> Router {
    base_as("ok", router, name, health, metrics)
}

/// Adds the common routes; a healthy server answers with `word` as its status.
pub(super) fn base_as(
    word: &'static str,
    router: Router,
    name: &'static str,
    health: Health,
    metrics: ServerMetrics,
) -> Router {
    let common = Router::new()
        .route("/health", get(move || ready(health_answer(word, &health))))
        .route("/metrics", get(text))
        .with_state(metrics)
        .route("/version", get(move || ready(version_answer(name))));
    router.merge(common)
}

fn version_answer(server: &'static str) -> Response {
    let version = env!("CARGO_PKG_VERSION");
    json_response(StatusCode::OK, &VersionAnswer { version, server })
}

fn health_answer(status: &'static str, health: &Health) -> Response {
    match health.check() {
        Ok(()) => json_response(StatusCode::OK, &HealthAnswer { status }),
        Err(refusal) => refusal.into_response(),
    }
}

async fn text(State(metrics): State<ServerMetrics>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.text()).into_response()
}
