//! State of a server of models.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::StatusCode;

use super::catalog::Catalog;
#[cfg(feature = "grammar")]
use super::grammar::Grammars;
use super::reading::Reading;
use crate::base::{Health, Ready};
use crate::metrics::{Family, Kind, Metrics};
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
    pub(super) settings: ModelSettings,
    pub(super) queue: Queue,
    pub(super) reading: Reading,
    pub(super) metrics: Metrics,
    pub(super) health: Health,
    #[cfg(feature = "grammar")]
    pub(super) grammars: Grammars,
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
            grammars: Grammars::default(),
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
        self.health.enter(Ready::Yes);
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn catalog(&self) -> Result<&Catalog, Refusal> {
        self.health.check()?;
        let loading = || Refusal::unavailable("loading", "the server is still loading");
        self.catalog.get().ok_or_else(loading)
    }

    /// Counts an answer; `model` is the name of a served model, empty before it is known.
    pub(super) fn count(&self, model: &str, route: &'static str, status: StatusCode) {
        let code = status.as_u16().to_string();
        self.metrics.add("maverl_requests_total", &[model, route, &code], 1);
    }
}

fn labeled<const N: usize>(names: [&str; N], counts: [usize; N]) -> Vec<(Vec<String>, f64)> {
    let pairs = names.into_iter().zip(counts);
    pairs.map(|(name, count)| (vec![name.to_owned()], count as f64)).collect()
}
