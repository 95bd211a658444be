//! State of a server of an environment.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use maverl::env::DynEnvironment;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::tasks::TaskSet;
use crate::base::{Health, Loaded};
use crate::metrics::{Family, ServerMetrics};
use crate::refusal::Refusal;

/// Maximum size of a request and of a message in bytes.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// Limits of a server of an environment.
#[derive(Debug, Clone, Copy)]
pub struct EnvironmentSettings {
    /// Maximum number of concurrent sessions.
    pub sessions: NonZeroUsize,
    /// Time without a message after which a session is closed.
    pub timeout: Duration,
}

/// An environment and the tasks that are played in it.
pub struct ServedEnvironment {
    /// Name in requests.
    pub name: String,
    /// The environment.
    pub environment: Arc<dyn DynEnvironment>,
    /// True if it answers actions. Otherwise the first message is the answer.
    pub acts: bool,
    /// Names of the actions that it understands on every task.
    pub actions: Vec<String>,
    /// Tasks by split.
    pub tasks: TaskSet,
}

impl ServedEnvironment {
    /// Returns the names of the actions that it understands; `None` if it acts and they are unknown.
    pub(super) fn listed_actions(&self) -> Option<&[String]> {
        (!self.actions.is_empty() || !self.acts).then_some(&self.actions)
    }
}

/// Metrics of a server of an environment.
const FAMILIES: [Family; 3] = [
    Family::gauge("maverl_sessions", "Open sessions.", &[]),
    Family::counter(
        "maverl_messages_total",
        "Messages of sessions by the code of their error, empty without one.",
        &["code"],
    ),
    Family::counter("maverl_rejected_total", "Sessions for which there was no room.", &["reason"]),
];

/// State of a server of an environment, which may still be starting.
pub struct EnvironmentServer {
    served: Loaded<Arc<ServedEnvironment>>,
    pub(super) settings: EnvironmentSettings,
    places: Arc<Semaphore>,
    /// Number of episodes so far, of which each is the next task unless a request names one.
    episodes: AtomicU64,
    pub(super) metrics: ServerMetrics,
}

impl EnvironmentServer {
    /// Creates a server whose environment is started later, with [`EnvironmentServer::open`].
    pub fn new(settings: EnvironmentSettings, health: Health) -> Arc<Self> {
        let metrics = ServerMetrics::new(&FAMILIES);
        let places = Arc::new(Semaphore::new(settings.sessions.get()));
        let (served, episodes) = (Loaded::new(health), AtomicU64::default());
        let server = Arc::new(Self { served, settings, places, episodes, metrics });
        let of = Arc::downgrade(&server);
        server.metrics.gauge("maverl_sessions", move || {
            let open = of.upgrade().map_or(0, |server| server.sessions());
            vec![(Vec::new(), open as f64)]
        });
        server
    }

    /// Begins to answer, with this environment.
    pub fn open(&self, served: ServedEnvironment) {
        self.served.open(Arc::new(served));
    }

    /// Returns the number of open sessions.
    pub fn sessions(&self) -> usize {
        self.settings.sessions.get() - self.places.available_permits()
    }

    pub(super) fn served_environment(&self) -> Result<Arc<ServedEnvironment>, Refusal> {
        self.served.get().cloned()
    }

    pub(super) fn health(&self) -> Health {
        self.served.health().clone()
    }

    /// Returns the number of the next episode, from 0.
    pub(super) fn next_episode(&self) -> u64 {
        self.episodes.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes the place of a session; `None` if all are taken.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        if place.is_none() {
            self.metrics.add("maverl_rejected_total", &["capacity"], 1);
        }
        place
    }

    /// Counts a message by the code of its error, empty without one.
    pub(super) fn count(&self, code: &str) {
        self.metrics.add("maverl_messages_total", &[code], 1);
    }
}
