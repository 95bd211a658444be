//! Generation of the choices of a call.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use tokio::sync::watch;

use crate::gateway::call::SeatCall;
use crate::gateway::history::Hash;
use crate::openai::chat::ChatCompletion;
use crate::refusal::Refusal;
use maverl::orchestra::{Ask, Conversation, EpisodeState};
use maverl::trajectory::{Fault, Turn};

/// Result of a call, once it is known.
pub(in crate::gateway) type Completed = Option<Result<Arc<ChatCompletion>, Refusal>>;

/// Turns of a call with the conversations after them; `None` if its client left.
pub(in crate::gateway) type CallOutcome = Option<Result<Vec<(Turn, Conversation)>, Fault>>;

/// A call that is under way.
pub(in crate::gateway) struct Under {
    pub(super) call: SeatCall,
    pub(super) result: Arc<watch::Sender<Completed>>,
    /// Digest of the whole conversation.
    pub(super) hash: Hash,
    /// Number of each choice among equal calls.
    pub(super) numbers: Vec<u32>,
}

/// Generates the choices of a call, unless its client leaves for longer than `grace`.
pub(super) async fn complete(
    state: Arc<EpisodeState>,
    asks: Vec<(Ask, Conversation)>,
    under: Box<Under>,
    grace: Duration,
) -> (Box<Under>, CallOutcome) {
    let all = try_join_all(asks.into_iter().map(|(ask, before)| state.generate(ask, before)));
    let outcome = tokio::select! {
        biased;
        all = all => Some(all),
        () = until_abandoned(&under.result, grace) => None,
    };
    (under, outcome)
}

/// Waits until a result has had no receiver for some time.
async fn until_abandoned(result: &watch::Sender<Completed>, grace: Duration) {
    loop {
        result.closed().await;
        tokio::time::sleep(grace).await;
        if result.is_closed() {
            return;
        }
    }
}
