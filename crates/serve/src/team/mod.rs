//! `maverl serve team`: a team as a model. A request is one episode without a judge.

mod answer;
mod request;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};

use crate::base::Health;
use crate::body;
use crate::guard::Client;
use crate::metrics::{Family, Kind, Metrics};
use crate::openai::models::{Lineage, ModelCard, ModelList};
use crate::openai::{Fields, now};
use crate::queue::{Queue, QueueLimits};
use crate::refusal::Refusal;
use crate::refusal::json_response;
use crate::stream;
use maverl::plan::Plan;
use maverl::rollout::Rollout;
use maverl::runtime::Policy;
use request::Question;

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
    settings: TeamSettings,
    queue: Queue,
    metrics: Metrics,
    health: Health,
    created: u64,
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
        self.health.enter(crate::base::Ready::Yes);
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the routes.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/v1/models", get(models))
            .route("/v1/chat/completions", post(chat))
            .fallback(other_path)
            .with_state(Arc::clone(self))
    }

    fn team(&self) -> Result<&ServedTeam, Refusal> {
        self.health.check()?;
        let loading = || Refusal::unavailable("loading", "the server is still loading");
        self.team.get().ok_or_else(loading)
    }

    fn counted(&self, route: &'static str, answer: Result<Response, Refusal>) -> Response {
        let response = answer.unwrap_or_else(|refusal| refusal.into_response());
        let model = self.team.get().map_or("", |team| team.name.as_str());
        let code = response.status().as_u16().to_string();
        self.metrics.add("maverl_requests_total", &[model, route, &code], 1);
        response
    }

    async fn chat(self: &Arc<Self>, request: Request) -> Result<Response, Refusal> {
        let team = self.team()?;
        let client = Client::of(&request);
        let bytes = body::read(request.into_body(), self.settings.max_body).await?;
        let admitted = self.queue.admit(client).await?;
        let question = Question::read(Fields::parse(&bytes)?, team, self.settings)?;
        if question.streaming.stream {
            let server = Arc::clone(self);
            return Ok(stream::events(&self.metrics, move |events| async move {
                answer::stream(&server, question, &admitted, &events).await;
            }));
        }
        stream::attended(&self.metrics, answer::whole(self, &question, &admitted)).await
    }
}

async fn chat(State(server): State<Arc<TeamServer>>, request: Request) -> Response {
    let answer = server.chat(request).await;
    server.counted("chat", answer)
}

async fn models(State(server): State<Arc<TeamServer>>) -> Response {
    let answer = server.team().map(|team| {
        let root = team.plan.orchestra.name.clone();
        let lineage = Lineage { root, parent: None, max_model_len: None };
        let card = ModelCard::new(team.name.clone(), server.created, Some(lineage));
        json_response(StatusCode::OK, &ModelList::from_iter([card]))
    });
    server.counted("models", answer)
}

async fn other_path(State(server): State<Arc<TeamServer>>, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(80).collect();
    let message =
        format!("there is nothing at `{path}`; chat completions are at `/v1/chat/completions`");
    let refusal = Refusal::new(StatusCode::NOT_FOUND, "not_found", message);
    server.counted("other", Err(refusal))
}
