//! The server: its state once the bases are loaded, its metrics and its tasks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::settings::{TinkerSettings, TrainedBase};
use super::state::TrainService;
use crate::base::{Health, Loaded};
use crate::metrics::{Family, ServerMetrics};

/// Pause between two looks for clients that are silent.
const LOOK: Duration = Duration::from_secs(15);

/// Metrics of the server.
const FAMILIES: [Family; 4] = [
    Family::counter("maverl_requests_total", "Requests by their answer.", &["route", "code"]),
    Family::counter("maverl_results_total", "Results by their kind.", &["kind"]),
    Family::gauge("maverl_models", "Models of clients.", &[]),
    Family::gauge("maverl_results_pending", "Requests whose result is not ready.", &[]),
];

/// The server, whose bases may still be loading.
pub struct TinkerServer {
    pub(super) state: Loaded<Arc<TrainService>>,
    pub(super) settings: TinkerSettings,
    metrics: ServerMetrics,
    /// Requests that run, and the workers of models.
    tasks: Mutex<JoinSet<()>>,
}

impl TinkerServer {
    /// Creates a server whose bases are loaded later, with [`TinkerServer::open`].
    pub fn new(settings: TinkerSettings, health: Health) -> Arc<Self> {
        let metrics = ServerMetrics::new(&FAMILIES);
        let (state, tasks) = (Loaded::new(health), Mutex::default());
        Arc::new(Self { state, settings, metrics, tasks })
    }

    /// Begins to answer, with these bases.
    ///
    /// # Errors
    ///
    /// If the directory of checkpoints cannot be written.
    pub fn open(&self, bases: Vec<TrainedBase>) -> Result<(), String> {
        let state = Arc::new(TrainService::new(self.settings.clone(), bases)?);
        let (models, pending) = (Arc::downgrade(&state), Arc::downgrade(&state));
        self.metrics.gauge("maverl_models", move || {
            models.upgrade().map(|state| (Vec::new(), state.models() as f64)).into_iter().collect()
        });
        self.metrics.gauge("maverl_results_pending", move || {
            let pending = pending.upgrade().map(|state| state.futures.pending() as f64);
            pending.map(|count| (Vec::new(), count)).into_iter().collect()
        });
        self.state.open(state);
        Ok(())
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &ServerMetrics {
        &self.metrics
    }

    /// Ends the sessions of clients that are silent, until it is dropped.
    pub async fn watch_sessions(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if let Some(state) = self.state.peek() {
                state.end_silent_sessions();
            }
        }
    }

    /// Runs a task until its end, or that of the server.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
