//! Generation of the choices of a call.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use tokio::sync::watch;

use super::{Completed, Done, Under};
use maverl::orchestra::{Ask, Conversation, EpisodeState};

/// Generates the choices of a call, unless its client leaves for longer than `grace`.
pub(super) async fn complete(
    state: Arc<EpisodeState>,
    asks: Vec<(Ask, Conversation)>,
    under: Box<Under>,
    grace: Duration,
) -> Done {
    let all = try_join_all(asks.into_iter().map(|(ask, before)| state.generate(ask, before)));
    let outcome = tokio::select! {
        biased;
        all = all => Some(all),
        () = abandoned(&under.result, grace) => None,
    };
    Done::Chat(under, outcome)
}

/// Waits until a result has had no receiver for some time.
async fn abandoned(result: &watch::Sender<Completed>, grace: Duration) {
    loop {
        result.closed().await;
        tokio::time::sleep(grace).await;
        if result.is_closed() {
            return;
        }
    }
}
