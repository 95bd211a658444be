//! State of a server of a team.

use std::sync::{Arc, OnceLock};

use axum::response::{IntoResponse as _, Response};
use maverl::plan::Plan;
use maverl::rollout::Rollout;
use maverl::runtime::Policy;

use crate::base::{Health, Ready};
use crate::metrics::{Family, Kind, Metrics};
use crate::openai::now;
use crate::queue::{Queue, QueueLimits};
use crate::refusal::Refusal;

/// Reading of a conversation of several messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum History {
    /// The question is the whole conversation, a line each.
    #[default]
    Transcript,
    /// The question is the last message of the user.
    Last,
}

/// Behavior of a server of a team.
#[derive(Debug, Clone, Copy)]
pub struct TeamSettings {
    /// Refuse fields that this server does not know, instead of logging them.
    pub strict: bool,
    /// Maximum size of a request in bytes.
    pub max_body: usize,
    /// Every answer has the replies of the team as `reasoning_content`.
    pub show_turns: bool,
    /// Reading of a conversation of several messages.
    pub history: History,
    /// Limits of the queue, in episodes.
    pub queue: QueueLimits,
}

/// Metrics of a server of a team.
const FAMILIES: [Family; 6] = [
    Family {
        name: "maverl_requests_total",
        kind: Kind::Counter,
        help: "Requests by their answer.",
        labels: &["model", "route", "code"],
    },
    Family {
        name: "maverl_episodes_total",
        kind: Kind::Counter,
        help: "Episodes by their outcome.",
        labels: &["outcome"],
    },
    Family {
        name: "maverl_requests_active",
        kind: Kind::Gauge,
        help: "Episodes that run and requests that wait.",
        labels: &["state"],
    },
    Family {
        name: "maverl_rejected_total",
        kind: Kind::Counter,
        help: "Requests that the queue refused.",
        labels: &["reason"],
    },
    Family {
        name: "maverl_disconnects_total",
        kind: Kind::Counter,
        help: "Requests whose client left before the end.",
        labels: &[],
    },
    Family {
        name: "maverl_request_seconds",
        kind: Kind::Histogram,
        help: "Time of an episode.",
        labels: &["model"],
    },
];

/// A team with its policies.
pub struct ServedTeam {
    /// Name in requests.
    pub name: String,
    /// Plan of the team.
    pub plan: Plan,
    /// Policies in the plan's order.
    pub policies: Vec<Policy>,
    /// The team.
    pub rollout: Rollout,
    /// Step of the checkpoint; 0 for a team that was not trained.
    pub version: u64,
}

/// State of a server of a team, which may still be loading.
pub struct TeamServer {
    team: OnceLock<ServedTeam>,
    pub(super) settings: TeamSettings,
    pub(super) queue: Queue,
    pub(super) metrics: Metrics,
    health: Health,
    pub(super) created: u64,
}

impl TeamServer {
    /// Creates a server whose team is loaded later, with [`TeamServer::open`].
    pub fn new(settings: TeamSettings, health: Health) -> Arc<Self> {
        let metrics = Metrics::new(&FAMILIES);
        let queue = Queue::new(settings.queue, metrics.clone());
        let server =
            Self { team: OnceLock::new(), settings, queue, metrics, health, created: now() };
        let server = Arc::new(server);
        let of = Arc::downgrade(&server);
        server.metrics.gauge("maverl_requests_active", move || {
            let [running, waiting] = of.upgrade().map_or([0, 0], |server| server.queue.counts());
            vec![
                (vec!["running".to_owned()], running as f64),
                (vec!["waiting".to_owned()], waiting as f64),
            ]
        });
        server
    }

    /// Begins to answer, with this team.
    pub fn open(&self, team: ServedTeam) {
        // A second call would have no effect; there is one.
        let _ = self.team.set(team);
        self.health.enter(Ready::Yes);
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn team(&self) -> Result<&ServedTeam, Refusal> {
        self.health.check()?;
        let loading = || Refusal::unavailable("loading", "the server is still loading");
        self.team.get().ok_or_else(loading)
    }

    pub(super) fn counted(
        &self,
        route: &'static str,
        answer: Result<Response, Refusal>,
    ) -> Response {
        let response = answer.unwrap_or_else(|refusal| refusal.into_response());
        let model = self.team.get().map_or("", |team| team.name.as_str());
        let code = response.status().as_u16().to_string();
        self.metrics.add("maverl_requests_total", &[model, route, &code], 1);
        response
    }
}
