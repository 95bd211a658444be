//! `maverl serve model`: models, their adapters and the policies of runs, in OpenAI's protocol.

mod adapters;
mod answer;
mod catalog;
mod chat;
mod choice;
mod completions;
mod generate;
#[cfg(feature = "grammar")]
mod grammar;
mod list;
mod reading;
mod responses;
mod tokenize;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::base::Health;
use crate::body;
use crate::guard::Client;
use crate::metrics::{Family, Kind, Metrics};
use crate::openai::Structured;
use crate::refusal::Refusal;

use crate::queue::{Queue, QueueLimits};
pub use catalog::{Catalog, Entry};
use reading::{Asked, Reading};

/// Behavior of a server of models.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// Refuse fields that this server does not know, instead of logging them.
    pub strict: bool,
    /// Treatment of requests for a form of the reply.
    pub structured: Structured,
    /// Maximum size of a request in bytes.
    pub max_body: usize,
    /// Maximum time of a request.
    pub timeout: Duration,
    /// Directory beneath which clients may load adapters.
    pub allow_adapters: Option<PathBuf>,
    /// Limits of the queue.
    pub queue: QueueLimits,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            strict: false,
            structured: Structured::default(),
            max_body: 16 << 20,
            timeout: Duration::from_secs(600),
            allow_adapters: None,
            queue: QueueLimits::default(),
        }
    }
}

/// Metrics of a server of models.
pub const FAMILIES: [Family; 9] = [
    family(
        "maverl_requests_total",
        Kind::Counter,
        "Requests by their answer.",
        &["model", "route", "code"],
    ),
    family(
        "maverl_tokens_total",
        Kind::Counter,
        "Tokens of prompts and completions.",
        &["model", "kind"],
    ),
    family("maverl_requests_active", Kind::Gauge, "Requests that run and wait.", &["state"]),
    family("maverl_rejected_total", Kind::Counter, "Requests that the queue refused.", &["reason"]),
    family(
        "maverl_disconnects_total",
        Kind::Counter,
        "Requests whose client left before the end.",
        &[],
    ),
    family(
        "maverl_kv_blocks",
        Kind::Gauge,
        "Blocks of sixteen tokens in the key-value caches.",
        &["state"],
    ),
    family("maverl_request_seconds", Kind::Histogram, "Time of a request.", &["model"]),
    family("maverl_first_token_seconds", Kind::Histogram, "Time to the first token.", &["model"]),
    family(
        "maverl_token_seconds",
        Kind::Histogram,
        "Time between two tokens, on average over a completion.",
        &["model"],
    ),
];

const fn family(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    labels: &'static [&'static str],
) -> Family {
    Family { name, kind, help, labels }
}

/// State of a server of models. Its models may still be loading.
pub struct ModelServer {
    catalog: OnceLock<Catalog>,
    settings: ModelSettings,
    queue: Queue,
    reading: Reading,
    metrics: Metrics,
    health: Health,
    #[cfg(feature = "grammar")]
    grammars: grammar::Grammars,
}

impl ModelServer {
    /// Creates a server whose models are loaded later, with [`ModelServer::open`].
    pub fn new(settings: ModelSettings, health: Health) -> Arc<Self> {
        let metrics = Metrics::new(&FAMILIES);
        let queue = Queue::new(settings.queue, metrics.clone());
        let server = Self {
            catalog: OnceLock::new(),
            settings,
            queue,
            reading: Reading::default(),
            metrics,
            health,
            #[cfg(feature = "grammar")]
            grammars: grammar::Grammars::default(),
        };
        let server = Arc::new(server);
        let of = Arc::downgrade(&server);
        server.metrics.gauge("maverl_requests_active", move || {
            let counts = of.upgrade().map_or([0, 0], |server| server.queue.counts());
            labeled(["running", "waiting"], counts)
        });
        let of = Arc::downgrade(&server);
        server.metrics.gauge("maverl_kv_blocks", move || {
            let server = of.upgrade();
            let counts = server.as_ref().and_then(|server| Some(server.catalog.get()?.blocks()));
            labeled(["used", "cached", "free"], counts.unwrap_or_default())
        });
        server
    }

