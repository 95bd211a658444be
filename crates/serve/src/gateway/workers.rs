//! Workers: long-lived programs that claim episodes, started by the run or attached from outside.

mod spawned;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time::Instant;

use super::call::digest;
use super::history::Hash;
use super::log::Log;
use super::process::PlayerEnd;

/// Workers of a run, and the episodes that wait for one.
pub(super) struct Workers {
    table: Mutex<WorkerTable>,
    /// A permit for each episode that a waiting claim could take.
    places: Semaphore,
    /// Number of places that episodes have taken of claims which ended without them.
    owed: AtomicUsize,
    offered: Notify,
    /// True once the run is over.
    over: watch::Sender<bool>,
    /// Reason that no worker will ever come.
    broken: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct WorkerTable {
    /// Workers by the digests of their keys.
    workers: BTreeMap<Hash, Arc<Worker>>,
    tickets: VecDeque<Ticket>,
}

/// A program with the key of a worker. Programs that attach from outside share one.
pub(super) struct Worker {
    /// True once its process has ended.
    ended: watch::Sender<bool>,
    /// Time of its last request.
    heard: Mutex<Instant>,
    /// Number of its claims that wait.
    claims: AtomicUsize,
    /// True once it has claimed an episode.
    claimed: AtomicBool,
    /// Output of its process.
    log: Log,
}

/// An episode that waits to be claimed.
struct Ticket {
    /// Description of the episode, with its key.
    told: Value,
    claimed: oneshot::Sender<Arc<Worker>>,
}

/// Answer to a claim.
#[derive(Debug)]
pub(super) enum Claimed {
    /// Descriptions of episodes; none if none came in time.
    Episodes(Vec<Value>),
    /// The run is over.
    Over,
}

/// The worker of an episode, and the time until its next request is due.
pub(super) struct WorkerLease {
    worker: Arc<Worker>,
    ended: watch::Receiver<bool>,
    term: Duration,
    until: Instant,
}

impl Worker {
    fn new() -> Self {
        Self {
            ended: watch::Sender::new(false),
            heard: Mutex::new(Instant::now()),
            claims: AtomicUsize::new(0),
            claimed: AtomicBool::new(false),
            log: Log::default(),
        }
    }

    /// Ends the episodes of the worker: its process has ended.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Records a request of the worker.
    pub(super) fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until a worker that has claimed an episode has made no request for `term`.
    async fn silent(&self, term: Duration) {
        loop {
            let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            let waits = self.claims.load(Ordering::Relaxed) > 0;
            let new = !self.claimed.load(Ordering::Relaxed);
            let until = heard + term;
            if waits || new || until > Instant::now() {
                let soon = Instant::now() + term / 4 + Duration::from_millis(1);
                tokio::time::sleep_until(until.max(soon)).await;
            } else {
                return;
            }
        }
    }
}

impl WorkerLease {
    /// Extends the lease after a request of the episode, or while the worker waits for an answer.
    pub(super) fn renew(&mut self) {
        self.worker.hear();
        self.until = Instant::now() + self.term;
    }

    /// Waits until the worker has ended or the lease is over. May be cancelled.
    pub(super) async fn wait_for_loss(&mut self) -> PlayerEnd {
        tokio::select! {
            _ = self.ended.wait_for(|ended| *ended) => {
                PlayerEnd::Gone("the worker of the episode ended".to_owned())
            }
            () = tokio::time::sleep_until(self.until) => {
                let term = self.term.as_secs_f64();
                PlayerEnd::Silent(format!(
                    "the worker of the episode made no request for {term} s (`orchestra.lease_s`)"
                ))
            }
        }
    }

    /// Returns the output of the worker.
    pub(super) fn log(&self) -> Log {
        self.worker.log.clone()
    }
}

/// Places of a claim that waits. Dropping it takes the rest back.
struct Places<'w> {
    workers: &'w Workers,
    worker: &'w Worker,
    count: usize,
}

impl<'w> Places<'w> {
    fn offer(workers: &'w Workers, worker: &'w Worker, count: usize) -> Self {
        worker.claims.fetch_add(1, Ordering::Relaxed);
        let before = workers.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |owed| {
            Some(owed.saturating_sub(count))
        });
        let paid = before.unwrap_or_default().min(count);
        workers.places.add_permits(count - paid);
        Self { workers, worker, count }
    }
}

