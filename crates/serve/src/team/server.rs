//! State of a server of a team.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use maverl::plan::Plan;
use maverl::rollout::Rollout;
use maverl::runtime::Policy;

use crate::base::{Health, Loaded};
use crate::metrics::{Family, ServerMetrics};
use crate::openai::now;
use crate::queue::{Queue, QueueLimits};
use crate::refusal::Refusal;

/// Reading of a conversation of several messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConversationReading {
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
    pub history: ConversationReading,
    /// Limits of the queue, in episodes.
    pub queue: QueueLimits,
}

/// Metrics of a server of a team.
const FAMILIES: [Family; 6] = [
    Family::counter(
        "maverl_requests_total",
        "Requests by their answer.",
        &["model", "route", "code"],
    ),
    Family::counter("maverl_episodes_total", "Episodes by their outcome.", &["outcome"]),
    Family::gauge(
        "maverl_requests_active",
        "Episodes that run and requests that wait.",
        &["state"],
    ),
    Family::counter("maverl_rejected_total", "Requests that the queue refused.", &["reason"]),
    Family::counter("maverl_disconnects_total", "Requests whose client left before the end.", &[]),
    Family::histogram("maverl_request_seconds", "Time of an episode.", &["model"]),
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
    team: Loaded<ServedTeam>,
    pub(super) settings: TeamSettings,
    pub(super) queue: Queue,
    pub(super) metrics: ServerMetrics,
    pub(super) created: u64,
}

impl TeamServer {
    /// Creates a server whose team is loaded later, with [`TeamServer::open`].
    pub fn new(settings: TeamSettings, health: Health) -> Arc<Self> {
        let metrics = ServerMetrics::new(&FAMILIES);
        let queue = Queue::new(settings.queue, metrics.clone());
        let team = Loaded::new(health);
        Arc::new(Self { team, settings, queue, metrics, created: now() })
    }

    /// Begins to answer, with this team.
    pub fn open(&self, team: ServedTeam) {
        self.team.open(team);
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &ServerMetrics {
        &self.metrics
    }

    pub(super) fn team(&self) -> Result<&ServedTeam, Refusal> {
        self.team.get()
    }

    pub(super) fn count_answer(
        &self,
        route: &'static str,
        answer: Result<Response, Refusal>,
    ) -> Response {
        let response = answer.unwrap_or_else(|refusal| refusal.into_response());
        let model = self.team.peek().map_or("", |team| team.name.as_str());
        let code = response.status().as_u16().to_string();
        self.metrics.add("maverl_requests_total", &[model, route, &code], 1);
        response
    }
}
