//! Routes that every server has: `/health`, `/metrics`, `/version`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::json;

use crate::metrics::Metrics;
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
            Ready::Loading => Err(Refusal::unavailable("loading", "the server is still loading")),
            Ready::Draining => Err(Refusal::unavailable("draining", "the server is stopping")),
        }
    }
}

/// Adds the common routes to those of a server called `name`.
pub fn base(router: Router, name: &'static str, health: Health, metrics: Metrics) -> Router {
    base_as("ok", router, name, health, metrics)
}

/// Adds the common routes; a healthy server answers with `word` as its status.
pub(super) fn base_as(
    word: &'static str,
    router: Router,
    name: &'static str,
    health: Health,
    metrics: Metrics,
) -> Router {
    let version = move || async move {
        let version = env!("CARGO_PKG_VERSION");
        json_response(StatusCode::OK, &json!({"version": version, "server": name}))
    };
    let state = move || async move {
        match health.check() {
            Ok(()) => json_response(StatusCode::OK, &json!({"status": word})),
            Err(refusal) => refusal.into_response(),
        }
    };
    let common = Router::new()
        .route("/health", get(state))
        .route("/metrics", get(text))
        .with_state(metrics)
        .route("/version", get(version));
    router.merge(common)
}

async fn text(State(metrics): State<Metrics>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.text()).into_response()
}
