//! Times of requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::orchestra::{Ask, ChatBackend, Conversation, Response};
use crate::trajectory::{Fault, Tokens};

tokio::task_local! {
    /// Receiver of the begin of the request that a timed backend has sent.
    static BEGIN: Arc<dyn Fn() + Send + Sync>;
}

/// Returns the function to call when the request of this task begins; `None` if it is not timed.
pub(super) fn begin() -> Option<Arc<dyn Fn() + Send + Sync>> {
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

/// A backend whose requests are timed.
pub(super) struct TimedBackend {
    pub(super) inner: Arc<dyn ChatBackend>,
    pub(super) times: Arc<RequestTimes>,
}

impl ChatBackend for TimedBackend {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn sample_again<'a>(
        &'a self,
        recorded: &'a Tokens,
    ) -> Option<BoxFuture<'a, Result<Tokens, Fault>>> {
        self.inner.sample_again(recorded)
    }

    fn respond<'a>(
        &'a self,
        conversation: &'a mut Conversation,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Response, Fault>> {
        async move {
            let (seed, asked) = (ask.seed, self.times.now());
            let began = Arc::new(OnceLock::new());
            let (cell, times) = (Arc::clone(&began), Arc::clone(&self.times));
            let begin: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
                // Only the first begin counts: a request that is sent again has waited since then.
                let _ = cell.set(times.now());
            });
            let response = BEGIN.scope(begin, self.inner.respond(conversation, ask)).await;
            let time = RequestTime { asked, began: began.get().copied(), ended: self.times.now() };
            let mut times = self.times.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.insert(seed, time);
            response
        }
        .boxed()
    }
}
