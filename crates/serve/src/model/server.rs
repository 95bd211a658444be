//! State of a server of models.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;

use super::catalog::Catalog;
#[cfg(feature = "grammar")]
use super::grammar::Grammars;
use super::reading::ReplyReading;
use crate::base::{Health, Loaded};
use crate::metrics::{Family, ServerMetrics, label_counts};
use crate::openai::Structured;
use crate::queue::{Queue, QueueLimits};
use crate::refusal::Refusal;

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
    Family::counter(
        "maverl_requests_total",
        "Requests by their answer.",
        &["model", "route", "code"],
    ),
    Family::counter(
        "maverl_tokens_total",
        "Tokens of prompts and completions.",
        &["model", "kind"],
    ),
    Family::gauge("maverl_requests_active", "Requests that run and wait.", &["state"]),
    Family::counter("maverl_rejected_total", "Requests that the queue refused.", &["reason"]),
    Family::counter("maverl_disconnects_total", "Requests whose client left before the end.", &[]),
    Family::gauge(
        "maverl_kv_blocks",
        "Blocks of sixteen tokens in the key-value caches.",
        &["state"],
    ),
    Family::histogram("maverl_request_seconds", "Time of a request.", &["model"]),
    Family::histogram("maverl_first_token_seconds", "Time to the first token.", &["model"]),
    Family::histogram(
        "maverl_token_seconds",
        "Time between two tokens, on average over a completion.",
        &["model"],
    ),
];

/// State of a server of models. Its models may still be loading.
pub struct ModelServer {
    catalog: Loaded<Catalog>,
    pub(super) settings: ModelSettings,
    pub(super) queue: Queue,
    pub(super) reading: ReplyReading,
    pub(super) metrics: ServerMetrics,
    #[cfg(feature = "grammar")]
    pub(super) grammars: Grammars,
}

impl ModelServer {
    /// Creates a server whose models are loaded later, with [`ModelServer::open`].
    pub fn new(settings: ModelSettings, health: Health) -> Arc<Self> {
        let metrics = ServerMetrics::new(&FAMILIES);
        let queue = Queue::new(settings.queue, metrics.clone());
        let server = Self {
            catalog: Loaded::new(health),
            settings,
            queue,
            reading: ReplyReading::default(),
            metrics,
            #[cfg(feature = "grammar")]
            grammars: Grammars::default(),
        };
        let server = Arc::new(server);
        let of = Arc::downgrade(&server);
        server.metrics.gauge("maverl_kv_blocks", move || {
            let server = of.upgrade();
            let counts = server.as_ref().and_then(|server| Some(server.catalog.peek()?.blocks()));
            label_counts(["used", "cached", "free"], counts.unwrap_or_default())
        });
        server
    }

    /// Begins to answer, with these models.
    pub fn open(&self, catalog: Catalog) {
        self.catalog.open(catalog);
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &ServerMetrics {
        &self.metrics
    }

    pub(super) fn catalog(&self) -> Result<&Catalog, Refusal> {
        self.catalog.get()
    }

    /// Counts an answer; `model` is the name of a served model, empty before it is known.
    pub(super) fn count(&self, model: &str, route: &'static str, status: StatusCode) {
        let code = status.as_u16().to_string();
        self.metrics.add("maverl_requests_total", &[model, route, &code], 1);
    }
}
