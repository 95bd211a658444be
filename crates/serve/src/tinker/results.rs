//! Results that clients fetch later, by the number of their request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

/// Time for which a result stays after it was fetched, and after it was ready.
const KEPT: [Duration; 2] = [Duration::from_secs(600), Duration::from_secs(3600)];
/// Largest number of requests whose results are there or to come.
const MOST: usize = 1 << 14;

/// Result of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FutureOutcome {
    /// A JSON object.
    Json(Value),
    /// Bytes of a message.
    Proto(Vec<u8>),
    /// A failure.
    Failed(RequestFailure),
}

/// Failure of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestFailure {
    /// Description of the problem.
    pub(super) message: String,
    /// True if another request of the client may succeed.
    pub(super) by_user: bool,
}

impl RequestFailure {
    /// Creates the failure of a request that the client has to change.
    pub(super) fn user(message: impl Into<String>) -> Self {
        Self { message: message.into(), by_user: true }
    }

    /// Creates a failure of the server.
    pub(super) fn server(message: impl Into<String>) -> Self {
        Self { message: message.into(), by_user: false }
    }
}

type FutureSlot = watch::Sender<Option<Arc<FutureOutcome>>>;

struct FutureEntry {
    result: watch::Receiver<Option<Arc<FutureOutcome>>>,
    /// Time at which the result is dropped, once it is ready.
    end: Option<Instant>,
}

/// Results by the number of their request.
#[derive(Default)]
pub(super) struct Futures(Mutex<BTreeMap<String, FutureEntry>>);

/// Begin of a request.
pub(super) enum StartedFuture {
    /// It is new: its result is promised.
    New(Promise),
    /// It is there already: the client has sent it again.
    Again,
    /// There are too many.
    Full,
}

impl Futures {
    /// Begins a request, or finds the same one.
    pub(super) fn begin(&self, id: &str) -> StartedFuture {
        let mut all = self.lock();
        if all.contains_key(id) {
            return StartedFuture::Again;
        }
        drop_old(&mut all);
        if all.len() >= MOST {
            return StartedFuture::Full;
        }
        let (slot, result) = watch::channel(None);
        all.insert(id.to_owned(), FutureEntry { result, end: None });
        StartedFuture::New(Promise(Some(slot)))
    }

    /// Waits for a result, at most for a time. `None` if there is no such request; `Some(None)` if it is not ready.
    pub(super) async fn wait(
        &self,
        id: &str,
        limit: Duration,
    ) -> Option<Option<Arc<FutureOutcome>>> {
        let mut result = self.lock().get(id)?.result.clone();
        let ready = tokio::time::timeout(limit, result.wait_for(Option::is_some)).await;
        let outcome = match ready {
            Ok(Ok(outcome)) => outcome.clone(),
            Ok(Err(_)) | Err(_) => None,
        };
        if outcome.is_some()
            && let Some(entry) = self.lock().get_mut(id)
        {
            entry.end = Some(Instant::now() + KEPT[0]);
        }
        Some(outcome)
    }

    /// Returns the number of requests that are not ready.
    pub(super) fn pending(&self) -> usize {
        self.lock().values().filter(|entry| entry.result.borrow().is_none()).count()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, FutureEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops results that were fetched, or that nobody fetches.
fn drop_old(all: &mut BTreeMap<String, FutureEntry>) {
    let now = Instant::now();
    all.retain(|_, entry| {
        if entry.end.is_none() && entry.result.borrow().is_some() {
            entry.end = Some(now + KEPT[1]);
        }
        entry.end.is_none_or(|end| now < end)
    });
}

/// Promise of a result. If it is dropped, the request has failed.
pub(super) struct Promise(Option<FutureSlot>);

impl Promise {
    /// Gives the result.
    pub(super) fn resolve(mut self, outcome: FutureOutcome) {
        if let Some(slot) = self.0.take() {
            slot.send_replace(Some(Arc::new(outcome)));
        }
    }

    /// Gives a result or a failure.
    pub(super) fn settle(self, result: Result<FutureOutcome, RequestFailure>) {
        self.resolve(result.unwrap_or_else(FutureOutcome::Failed));
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            let failure = RequestFailure::server("the server has dropped the request");
            slot.send_replace(Some(Arc::new(FutureOutcome::Failed(failure))));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn begun(futures: &Futures, id: &str) -> Promise {
        match futures.begin(id) {
            StartedFuture::New(promise) => promise,
            StartedFuture::Again | StartedFuture::Full => panic!("not new"),
        }
    }

    #[tokio::test]
    async fn a_result_is_given_to_those_who_wait_and_to_those_who_come_later() {
        let futures = Futures::default();
        let short = Duration::from_millis(5);
        assert_eq!(futures.wait("a", short).await, None);
        let promise = begun(&futures, "a");
        assert!(matches!(futures.begin("a"), StartedFuture::Again));
        assert_eq!(futures.wait("a", short).await, Some(None));
        assert_eq!(futures.pending(), 1);
        promise.resolve(FutureOutcome::Json(json!({"x": 1})));
        for _ in 0..2 {
            let found = futures.wait("a", short).await.unwrap().unwrap();
            assert_eq!(*found, FutureOutcome::Json(json!({"x": 1})));
        }
        drop(begun(&futures, "b"));
        let dropped = futures.wait("b", short).await.unwrap().unwrap();
        assert!(matches!(&*dropped, FutureOutcome::Failed(failure) if !failure.by_user));
    }
}