    /// Begins to answer, with these models.
    pub fn open(&self, catalog: Catalog) {
        // A second call would have no effect; there is one.
        let _ = self.catalog.set(catalog);
        self.health.enter(crate::base::Ready::Yes);
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the routes.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/v1/models", get(list::models))
            .route("/v1/models/{*name}", get(list::model))
            .route("/v1/chat/completions", post(chat::route))
            .route("/v1/completions", post(completions::route))
            .route("/v1/responses", post(responses::route))
            .route("/tokenize", post(tokenize::tokenize))
            .route("/detokenize", post(tokenize::detokenize))
            .route("/tokenizer_info", get(tokenize::info))
            .route("/inference/v1/generate", post(generate::route))
            .route("/v1/load_lora_adapter", post(adapters::load))
            .route("/v1/unload_lora_adapter", post(adapters::unload))
            .method_not_allowed_fallback(other_method)
            .fallback(other_path)
            .with_state(Arc::clone(self))
    }

    fn catalog(&self) -> Result<&Catalog, Refusal> {
        self.health.check()?;
        let loading = || Refusal::unavailable("loading", "the server is still loading");
        self.catalog.get().ok_or_else(loading)
    }

    /// Admits a request, reads it and finds its model.
    async fn asked(&self, request: Request) -> Result<Asked, Refusal> {
        self.health.check()?;
        let client = Client::of(&request);
        let body = body::read(request.into_body(), self.settings.max_body).await?;
        let admitted = self.queue.admit(client).await?;
        Asked::parse(self, body, admitted).await
    }

    /// Answers a request to a model with `answer`, and counts the answer.
    async fn answer<F: Future<Output = Result<Response, Refusal>>>(
        &self,
        route: &'static str,
        request: Request,
        answer: impl FnOnce(Asked) -> F,
    ) -> Response {
        let outcome = match self.asked(request).await {
            Ok(asked) => Outcome { model: asked.entry.name.clone(), answer: answer(asked).await },
            Err(refusal) => Outcome::refused(refusal),
        };
        outcome.counted(self, route)
    }

    /// Counts an answer; `model` is the name of a served model, empty before it is known.
    fn count(&self, model: &str, route: &'static str, status: StatusCode) {
        let code = status.as_u16().to_string();
        self.metrics.add("maverl_requests_total", &[model, route, &code], 1);
    }
}

fn labeled<const N: usize>(names: [&str; N], counts: [usize; N]) -> Vec<(Vec<String>, f64)> {
    let pairs = names.into_iter().zip(counts);
    pairs.map(|(name, count)| (vec![name.to_owned()], count as f64)).collect()
}

/// Result of a route, with the name of its model as far as it was known.
struct Outcome {
    model: String,
    answer: Result<Response, Refusal>,
}

impl Outcome {
    fn refused(refusal: Refusal) -> Self {
        Self { model: String::new(), answer: Err(refusal) }
    }

    /// Counts the answer and returns it.
    fn counted(self, server: &ModelServer, route: &'static str) -> Response {
        let response = self.answer.unwrap_or_else(IntoResponse::into_response);
        server.count(&self.model, route, response.status());
        response
    }
}

async fn other_path(State(server): State<Arc<ModelServer>>, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(80).collect();
    let message =
        format!("there is nothing at `{path}`; chat completions are at `/v1/chat/completions`");
    let refusal = Refusal::new(StatusCode::NOT_FOUND, "not_found", message);
    Outcome::refused(refusal).counted(&server, "other")
}

async fn other_method(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    let path = request.uri().path();
    let read = path.starts_with("/v1/models") || path == "/tokenizer_info";
    let allow = if read { "GET" } else { "POST" };
    let message = format!("`{path}` takes {allow}, not {}", request.method());
    let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
    Outcome::refused(Refusal { allow: Some(allow), ..refusal }).counted(&server, "other")
}

#[cfg(test)]
mod tests;
