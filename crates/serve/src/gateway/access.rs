//! Requests to an episode: found by their keys, sent to the episode's task, and answered by it.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;
use tokio::sync::oneshot;

use super::course::{EpisodeCommand, Reply};
use super::episodes::{FoundEpisode, Open, episode_closed};
use super::shared::GatewayState;
use crate::body;
use crate::guard::sent_keys;
use crate::openai::Fields;
use crate::refusal::Refusal;

/// Maximum size of a request in bytes.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// Sends a request without a body to its episode.
pub(super) async fn request_without_body(
    open: Result<Arc<Open>, Refusal>,
    command: impl FnOnce(Reply) -> EpisodeCommand,
) -> Result<Value, Refusal> {
    let (reply, answer) = oneshot::channel();
    open?.commands.send(command(reply)).await.map_err(|_| episode_closed())?;
    answer.await.map_err(|_| episode_closed())?
}

/// Sends a request with a body to its episode.
pub(super) async fn request_with_body<T>(
    shared: &GatewayState,
    request: Request,
    read: impl FnOnce(Fields) -> Result<T, Refusal>,
    command: impl FnOnce(T, Reply) -> EpisodeCommand,
) -> Result<Value, Refusal> {
    let open = open(shared, request.uri(), request.headers())?;
    let bytes = body::read(request.into_body(), MOST_BYTES).await?;
    let read = read(Fields::parse(&bytes)?)?;
    let (reply, answer) = oneshot::channel();
    open.commands.send(command(read, reply)).await.map_err(|_| episode_closed())?;
    answer.await.map_err(|_| episode_closed())?
}

/// Returns the open episode of a request.
pub(super) fn open(
    shared: &GatewayState,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Arc<Open>, Refusal> {
    match shared.episodes.find(key(headers))? {
        FoundEpisode::Closed(_) => Err(episode_closed()),
        FoundEpisode::Open(open) => {
            belongs(&open, uri)?;
            Ok(open)
        }
    }
}

/// Fails if a path names another episode than that of the key.
pub(super) fn belongs(open: &Open, uri: &Uri) -> Result<(), Refusal> {
    let Some(rest) = uri.path().strip_prefix("/episodes/") else { return Ok(()) };
    if rest.split('/').next() == Some(open.id.as_str()) {
        return Ok(());
    }
    let message = "the key is that of another episode";
    Err(Refusal::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
}

/// Returns the key of a request.
pub(super) fn key(headers: &HeaderMap) -> Option<&str> {
    sent_keys(headers).next()
}
