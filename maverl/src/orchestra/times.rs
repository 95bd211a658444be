//! Times of requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

tokio::task_local! {
    /// Receiver of the begin of the request that is being timed.
    static BEGIN: Arc<dyn Fn() + Send + Sync>;
}

/// Returns the function to call when the request of this task begins; `None` if it is not timed.
pub(crate) fn request_begin() -> Option<Arc<dyn Fn() + Send + Sync>> {
    BEGIN.try_with(Arc::clone).ok()
}

/// Times of a request, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestTime {
    /// Time at which it was sent.
    pub asked: f64,
    /// Time at which the engine began with its prompt; `None` if an endpoint or a script replied.
    pub began: Option<f64>,
    /// Time at which its reply was there.
    pub ended: f64,
}

/// Times at which requests were sent, begun and answered. No result depends on them.
pub struct RequestTimes {
    /// Clock, in seconds.
    now: Box<dyn Fn() -> f64 + Send + Sync>,
    /// Times by the seed of the request.
    times: Mutex<BTreeMap<u64, RequestTime>>,
}

impl RequestTimes {
    /// Creates times by a clock, in seconds.
    pub fn new(now: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self { now: Box::new(now), times: Mutex::default() }
    }

    /// Returns the time now, in seconds.
    pub fn now(&self) -> f64 {
        (self.now)()
    }

    /// Takes the times of all answered requests, by their seeds.
    pub fn take(&self) -> BTreeMap<u64, RequestTime> {
        std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request that is being timed.
pub(super) struct Timer {
    times: Arc<RequestTimes>,
    seed: u64,
    asked: f64,
    began: Arc<OnceLock<f64>>,
}

impl Timer {
    /// Starts with a request of this seed.
    pub(super) fn start(times: &Arc<RequestTimes>, seed: u64) -> Self {
        Self { times: Arc::clone(times), seed, asked: times.now(), began: Arc::default() }
    }

    /// Awaits the reply. Only the first begin counts: a request that is sent again has waited since then.
    pub(super) async fn time<T>(self, reply: impl Future<Output = T>) -> T {
        let Self { times, seed, asked, began } = self;
        let (cell, clock) = (Arc::clone(&began), Arc::clone(&times));
        let begin: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            cell.get_or_init(|| clock.now());
        });
        let replied = BEGIN.scope(begin, reply).await;
        let time = RequestTime { asked, began: began.get().copied(), ended: times.now() };
        let mut all = times.times.lock().unwrap_or_else(PoisonError::into_inner);
        // A branch may send a request with the seed of a turn of the played episode, and later.
        all.entry(seed).or_insert(time);
        replied
    }
}
