//! The client of a server of rewards: items of concurrent episodes in common requests, and a pause while it is down.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use tokio::sync::{Semaphore, oneshot};

use super::protocol::{self, ScoredItem};
use super::{ScoredRewards, Scorer, Units};
use crate::client::{Answered, Client};
use crate::config::{OnRewardError, RewardProtocol, RewardServerConfig};
use crate::reward::Rewards;
use crate::rollout::servers::server_key;
use crate::trajectory::Episode;

/// Time for which requests fail at once after several failures in a row.
const REST: Duration = Duration::from_secs(10);

/// A part of the reward that a server gives.
pub struct RewardServer {
    units: Units,
    on_error: OnRewardError,
    queue: Arc<RewardQueue>,
}

/// Items that wait for a request, and the requests.
struct RewardQueue {
    client: Arc<Client>,
    protocol: RewardProtocol,
    batch: usize,
    wait: Duration,
    places: Semaphore,
    waiting: Mutex<Vec<WaitingReward>>,
    /// Failed requests in a row.
    failures: AtomicU32,
    give_up_after: u32,
    /// Requests fail at once.
    resting: AtomicBool,
    rest: Duration,
}

/// An item, and the channel of its episode.
struct WaitingReward {
    item: ScoredItem,
    answer: oneshot::Sender<Result<f64, String>>,
}

impl RewardServer {
    /// Creates the client of a configuration.
    ///
    /// # Errors
    ///
    /// If the environment variable of the key is not set.
    pub fn new(config: &RewardServerConfig) -> Result<Self, String> {
        let key = server_key(config.key_env.as_deref())?;
        let timeout = Duration::try_from_secs_f64(config.timeout_s).unwrap_or(Duration::MAX);
        let at_once = config.max_requests.get();
        let client = Client::new(config.url.clone(), key, timeout, config.retries, at_once);
        let queue = RewardQueue {
            client: Arc::new(client),
            protocol: config.protocol,
            batch: protocol::batch(config.protocol, config.batch.get()),
            wait: Duration::from_millis(config.wait_ms),
            places: Semaphore::new(at_once.min(Semaphore::MAX_PERMITS)),
            waiting: Mutex::default(),
            failures: AtomicU32::new(0),
            give_up_after: config.give_up_after.get(),
            resting: AtomicBool::new(false),
            rest: REST,
        };
        let RewardServerConfig { of, seats, send, on_error, .. } = config.clone();
        Ok(Self { units: Units { of, seats, send }, on_error, queue: Arc::new(queue) })
    }

    #[cfg(test)]
    pub(super) fn with_rest(mut self, rest: Duration) -> Self {
        if let Some(queue) = Arc::get_mut(&mut self.queue) {
            queue.rest = rest;
        }
        self
    }

    async fn values(&self, episode: &Episode) -> Result<ScoredRewards, String> {
        let (recipients, items): (Vec<_>, Vec<_>) = self.units.items(episode).into_iter().unzip();
        let answers = join_all(items.into_iter().map(|item| self.queue.ask(item))).await;
        let (mut rewards, mut skipped) = (Rewards::none(), 0);
        for (of, answer) in recipients.into_iter().zip(answers) {
            match (answer, self.on_error) {
                (Ok(value), _) => rewards = rewards.of(of, value),
                (Err(_), OnRewardError::Skip) => skipped += 1,
                (Err(error), OnRewardError::Unscored) => return Err(error),
            }
        }
        let skipped = (self.on_error == OnRewardError::Skip).then_some(skipped);
        Ok(ScoredRewards { rewards, skipped, ..ScoredRewards::default() })
    }
}

impl Scorer for RewardServer {
    fn score<'a>(&'a self, episode: &'a Episode) -> BoxFuture<'a, Result<ScoredRewards, String>> {
        self.values(episode).boxed()
    }
}

impl RewardQueue {
    /// Adds an item to the next request, and waits for its value.
    async fn ask(self: &Arc<Self>, item: ScoredItem) -> Result<f64, String> {
        let (answer, answered) = oneshot::channel();
        let (first, full) = {
            let mut waiting = self.waiting();
            waiting.push(WaitingReward { item, answer });
            let full = waiting.len() >= self.batch;
            (waiting.len() == 1, full.then(|| std::mem::take(&mut *waiting)))
        };
        // Requests are tasks of their own: an episode that ends early holds up no other.
        match full {
            Some(items) => drop(tokio::spawn(Arc::clone(self).send(items))),
            None if first => drop(tokio::spawn(Arc::clone(self).flush())),
            None => {}
        }
        answered.await.unwrap_or_else(|_| Err(self.with_address("the request broke down")))
    }

    /// Sends what has come within the waiting time.
    async fn flush(self: Arc<Self>) {
        tokio::time::sleep(self.wait).await;
        let items = std::mem::take(&mut *self.waiting());
        if !items.is_empty() {
            self.send(items).await;
        }
    }

    async fn send(self: Arc<Self>, waiting: Vec<WaitingReward>) {
        let (mut items, answers): (Vec<ScoredItem>, Vec<_>) =
            waiting.into_iter().map(|WaitingReward { item, answer }| (item, answer)).unzip();
        let results = match self.request(&mut items).await {
            Ok(results) => results,
            Err(error) => vec![Err(error); items.len()],
        };
        for (answer, result) in answers.into_iter().zip(results) {
            // The episode may have run out of time.
            let _ = answer.send(result);
        }
    }

    async fn request(
        self: &Arc<Self>,
        items: &mut [ScoredItem],
    ) -> Result<protocol::Results, String> {
        let _place = self.places.acquire().await.map_err(|error| error.to_string())?;
        if self.resting.load(Ordering::Acquire) {
            let reason = "not asked again yet, after several failures in a row";
            return Err(self.with_address(reason));
        }
        let body = Arc::new(protocol::body(self.protocol, items));
        let Answered { body, .. } = self.client.post(&body).await;
        let results = body.and_then(|text| {
            let results = protocol::results(self.protocol, &text, items.len());
            results.map_err(|reason| self.with_address(&reason))
        });
        match &results {
            Ok(_) => self.failures.store(0, Ordering::Release),
            Err(_) => self.count_failure(),
        }
        let results = results?.into_iter();
        Ok(results.map(|result| result.map_err(|reason| self.with_address(&reason))).collect())
    }

    /// Counts a failure. After several in a row, requests fail at once for a while; then one failure is enough.
    fn count_failure(self: &Arc<Self>) {
        let failures = self.failures.fetch_add(1, Ordering::AcqRel) + 1;
        if failures < self.give_up_after || self.resting.swap(true, Ordering::AcqRel) {
            return;
        }
        let queue = Arc::clone(self);
        drop(tokio::spawn(async move {
            tokio::time::sleep(queue.rest).await;
            queue.failures.store(queue.give_up_after - 1, Ordering::Release);
            queue.resting.store(false, Ordering::Release);
        }));
    }

    fn with_address(&self, reason: &str) -> String {
        format!("{}: {reason}", self.client.address())
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<WaitingReward>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
