//! Times of requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::orchestra::{Ask, ChatBackend, Conversation, Response};
use crate::trajectory::{Fault, Tokens};

/// Times at which requests were sent and answered. No result depends on them.
pub struct RequestTimes {
    /// Clock, in seconds.
    now: Box<dyn Fn() -> f64 + Send + Sync>,
    /// Times by the seed of the request.
    times: Mutex<BTreeMap<u64, [f64; 2]>>,
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
    pub fn take(&self) -> BTreeMap<u64, [f64; 2]> {
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
            let response = self.inner.respond(conversation, ask).await;
            let ended = self.times.now();
            let mut times = self.times.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.insert(seed, [asked, ended]);
            response
        }
        .boxed()
    }
}
