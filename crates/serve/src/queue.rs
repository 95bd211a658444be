//! Admission of requests: so many choices run, so many requests wait, further ones are refused.
//!
//! A free permit goes to the waiting choices in turn: first among the keys, then among the requests of a key. So a request
//! with many choices takes as many permits as nobody else wants, and one with a single choice waits for one permit alone.

mod turns;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::oneshot;

use crate::guard::ClientNumber;
use crate::metrics::{ServerMetrics, label_counts};
use crate::refusal::Refusal;
use turns::Turns;

/// Limits of the queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Maximum number of choices that are generated at once.
    pub running: NonZeroUsize,
    /// Maximum number of requests that wait; further ones get 429.
    pub waiting: usize,
    /// Maximum time that a request waits for its first choice; then it gets 503.
    pub wait: Duration,
    /// Maximum number of requests of a key that run or wait; further ones get 429. 0 is no limit.
    pub per_key: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            running: NonZeroUsize::MIN.saturating_add(63),
            waiting: 256,
            wait: Duration::from_secs(120),
            per_key: 0,
        }
    }
}

/// The queue of a server.
pub(crate) struct Queue {
    limits: QueueLimits,
    shared: Arc<SharedQueue>,
    metrics: ServerMetrics,
}

/// State of a queue, shared by its permits.
struct SharedQueue {
    state: Mutex<QueueState>,
}

struct QueueState {
    /// Number of free permits; 0 while anybody waits.
    free: usize,
    /// Number of requests that wait for their first permit.
    waiting: usize,
    /// Number of requests of each key.
    keys: BTreeMap<ClientNumber, usize>,
    /// Choices that wait for a permit.
    turns: Turns<oneshot::Sender<Permit>>,
    /// Number of the next request.
    next: u64,
}

/// Permission to generate one choice, or to read a request, until it is dropped.
pub(crate) struct Permit(Option<Arc<SharedQueue>>);

/// A request that was admitted, until it is dropped.
pub(crate) struct Admitted {
    entered: EnteredRequest,
    /// The permit with which it was admitted, until a choice takes it.
    first: Mutex<Option<Permit>>,
}

/// A request in the counts of its key.
struct EnteredRequest {
    shared: Arc<SharedQueue>,
    client: ClientNumber,
    id: u64,
}

/// A request in the count of those that wait.
struct WaitingRequest(Arc<SharedQueue>);

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the numbers of running choices and of waiting requests.
    fn counts(&self, limits: QueueLimits) -> [usize; 2] {
        let state = self.lock();
        [limits.running.get() - state.free, state.waiting]
    }

    /// Passes a permit to the next choice that still waits, or frees it.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.lock();
                let next = state.turns.next();
                state.free += usize::from(next.is_none());
                next
            };
            let Some(waiter) = next else { return };
            match waiter.send(Permit(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // Its choice is gone. The permit is offered to the next one.
                Err(mut refused) => refused.0 = None,
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.pass_on();
        }
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

impl Drop for EnteredRequest {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.turns.forget(self.client, self.id);
        if let Some(count) = state.keys.get_mut(&self.client) {
            *count -= 1;
        }
    }
}

impl EnteredRequest {
    /// Takes a free permit, or a turn among those that wait for one.
    fn ask(&self) -> Result<Permit, oneshot::Receiver<Permit>> {
        let mut state = self.shared.lock();
        if state.free > 0 {
            state.free -= 1;
            return Ok(Permit(Some(Arc::clone(&self.shared))));
        }
        let (waiter, turn) = oneshot::channel();
        state.turns.add(self.client, self.id, waiter);
        Err(turn)
    }
}

impl Admitted {
    /// Waits for the permit of a choice. The first one is there already.
    pub(crate) async fn permit(&self) -> Result<Permit, Refusal> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(first) = first {
            return Ok(first);
        }
        match self.entered.ask() {
            Ok(permit) => Ok(permit),
            Err(turn) => turn.await.map_err(|closed| Refusal::internal(closed.to_string())),
        }
    }
}

impl Queue {
    pub(crate) fn new(limits: QueueLimits, metrics: ServerMetrics) -> Self {
        let free = limits.running.get();
        let (keys, turns) = Default::default();
        let state = Mutex::new(QueueState { free, waiting: 0, keys, turns, next: 0 });
        let queue = Self { limits, shared: Arc::new(SharedQueue { state }), metrics };
        let shared = Arc::clone(&queue.shared);
        queue.metrics.gauge("maverl_requests_active", move || {
            label_counts(["running", "waiting"], shared.counts(limits))
        });
        queue
    }

    /// Waits until a request may be read, and one of its choices generated.
    pub(crate) async fn admit(&self, client: ClientNumber) -> Result<Admitted, Refusal> {
        let entered = self.enter(client)?;
        let turn = match entered.ask() {
            Ok(permit) => return Ok(Admitted { entered, first: Mutex::new(Some(permit)) }),
            Err(turn) => turn,
        };
        let _waiting = self.wait()?;
        match tokio::time::timeout(self.limits.wait, turn).await {
            Ok(Ok(permit)) => Ok(Admitted { entered, first: Mutex::new(Some(permit)) }),
            Ok(Err(closed)) => Err(Refusal::internal(closed.to_string())),
            Err(_) => {
                self.metrics.add("maverl_rejected_total", &["wait"], 1);
                let message =
                    format!("the request waited for {:?}; try again later", self.limits.wait);
                Err(Refusal::unavailable("wait_too_long", message))
            }
        }
    }

    /// Counts a request that waits.
    fn wait(&self) -> Result<WaitingRequest, Refusal> {
        let mut state = self.shared.lock();
        if state.waiting >= self.limits.waiting {
            drop(state);
            let message = format!("{} requests wait already; try again later", self.limits.waiting);
            return Err(self.refuse_request("queue_full", message));
        }
        state.waiting += 1;
        Ok(WaitingRequest(Arc::clone(&self.shared)))
    }

    fn enter(&self, client: ClientNumber) -> Result<EnteredRequest, Refusal> {
        let mut state = self.shared.lock();
        let count = *state.keys.entry(client).or_default();
        if self.limits.per_key > 0 && count >= self.limits.per_key {
            drop(state);
            let message = format!("{count} requests of this key are under way; try again later");
            return Err(self.refuse_request("key_limit", message));
        }
        state.keys.insert(client, count + 1);
        let id = state.next;
        state.next += 1;
        Ok(EnteredRequest { shared: Arc::clone(&self.shared), client, id })
    }

    fn refuse_request(&self, reason: &'static str, message: String) -> Refusal {
        self.metrics.add("maverl_rejected_total", &[reason], 1);
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        Refusal { retry_after: Some(Duration::from_secs(1)), ..refusal }
    }
}

#[cfg(test)]
mod tests;
