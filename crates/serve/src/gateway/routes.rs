//! Routes of the gateway. Every request has the key of its episode.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, head, post};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::access::{MOST_BYTES, belongs, key, open, request_with_body, request_without_body};
use super::call::{SeatCall, digest};
use super::course::EpisodeCommand;
use super::dialect::Dialect;
use super::episodes::{FoundEpisode, episode_closed};
use super::mcp;
use super::report::{EpisodeFinish, ReportedFailure, ReportedPart};
use super::shared::GatewayState;
use super::workers::{Claimed, Worker};
use crate::anthropic::{MessageModel, MessageModels, asks_for_models};
use crate::body;
use crate::openai::models::{ModelCard, ModelList};
use crate::openai::{CHAT_PATH, Fields, request};
use crate::refusal::Refusal;
use crate::refusal::json_response;
use maverl::task::Action;

/// Maximum number of episodes of a claim.
const MOST_CLAIMED: usize = 256;
/// Maximum time in seconds that a claim waits.
const LONGEST_WAIT: f64 = 30.0;

request! {
    /// Request of a worker for episodes.
    struct ClaimRequest {
        max: Option<usize> [1, MOST_CLAIMED],
        wait_s: Option<f64> [0.0, LONGEST_WAIT],
    }
    // A name for the logs of the client.
    Option<String>: worker;
}

request! {
    /// Heartbeat of a worker.
    struct BeatRequest {
        episodes: Option<Value>,
    }
}

request! {
    /// An action: `{"text"}`, or `{"name", "arguments"}`.
    struct ActRequest {
        text: Option<String>,
        name: Option<String>,
        arguments: Option<Map<String, Value>>,
    }
}

/// Returns the routes.
pub(super) fn router(shared: Arc<GatewayState>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(text))
        .route("/v1/responses", post(responses))
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/v1/models", get(models))
        .route("/episodes/{id}/v1/chat/completions", post(chat))
        .route("/episodes/{id}/v1/completions", post(text))
        .route("/episodes/{id}/v1/responses", post(responses))
        .route("/episodes/{id}/v1/messages", post(messages))
        .route("/episodes/{id}/v1/messages/count_tokens", post(count_tokens))
        .route("/episodes/{id}/v1/models", get(models))
        .route("/episodes/{id}", get(state))
        .route("/episodes/{id}/tools", get(tools))
        .route("/episodes/{id}/act", post(act))
        .route("/episodes/{id}/mcp", post(mcp::route))
        .route("/episodes/{id}/parts", post(parts))
        .route("/episodes/{id}/finish", post(finish))
        .route("/episodes/{id}/fail", post(fail))
        .route("/claim", post(claim))
        .route("/heartbeat", post(heartbeat))
        .route("/", head(StatusCode::OK))
        .fallback(other_path)
        .with_state(shared)
}

async fn chat(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    answer_call(Dialect::Chat, &shared, request).await
}

async fn text(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    answer_call(Dialect::Text, &shared, request).await
}

async fn responses(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    answer_call(Dialect::Responses, &shared, request).await
}

async fn messages(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    answer_call(Dialect::Messages, &shared, request).await
}

async fn count_tokens(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    respond_with(count_prompt(&shared, request).await)
}

/// Counts the tokens of the prompt of a call.
async fn count_prompt(shared: &GatewayState, request: Request) -> Result<Value, Refusal> {
    let open = open(shared, request.uri(), request.headers())?;
    let (parts, body) = request.into_parts();
    let bytes = body::read(body, MOST_BYTES).await?;
    let call = SeatCall::read_prompt(&parts.headers, &bytes, &shared.options)?;
    let count = |reply| EpisodeCommand::Count(Box::new(call), reply);
    request_without_body(Ok(open), count).await
}

/// Answers a call, and counts it.
async fn answer_call(dialect: Dialect, shared: &GatewayState, request: Request) -> Response {
    let (mut seat, answered) = (None, completion(dialect, shared, request));
    let response = match answered.await {
        Ok((call_seat, response)) => {
            seat = Some(call_seat);
            response
        }
        Err(refusal) => refusal.into_response(),
    };
    let seat = seat.and_then(|seat: usize| shared.options.models.get(seat));
    let code = response.status().as_u16().to_string();
    let labels = [seat.map_or("", String::as_str), &code];
    shared.metrics.add("maverl_gateway_calls_total", &labels, 1);
    response
}

/// Answers a call. Returns the index of its seat too.
async fn completion(
    dialect: Dialect,
    shared: &GatewayState,
    request: Request,
) -> Result<(usize, Response), Refusal> {
    let open = open(shared, request.uri(), request.headers())?;
    let (parts, body) = request.into_parts();
    let bytes = body::read(body, MOST_BYTES).await?;
    let call = SeatCall::read(dialect, &parts.headers, &bytes, &shared.options)?;
    let (seat, streaming) = (call.seat, call.streaming);
    let (reply, begun) = oneshot::channel();
    let sent = open.commands.send(EpisodeCommand::Chat(Box::new(call), reply)).await;
    sent.map_err(|_| episode_closed())?;
    let mut result = begun.await.map_err(|_| episode_closed())??;
    let completed = result.wait_for(Option::is_some).await.map_err(|_| episode_closed())?.clone();
    let answer = completed.ok_or_else(episode_closed)??;
    let streamed = streaming.stream.then_some(streaming.include_usage);
    Ok((seat, dialect.respond(answer, streamed, &shared.metrics)))
}

