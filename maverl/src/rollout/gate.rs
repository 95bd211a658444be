//! Gate of an episode whose turns wait for the weights that sample them (`rollout.advance_turns`).
//!
//! An episode that waits gives up its permit: otherwise waiting episodes of later steps could hold all permits, and those of
//! the step that they wait for would never begin. The wait is not part of the time of the episode.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::orchestra::TurnGate;
use crate::rollout::admission::{Admission, EpisodePermit};
use crate::rollout::versions::TurnVersions;
use crate::trajectory::{Fault, Seat, TurnPath};

/// Permits of episodes that are played at once, and the rank of an episode among those that wait for one.
pub(super) type Queue = (Arc<Admission>, u64);

/// Gate of one episode: its permit, and the time that it has waited.
pub(super) struct EpisodeGate {
    versions: Arc<TurnVersions>,
    queue: Option<Queue>,
    state: Mutex<GateState>,
    /// Held by the part of the episode that gets a permit for it.
    admitting: tokio::sync::Mutex<()>,
}

struct GateState {
    permit: Option<EpisodePermit>,
    /// Number of parts of the episode that wait for weights.
    waiting: usize,
    /// Number of parts that wait for weights, or for the permit after them.
    paused: usize,
    /// Start of the wait that `waited` lacks, while `paused` is not 0.
    since: Duration,
    /// Time of waits since it was taken.
    waited: Duration,
    /// True after the episode has ended, which needs no permit then.
    ended: bool,
}

impl EpisodeGate {
    /// Creates the gate of an episode that begins with a permit, if it needs one.
    pub(super) fn new(
        versions: Arc<TurnVersions>,
        queue: Option<Queue>,
        permit: Option<EpisodePermit>,
    ) -> Self {
        let (since, waited) = (versions.now(), Duration::ZERO);
        let state = GateState { permit, waiting: 0, paused: 0, since, waited, ended: false };
        let (state, admitting) = (Mutex::new(state), tokio::sync::Mutex::default());
        Self { versions, queue, state, admitting }
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the time in which a part of the episode waited since the last call.
    pub(super) fn take_waited(&self) -> Duration {
        let mut state = self.state();
        if state.paused > 0 {
            let now = self.versions.now();
            let waited = now.saturating_sub(state.since);
            state.waited += waited;
            state.since = now;
        }
        std::mem::take(&mut state.waited)
    }

    /// Gives up the permit of an episode that has ended, even if an abandoned part of it still runs.
    pub(super) fn end(&self) {
        let permit = {
            let mut state = self.state();
            state.ended = true;
            state.permit.take()
        };
        drop(permit);
    }

    async fn wait(&self, seat: &Seat, path: &TurnPath) -> Result<(), Fault> {
        let Some(version) = self.versions.awaited(seat, path) else { return Ok(()) };
        let _paused = PausedPart::begin(self);
        {
            let _waiting = WaitingPart::begin(self);
            self.versions.wait_for(version).await?;
        }
        self.admit().await;
        Ok(())
    }

    /// Waits for a permit, unless the episode has one, or another part of it still waits for weights: that one gets it.
    async fn admit(&self) {
        let Some((admission, rank)) = &self.queue else { return };
        let _one = self.admitting.lock().await;
        if !self.needs_permit() {
            return;
        }
        let permit = Arc::clone(admission).acquire(*rank).await;
        let unneeded = {
            let mut state = self.state();
            if state.waiting == 0 && !state.ended {
                state.permit.replace(permit)
            } else {
                Some(permit)
            }
        };
        drop(unneeded);
    }

    fn needs_permit(&self) -> bool {
        let state = self.state();
        state.waiting == 0 && state.permit.is_none() && !state.ended
    }
}

impl TurnGate for EpisodeGate {
    fn pass<'a>(&'a self, seat: &'a Seat, path: &'a TurnPath) -> BoxFuture<'a, Result<(), Fault>> {
        self.wait(seat, path).boxed()
    }
}

/// A part of an episode that waits for weights, or for the permit after them.
struct PausedPart<'g>(&'g EpisodeGate);

impl<'g> PausedPart<'g> {
    fn begin(gate: &'g EpisodeGate) -> Self {
        let mut state = gate.state();
        if state.paused == 0 {
            state.since = gate.versions.now();
        }
        state.paused += 1;
        Self(gate)
    }
}

impl Drop for PausedPart<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.paused -= 1;
        if state.paused == 0 {
            let waited = self.0.versions.now().saturating_sub(state.since);
            state.waited += waited;
        }
    }
}

/// A part of an episode that waits for weights. The episode has no permit meanwhile.
struct WaitingPart<'g>(&'g EpisodeGate);

impl<'g> WaitingPart<'g> {
    fn begin(gate: &'g EpisodeGate) -> Self {
        let permit = {
            let mut state = gate.state();
            state.waiting += 1;
            state.permit.take()
        };
        drop(permit);
        Self(gate)
    }
}

impl Drop for WaitingPart<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

#[cfg(test)]
mod tests;
