//! `maverl serve reward`: judges and reward models, in the protocols of maverl, MAPoRL, OpenRLHF and slime.

mod grader;
mod request;

pub use grader::Grader;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::{Health, Loaded};
use crate::body;
use crate::guard::ClientNumber;
use crate::metrics::{Family, ServerMetrics};
use crate::queue::{Queue, QueueLimits};
use crate::refusal::Refusal;
use crate::refusal::json_response;
use grader::ItemScores;
use maverl::task::Score;
use request::{RequestedItems, RewardRoute};

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
    Family::counter("maverl_requests_total", "Requests by their answer.", &["route", "code"]),
    Family::counter("maverl_items_total", "Scored replies by their outcome.", &["outcome"]),
    Family::gauge("maverl_requests_active", "Requests that run and wait.", &["state"]),
    Family::counter("maverl_rejected_total", "Requests that the queue refused.", &["reason"]),
    Family::histogram("maverl_request_seconds", "Time of a request.", &["route"]),
];

/// State of a server of rewards, whose grader may still be loading.
pub struct RewardServer {
    grader: Loaded<Grader>,
    settings: RewardSettings,
    queue: Queue,
    metrics: ServerMetrics,
}

impl RewardServer {
    /// Creates a server whose grader is loaded later, with [`RewardServer::open`].
    pub fn new(settings: RewardSettings, health: Health) -> Arc<Self> {
        let metrics = ServerMetrics::new(&FAMILIES);
        let queue = Queue::new(settings.queue, metrics.clone());
        let grader = Loaded::new(health);
        Arc::new(Self { grader, settings, queue, metrics })
    }

    /// Begins to answer, with this grader.
    pub fn open(&self, grader: Grader) {
        self.grader.open(grader);
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &ServerMetrics {
        &self.metrics
    }

    /// Returns the routes.
    pub fn router(self: &Arc<Self>) -> Router {
        let mut router = Router::new();
        for route in RewardRoute::ALL {
            let method = post(move |state, request| answer_route(route, state, request));
            router = router.route(route.path(), method.fallback(other_method));
        }
        router.fallback(other_path).with_state(Arc::clone(self))
    }

    fn count_answer(&self, route: &'static str, answer: Result<Response, Refusal>) -> Response {
        let response = answer.unwrap_or_else(|refusal| refusal.into_response());
        let code = response.status().as_u16().to_string();
        self.metrics.add("maverl_requests_total", &[route, &code], 1);
        response
    }

    async fn answer(&self, route: RewardRoute, request: Request) -> Result<Response, Refusal> {
        let grader = self.grader.get()?;
        let client = ClientNumber::of(&request);
        let bytes = body::read(request.into_body(), self.settings.max_body).await?;
        let _admitted = self.queue.admit(client).await?;
        let RequestedItems { ids, items } = route.read(&bytes)?;
        let scores = tokio::time::timeout(self.settings.timeout, grader.score(items)).await;
        let scores = scores.map_err(|_elapsed| {
            let message = format!("the items were not scored within {:?}", self.settings.timeout);
            Refusal::unavailable("timeout", message)
        })?;
        for score in &scores {
            let outcome = if score.is_ok() { "scored" } else { "error" };
            self.metrics.add("maverl_items_total", &[outcome], 1);
        }
        Ok(json_response(StatusCode::OK, &written_scores(route, ids, scores)?))
    }
}

async fn answer_route(
    route: RewardRoute,
    State(server): State<Arc<RewardServer>>,
    request: Request,
) -> Response {
    let began = tokio::time::Instant::now();
    let answer = server.answer(route, request).await;
    server.metrics.observe("maverl_request_seconds", &[route.path()], began.elapsed());
    server.count_answer(route.path(), answer)
}

/// Body of an answer.
#[derive(Serialize)]
#[serde(untagged)]
enum ScoreAnswer {
    /// Of maverl's protocol.
    Items { items: Vec<ItemAnswer> },
    /// Of MAPoRL's protocol.
    Result { result: Vec<f64> },
    /// Of OpenRLHF's protocol.
    Rewards { rewards: Vec<f64> },
    /// Of slime's protocol.
    Reward(Option<f64>),
}

/// Score of an item, or the reason for none.
#[derive(Serialize)]
#[serde(untagged)]
enum ItemAnswer {
    Scored { id: String, reward: f64, solved: bool, metrics: Map<String, Value> },
    Failed { id: String, error: ItemError },
}

#[derive(Serialize)]
struct ItemError {
    code: &'static str,
    message: String,
}

impl ItemAnswer {
    fn new(id: String, score: Result<Score, String>) -> Self {
        match score {
            Ok(Score { reward, solved, metrics }) => Self::Scored { id, reward, solved, metrics },
            Err(message) => Self::Failed { id, error: ItemError { code: "not_scored", message } },
        }
    }
}

/// Returns the body of an answer. Protocols that have no place for a failed item answer 422.
fn written_scores(
    route: RewardRoute,
    ids: Vec<String>,
    scores: ItemScores,
) -> Result<ScoreAnswer, Refusal> {
    if route == RewardRoute::Score {
        let items = ids.into_iter().zip(scores).map(|(id, score)| ItemAnswer::new(id, score));
        return Ok(ScoreAnswer::Items { items: items.collect() });
    }
    let mut rewards = Vec::with_capacity(scores.len());
    for (i, score) in scores.into_iter().enumerate() {
        let score = score.map_err(|reason| {
            let message = format!("item {i} was not scored: {reason}");
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "not_scored", message)
        });
        rewards.push(score?.reward);
    }
    Ok(match route {
        RewardRoute::Predict => ScoreAnswer::Result { result: rewards },
        RewardRoute::GetReward => ScoreAnswer::Rewards { rewards },
        RewardRoute::Rm | RewardRoute::Score => ScoreAnswer::Reward(rewards.first().copied()),
    })
}

async fn other_path(State(server): State<Arc<RewardServer>>, uri: Uri) -> Response {
    server.count_answer("other", Err(Refusal::no_path(&uri, "replies are scored at `/v1/score`")))
}

async fn other_method(State(server): State<Arc<RewardServer>>, request: Request) -> Response {
    let path = request.uri().path();
    server.count_answer("other", Err(Refusal::other_method(path, request.method(), "POST")))
}

#[cfg(test)]
mod tests;