async fn models(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    let found = open(&shared, request.uri(), request.headers());
    let models = shared.options.models.iter();
    if asks_for_models(request.headers()) {
        let models = models.map(|name| MessageModel::new(name.clone(), shared.created));
        return respond_with(found.map(|_| MessageModels::from_iter(models)));
    }
    let cards = models.map(|name| ModelCard::new(name.clone(), shared.created, None));
    respond_with(found.map(|_| ModelList::from_iter(cards)))
}

async fn state(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    let open = open(&shared, request.uri(), request.headers());
    respond_with(request_without_body(open, EpisodeCommand::State).await)
}

async fn tools(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    let open = open(&shared, request.uri(), request.headers());
    respond_with(request_without_body(open, EpisodeCommand::Tools).await)
}

async fn act(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    respond_with(request_with_body(&shared, request, read_action, EpisodeCommand::Act).await)
}

async fn parts(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    respond_with(
        request_with_body(&shared, request, ReportedPart::read, EpisodeCommand::Part).await,
    )
}

async fn fail(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    respond_with(
        request_with_body(&shared, request, ReportedFailure::read, EpisodeCommand::Fail).await,
    )
}

async fn finish(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    respond_with(finish_episode(&shared, request).await)
}

async fn claim(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    match claim_episodes(&shared, request).await {
        Ok(Claimed::Episodes(episodes)) if episodes.is_empty() => {
            StatusCode::NO_CONTENT.into_response()
        }
        Ok(Claimed::Episodes(episodes)) => {
            json_response(StatusCode::OK, &json!({"episodes": episodes}))
        }
        Ok(Claimed::Over) => {
            let refusal = Refusal::new(StatusCode::GONE, "run_over", "the run is over");
            Refusal { retry: Some(false), ..refusal }.into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Waits for episodes for a worker.
async fn claim_episodes(shared: &GatewayState, request: Request) -> Result<Claimed, Refusal> {
    let worker = worker(shared, request.headers())?;
    let bytes = body::read(request.into_body(), MOST_BYTES).await?;
    let mut fields = Fields::parse(&bytes)?;
    let ClaimRequest { max, wait_s } = fields.read()?;
    fields.finish(true)?;
    let wait = Duration::from_secs_f64(wait_s.unwrap_or(LONGEST_WAIT));
    Ok(shared.workers.claim(&worker, max.unwrap_or(1), wait).await)
}

async fn heartbeat(State(shared): State<Arc<GatewayState>>, request: Request) -> Response {
    respond_with(beat(&shared, request).await)
}

/// Extends the leases of episodes. Returns the ids of those that have ended.
async fn beat(shared: &GatewayState, request: Request) -> Result<Value, Refusal> {
    worker(shared, request.headers())?;
    let bytes = body::read(request.into_body(), MOST_BYTES).await?;
    let mut fields = Fields::parse(&bytes)?;
    let BeatRequest { episodes } = fields.read()?;
    let list = episodes.unwrap_or_else(|| json!([]));
    let ids: Option<Vec<&str>> =
        list.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let ids = ids.ok_or_else(|| fields.wrong("episodes", &list, "a list of ids of episodes"))?;
    fields.finish(true)?;
    let mut closed = Vec::new();
    for id in ids {
        match shared.episodes.of_id(id) {
            // A full queue renews the lease too.
            Some(open) => drop(open.commands.try_send(EpisodeCommand::Beat)),
            None => closed.push(id),
        }
    }
    Ok(json!({"closed": closed}))
}

/// Returns the worker of a request.
fn worker(shared: &GatewayState, headers: &HeaderMap) -> Result<Arc<Worker>, Refusal> {
    shared.workers.find(key(headers)).ok_or_else(|| {
        let message = "the request has no key of a worker; send it as `Authorization: Bearer KEY`";
        Refusal::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
    })
}

/// Finishes an episode. The same request again has the same answer, also after the end.
async fn finish_episode(shared: &GatewayState, request: Request) -> Result<Value, Refusal> {
    let found = shared.episodes.find(key(request.headers()))?;
    let (parts, body) = request.into_parts();
    let bytes = body::read(body, MOST_BYTES).await?;
    let same = digest(&[&bytes]);
    let open = match found {
        FoundEpisode::Closed(Some(first)) if first == same => return Ok(json!({"accepted": true})),
        FoundEpisode::Closed(_) => return Err(episode_closed()),
        FoundEpisode::Open(open) => open,
    };
    belongs(&open, &parts.uri)?;
    let finish = EpisodeFinish::read(Fields::parse(&bytes)?)?;
    let (reply, answer) = oneshot::channel();
    let sent = open.commands.send(EpisodeCommand::Finish(finish, same, reply)).await;
    if sent.is_ok()
        && let Ok(answer) = answer.await
    {
        return answer;
    }
    // It came after the request that ended the episode.
    if open.finished.get() == Some(&same) {
        Ok(json!({"accepted": true}))
    } else {
        Err(episode_closed())
    }
}

fn read_action(mut fields: Fields) -> Result<Action, Refusal> {
    let ActRequest { text, name, arguments } = fields.read()?;
    fields.finish(true)?;
    match (text, name) {
        (Some(text), None) => Ok(Action::Text(text)),
        (None, Some(name)) => {
            Ok(Action::Tool { name, arguments: arguments.unwrap_or_default().into() })
        }
        _ => {
            let message = "an action is `{\"text\": ..}` or `{\"name\": .., \"arguments\": {..}}`";
            Err(Refusal::malformed(message))
        }
    }
}

fn respond_with(answer: Result<impl Serialize, Refusal>) -> Response {
    match answer {
        Ok(answer) => json_response(StatusCode::OK, &answer),
        Err(refusal) => refusal.into_response(),
    }
}

async fn other_path(uri: Uri) -> Response {
    Refusal::no_path(&uri, CHAT_PATH).into_response()
}
