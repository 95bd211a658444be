//! `maverl serve environment`: an environment with its tasks, for clients of OpenEnv.
//!
//! A WebSocket at `/ws` is a session. Requests over HTTP describe the environment and its tasks; references of tasks stay
//! in the server.

mod frames;
mod session;
mod socket;
mod tasks;
#[cfg(test)]
mod tests;

pub use tasks::TaskSet;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::base::base_as;
use super::openai::Fields;
use super::refusal::json_response;
use super::{Family, Health, Kind, Metrics, Ready, Refusal, body};
use crate::env::DynEnvironment;

/// Maximum size of a request and of a message in bytes.
const MOST_BYTES: usize = 16 << 20;

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
    pub(crate) environment: Arc<dyn DynEnvironment>,
    /// True if it answers actions. Otherwise the first message is the answer.
    pub(crate) acts: bool,
    /// Tasks by split.
    pub(crate) tasks: TaskSet,
}

/// Metrics of a server of an environment.
const FAMILIES: [Family; 3] = [
    Family { name: "maverl_sessions", kind: Kind::Gauge, help: "Open sessions.", labels: &[] },
    Family {
        name: "maverl_messages_total",
        kind: Kind::Counter,
        help: "Messages of sessions by the code of their error, empty without one.",
        labels: &["code"],
    },
    Family {
        name: "maverl_rejected_total",
        kind: Kind::Counter,
        help: "Sessions for which there was no room.",
        labels: &["reason"],
    },
];

/// State of a server of an environment, which may still be starting.
pub struct EnvironmentServer {
    served: OnceLock<Arc<ServedEnvironment>>,
    settings: EnvironmentSettings,
    places: Arc<Semaphore>,
    /// Number of episodes so far, of which each is the next task unless a reset names one.
    episodes: AtomicU64,
    metrics: Metrics,
    health: Health,
}

impl EnvironmentServer {
    /// Creates a server whose environment is started later, with [`EnvironmentServer::open`].
    pub fn new(settings: EnvironmentSettings, health: Health) -> Arc<Self> {
        let metrics = Metrics::new(&FAMILIES);
        let places = Arc::new(Semaphore::new(settings.sessions.get()));
        let (served, episodes) = Default::default();
        let server = Arc::new(Self { served, settings, places, episodes, metrics, health });
        let of = Arc::downgrade(&server);
        server.metrics.gauge("maverl_sessions", move || {
            let open = of.upgrade().map_or(0, |server| server.sessions());
            vec![(Vec::new(), open as f64)]
        });
        server
    }

    /// Begins to answer, with this environment.
    pub fn open(&self, served: ServedEnvironment) {
        // A second call would have no effect; there is one.
        let _ = self.served.set(Arc::new(served));
        self.health.enter(Ready::Yes);
    }

    /// Returns the number of open sessions.
    pub fn sessions(&self) -> usize {
        self.settings.sessions.get() - self.places.available_permits()
    }

    /// Returns the routes, those that every server has among them.
    pub fn router(self: &Arc<Self>) -> Router {
        let router = Router::new()
            .route("/ws", get(socket::accept))
            .route("/metadata", get(metadata))
            .route("/schema", get(schema))
            .route("/list_environments", get(environments))
            .route("/{name}/splits", get(splits))
            .route("/{name}/{what}", post(listed))
            .fallback(other_path)
            .with_state(Arc::clone(self));
        let (health, metrics) = (self.health.clone(), self.metrics.clone());
        base_as("healthy", router, "environment", health, metrics)
    }

    fn served(&self) -> Result<Arc<ServedEnvironment>, Refusal> {
        self.health.check()?;
        let loading = || Refusal::unavailable("loading", "the server is still loading");
        self.served.get().cloned().ok_or_else(loading)
    }

    /// Returns the number of the next episode, from 0.
    fn next_episode(&self) -> u64 {
        self.episodes.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the environment if it has this name.
    fn named(&self, name: &str) -> Result<Arc<ServedEnvironment>, Refusal> {
        let served = self.served()?;
        if served.name == name {
            return Ok(served);
        }
        let shown: String = name.chars().take(80).collect();
        let message = format!("there is no environment {shown:?}; there is `{}`", served.name);
        Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", message))
    }
}

fn answered(answer: Result<Value, Refusal>) -> Response {
    match answer {
        Ok(answer) => json_response(StatusCode::OK, &answer),
        Err(refusal) => refusal.into_response(),
    }
}

async fn metadata(State(server): State<Arc<EnvironmentServer>>) -> Response {
    answered(server.served().map(|served| {
        json!({
            "name": served.name,
            "description": format!("The environment `{}` of maverl", served.name),
            "readme_content": null,
            "version": env!("CARGO_PKG_VERSION"),
            "author": null,
            "documentation_url": null,
        })
    }))
}

async fn schema(State(server): State<Arc<EnvironmentServer>>) -> Response {
    answered(server.served().map(|_| frames::schema()))
}

async fn environments(State(server): State<Arc<EnvironmentServer>>) -> Response {
    answered(server.served().map(|served| json!([served.name])))
}

async fn splits(
    State(server): State<Arc<EnvironmentServer>>,
    Path(name): Path<String>,
) -> Response {
    answered(server.named(&name).map(|served| served.tasks.splits()))
}

/// Answers a request for tasks.
async fn listed(
    State(server): State<Arc<EnvironmentServer>>,
    Path((name, what)): Path<(String, String)>,
    request: Request,
) -> Response {
    let answer = async {
        let served = server.named(&name)?;
        let bytes = body::read(request.into_body(), MOST_BYTES).await?;
        let mut fields = Fields::parse(&bytes)?;
        let split = fields.text("split")?.unwrap_or_default();
        let mut place = |name: &'static str| fields.integer(name, 0, i64::MAX);
        let (index, start, stop) = (place("index")?, place("start")?, place("stop")?);
        let tasks = &served.tasks;
        let split = tasks.split(&split).map_err(|what| Refusal::invalid("split", what))?;
        let all = || tasks::described(split);
        match what.as_str() {
            "tasks" => Ok(json!({"tasks": all(), "env_name": served.name})),
            "num_tasks" => Ok(json!({"num_tasks": split.len()})),
            "task" => match index.and_then(|index| split.get(usize::try_from(index).ok()?)) {
                Some(task) => Ok(json!({"task": tasks::description(task)})),
                None => {
                    let message = format!("`index` must be from 0 to {}", split.len() - 1);
                    Err(Refusal::invalid("index", message))
                }
            },
            "task_range" => {
                let place = |place: Option<i64>, default: usize| {
                    place.map_or(default, |place| split.len().min(place as usize))
                };
                let (start, stop) = (place(start, 0), place(stop, split.len()));
                Ok(json!({"tasks": tasks::described(&split[start.min(stop)..stop])}))
            }
            _ => Err(not_found(&format!("/{name}/{what}"))),
        }
    };
    answered(answer.await)
}

fn not_found(path: &str) -> Refusal {
    let path: String = path.chars().take(80).collect();
    let message = format!(
        "there is nothing at `{path}`; sessions are WebSockets at `/ws`, as OpenEnv's clients open them"
    );
    Refusal::new(StatusCode::NOT_FOUND, "not_found", message)
}

async fn other_path(uri: Uri) -> Response {
    not_found(uri.path()).into_response()
}
