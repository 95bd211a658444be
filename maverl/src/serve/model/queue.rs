//! Admission of requests: so many run, so many wait, further ones are refused.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::serve::{Client, Metrics, Refusal};

/// Limits of the queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Maximum number of choices that are generated at once.
    pub running: NonZeroUsize,
    /// Maximum number of requests that wait; further ones get 429.
    pub waiting: usize,
    /// Maximum time that a request waits; then it gets 503.
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
pub(in crate::serve) struct Queue {
    limits: QueueLimits,
    running: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    keys: Arc<Mutex<BTreeMap<Client, usize>>>,
    metrics: Metrics,
}

/// A request that runs, until it is dropped.
pub(in crate::serve) struct Admitted {
    _permit: OwnedSemaphorePermit,
    _key: Counted,
}

/// A count that a drop takes back.
struct Counted {
    keys: Arc<Mutex<BTreeMap<Client, usize>>>,
    client: Client,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = keys.get_mut(&self.client) {
            *count -= 1;
        }
    }
}

/// A request that waits.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Queue {
    pub(in crate::serve) fn new(limits: QueueLimits, metrics: Metrics) -> Self {
        let running = Arc::new(Semaphore::new(limits.running.get()));
        Self { limits, running, waiting: Arc::default(), keys: Arc::default(), metrics }
    }

    /// Returns the numbers of running choices and of waiting requests.
    pub(in crate::serve) fn counts(&self) -> [usize; 2] {
        let running = self.limits.running.get() - self.running.available_permits();
        [running, self.waiting.load(Ordering::Relaxed)]
    }

    /// Waits until a request with so many choices may run.
    pub(in crate::serve) async fn admit(
        &self,
        client: Client,
        choices: usize,
    ) -> Result<Admitted, Refusal> {
        let key = self.enter(client)?;
        let permits = choices.min(self.limits.running.get()) as u32;
        if let Ok(permit) = Arc::clone(&self.running).try_acquire_many_owned(permits) {
            return Ok(Admitted { _permit: permit, _key: key });
        }
        let waiting = Waiting(Arc::clone(&self.waiting));
        if waiting.0.fetch_add(1, Ordering::AcqRel) >= self.limits.waiting {
            let message = format!("{} requests wait already; try again later", self.limits.waiting);
            return Err(self.refused("queue_full", message));
        }
        let taken = Arc::clone(&self.running).acquire_many_owned(permits);
        match tokio::time::timeout(self.limits.wait, taken).await {
            Ok(Ok(permit)) => Ok(Admitted { _permit: permit, _key: key }),
            Ok(Err(closed)) => Err(Refusal::internal(closed.to_string())),
            Err(_) => {
                self.metrics.add("maverl_rejected_total", &["wait"], 1);
                let message =
                    format!("the request waited for {:?}; try again later", self.limits.wait);
                Err(Refusal::unavailable("wait_too_long", message))
            }
        }
    }

    fn enter(&self, client: Client) -> Result<Counted, Refusal> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let count = keys.entry(client).or_default();
        if self.limits.per_key > 0 && *count >= self.limits.per_key {
            let message = format!("{count} requests of this key are under way; try again later");
            return Err(self.refused("key_limit", message));
        }
        *count += 1;
        Ok(Counted { keys: Arc::clone(&self.keys), client })
    }

    fn refused(&self, reason: &'static str, message: String) -> Refusal {
        self.metrics.add("maverl_rejected_total", &[reason], 1);
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        Refusal { retry_after: Some(Duration::from_secs(1)), ..refusal }
    }
}
