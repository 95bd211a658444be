//! `maverl serve reward`: judges and reward models, in the protocols of maverl, MAPoRL, OpenRLHF and slime.

mod grader;
mod request;

pub use grader::Grader;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::{Value, json};

use crate::base::{Health, Ready};
use crate::body;
use crate::guard::Client;
use crate::metrics::{Family, Kind, Metrics};
use crate::queue::{Queue, QueueLimits};
use crate::refusal::Refusal;
use crate::refusal::json_response;
use grader::Scores;
use maverl::task::Score;
use request::{Route, Wanted};

/// Behavior of a server of rewards.
#[derive(Debug, Clone, Copy)]
pub struct RewardSettings {
    /// Maximum size of a request in bytes.
    pub max_body: usize,
    /// Maximum time of a request.
    pub timeout: Duration,
    /// Limits of the queue, in requests.
    pub queue: QueueLimits,
}

/// Metrics of a server of rewards.
const FAMILIES: [Family; 5] = [
    Family {
        name: "maverl_requests_total",
        kind: Kind::Counter,
        help: "Requests by their answer.",
        labels: &["route", "code"],
    },
    Family {
        name: "maverl_items_total",
        kind: Kind::Counter,
        help: "Scored replies by their outcome.",
        labels: &["outcome"],
    },
    Family {
        name: "maverl_requests_active",
        kind: Kind::Gauge,
        help: "Requests that run and wait.",
        labels: &["state"],
    },
    Family {
        name: "maverl_rejected_total",
        kind: Kind::Counter,
        help: "Requests that the queue refused.",
        labels: &["reason"],
    },
    Family {
        name: "maverl_request_seconds",
        kind: Kind::Histogram,
        help: "Time of a request.",
        labels: &["route"],
    },
];

/// State of a server of rewards, whose grader may still be loading.
pub struct RewardServer {
    grader: OnceLock<Grader>,
    settings: RewardSettings,
    queue: Queue,
    metrics: Metrics,
    health: Health,
}

impl RewardServer {
    /// Creates a server whose grader is loaded later, with [`RewardServer::open`].
    pub fn new(settings: RewardSettings, health: Health) -> Arc<Self> {
        let metrics = Metrics::new(&FAMILIES);
        let queue = Queue::new(settings.queue, metrics.clone());
        let grader = OnceLock::new();
        let server = Arc::new(Self { grader, settings, queue, metrics, health });
        let of = Arc::downgrade(&server);
        server.metrics.gauge("maverl_requests_active", move || {
            let [running, waiting] = of.upgrade().map_or([0, 0], |server| server.queue.counts());
            let state = |name: &str, n: usize| (vec![name.to_owned()], n as f64);
            vec![state("running", running), state("waiting", waiting)]
        });
        server
    }

    /// Begins to answer, with this grader.
    pub fn open(&self, grader: Grader) {
        // A second call would have no effect; there is one.
        let _ = self.grader.set(grader);
        self.health.enter(Ready::Yes);
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the routes.
    pub fn router(self: &Arc<Self>) -> Router {
        let mut router = Router::new();
        for route in Route::ALL {
            let handle = move |State(server): State<Arc<Self>>, request: Request| async move {
                let began = tokio::time::Instant::now();
                let answer = server.answer(route, request).await;
                server.metrics.observe("maverl_request_seconds", &[route.path()], began.elapsed());
                server.counted(route.path(), answer)
            };
            router = router.route(route.path(), post(handle).fallback(other_method));
        }
        router.fallback(other_path).with_state(Arc::clone(self))
    }

    fn counted(&self, route: &'static str, answer: Result<Response, Refusal>) -> Response {
        let response = answer.unwrap_or_else(|refusal| refusal.into_response());
        let code = response.status().as_u16().to_string();
        self.metrics.add("maverl_requests_total", &[route, &code], 1);
        response
    }

    async fn answer(&self, route: Route, request: Request) -> Result<Response, Refusal> {
        self.health.check()?;
        let loading = || Refusal::unavailable("loading", "the server is still loading");
        let grader = self.grader.get().ok_or_else(loading)?;
        let client = Client::of(&request);
        let bytes = body::read(request.into_body(), self.settings.max_body).await?;
        let _admitted = self.queue.admit(client).await?;
        let Wanted { ids, items } = route.read(&bytes)?;
        let scores = tokio::time::timeout(self.settings.timeout, grader.score(items)).await;
        let scores = scores.map_err(|_elapsed| {
            let message = format!("the items were not scored within {:?}", self.settings.timeout);
            Refusal::unavailable("timeout", message)
        })?;
        for score in &scores {
            let outcome = if score.is_ok() { "scored" } else { "error" };
            self.metrics.add("maverl_items_total", &[outcome], 1);
        }
        Ok(json_response(StatusCode::OK, &written(route, &ids, scores)?))
    }
}

/// Returns the body of an answer. Protocols that have no place for a failed item answer 422.
fn written(route: Route, ids: &[String], scores: Scores) -> Result<Value, Refusal> {
    if route == Route::Score {
        let items = ids.iter().zip(scores).map(|(id, score)| match score {
            Ok(Score { reward, solved, metrics }) => {
                json!({"id": id, "reward": reward, "solved": solved, "metrics": metrics})
            }
            Err(message) => {
                json!({"id": id, "error": {"code": "not_scored", "message": message}})
            }
        });
        return Ok(json!({"items": items.collect::<Vec<_>>()}));
    }
    let reward = |(i, score): (usize, Result<Score, String>)| {
        score.map(|score| score.reward).map_err(|reason| {
            let message = format!("item {i} was not scored: {reason}");
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "not_scored", message)
        })
    };
    let rewards: Vec<f64> = scores.into_iter().enumerate().map(reward).collect::<Result<_, _>>()?;
    Ok(match route {
        Route::Predict => json!({"result": rewards}),
        Route::GetReward => json!({"rewards": rewards}),
        Route::Rm | Route::Score => json!(rewards.first()),
    })
}

async fn other_path(State(server): State<Arc<RewardServer>>, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(80).collect();
    let message = format!("there is nothing at `{path}`; replies are scored at `/v1/score`");
    let refusal = Refusal::new(StatusCode::NOT_FOUND, "not_found", message);
    server.counted("other", Err(refusal))
}

async fn other_method(State(server): State<Arc<RewardServer>>, request: Request) -> Response {
    let message = format!("`{}` takes POST, not {}", request.uri().path(), request.method());
    let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
    server.counted("other", Err(Refusal { allow: Some("POST"), ..refusal }))
}

#[cfg(test)]
mod tests;