impl Drop for Places<'_> {
    fn drop(&mut self) {
        // Places that episodes have taken meanwhile cannot be taken back.
        let forgotten = self.workers.places.forget_permits(self.count);
        self.workers.owed.fetch_add(self.count - forgotten, Ordering::Relaxed);
        self.worker.hear();
        self.worker.claims.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            places: Semaphore::new(0),
            owed: AtomicUsize::new(0),
            offered: Notify::new(),
            over: watch::Sender::new(false),
            broken: watch::Sender::new(None),
        }
    }
}

impl Workers {
    /// Accepts a key, and returns its worker.
    pub(super) fn admit(&self, key: &str) -> Arc<Worker> {
        let worker = Arc::new(Worker::new());
        self.table().workers.insert(digest(&[key.as_bytes()]), Arc::clone(&worker));
        worker
    }

    /// Returns the worker of a key.
    pub(super) fn find(&self, key: Option<&str>) -> Option<Arc<Worker>> {
        let digest = digest(&[key?.as_bytes()]);
        let worker = self.table().workers.get(&digest).cloned()?;
        worker.hear();
        Some(worker)
    }

    /// Answers every claim from now on with the end of the run.
    pub(super) fn close(&self) {
        self.over.send_replace(true);
    }

    /// Waits until a worker can take an episode, or until none ever will.
    pub(super) async fn ready(&self) {
        let mut broken = self.broken.subscribe();
        tokio::select! {
            place = self.places.acquire() => {
                if let Ok(place) = place {
                    place.forget();
                }
            }
            _ = broken.wait_for(Option::is_some) => {}
        }
    }

    /// Offers an episode, and waits until it is claimed.
    ///
    /// # Errors
    ///
    /// If the workers of the run do not start.
    pub(super) async fn offer(&self, told: Value, term: Duration) -> Result<WorkerLease, String> {
        let (claimed, claim) = oneshot::channel();
        self.table().tickets.push_back(Ticket { told, claimed });
        self.offered.notify_one();
        let mut broken = self.broken.subscribe();
        let worker = tokio::select! {
            biased;
            worker = claim => worker.map_err(|_| "the gateway was stopped".to_owned())?,
            reason = broken.wait_for(Option::is_some) => {
                return Err(reason.ok().and_then(|reason| reason.clone()).unwrap_or_default());
            }
        };
        let ended = worker.ended.subscribe();
        Ok(WorkerLease { worker, ended, term, until: Instant::now() + term })
    }

    /// Waits for at most `most` episodes, for some time.
    pub(super) async fn claim(&self, worker: &Arc<Worker>, most: usize, wait: Duration) -> Claimed {
        let mut over = self.over.subscribe();
        if *over.borrow_and_update() {
            return Claimed::Over;
        }
        // An episode that waits already has taken the place of an earlier claim, which may still wait: this claim's place is for
        // that one's next episode.
        let mut places = Places::offer(self, worker, most);
        let until = Instant::now() + wait;
        loop {
            let taken = self.take(worker, most);
            if !taken.is_empty() {
                // Their places were taken in `ready`.
                places.count -= taken.len();
                return Claimed::Episodes(taken);
            }
            tokio::select! {
                biased;
                _ = over.wait_for(|over| *over) => return Claimed::Over,
                () = self.offered.notified() => {}
                () = tokio::time::sleep_until(until) => return Claimed::Episodes(Vec::new()),
            }
        }
    }

    fn take(&self, worker: &Arc<Worker>, most: usize) -> Vec<Value> {
        let mut table = self.table();
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(Ticket { told, claimed }) = table.tickets.pop_front()
        {
            // Nobody waits for the claim of an episode that is over.
            if claimed.send(Arc::clone(worker)).is_ok() {
                taken.push(told);
            }
        }
        if !taken.is_empty() {
            worker.claimed.store(true, Ordering::Relaxed);
        }
        if !table.tickets.is_empty() {
            self.offered.notify_one();
        }
        taken
    }

    fn table(&self) -> MutexGuard<'_, WorkerTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
