//! Several processes of one file. Whichever is idle takes the items that wait, up to a batch.
//!
//! An item of a batch that fails is tried again alone, in a new process, so that it fails for no other. The first items are
//! scored three times, as they come, each alone in reverse order, and all together: a value that depends on anything but its item
//! ends the use of the file.

mod probe;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::oneshot;

use super::log::PythonLog;
use super::process::{ProcessFailure, PythonProcess, StartFailure, tail};
use super::source::PythonFile;

/// Limits of a pool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PoolLimits {
    /// Number of processes.
    pub(crate) workers: usize,
    /// Maximum number of items of a request.
    pub(crate) batch: usize,
    /// Time limit of a request.
    pub(crate) timeout: Duration,
    /// Time limit of the start of a process.
    pub(crate) start_timeout: Duration,
    /// Number of further attempts of an item, alone.
    pub(crate) retries: u32,
    /// Number of failures of processes in a row after which the file is no longer used.
    pub(crate) give_up_after: u32,
    /// Number of items that are scored again, alone and together.
    pub(crate) probed: usize,
}

/// Counts of a pool since they were last taken.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PoolUsage {
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Seconds of these requests.
    pub(crate) seconds: f64,
    /// Processes that were started after the first ones.
    pub(crate) restarts: u64,
    /// Requests that took too long.
    pub(crate) timeouts: u64,
    /// Items without a value, because of an error.
    pub(crate) failed: u64,
}

/// Result of an item: the answer of the process, or the reason for none.
pub(crate) type ItemResult = Result<Value, String>;

/// Processes of one file, each served by a thread. They end with the pool.
pub(crate) struct PythonPool {
    shared: Arc<Shared>,
    /// First answer of the processes, which describes the file.
    pub(crate) greeting: Value,
}

struct Shared {
    file: PythonFile,
    program: &'static str,
    arguments: Vec<String>,
    limits: PoolLimits,
    /// Hashes of the files at the start.
    hashes: BTreeMap<String, String>,
    state: Mutex<PoolState>,
    arrived: Condvar,
    logs: Vec<Arc<PythonLog>>,
}

#[derive(Default)]
struct PoolState {
    waiting: VecDeque<WaitingItem>,
    usage: PoolUsage,
    /// Failures of processes in a row.
    failures: u32,
    /// Number of items that were scored again alone.
    probed: usize,
    /// These items with their answers, until they are scored together.
    first_items: Vec<(Value, Value)>,
    /// Reason that the file is no longer used.
    broken: Option<String>,
    closed: bool,
}

struct WaitingItem {
    item: Value,
    answer: oneshot::Sender<ItemResult>,
}

impl PythonPool {
    /// Starts the processes, and waits until one has loaded the file.
    ///
    /// # Errors
    ///
    /// If the file cannot be loaded.
    pub(crate) fn start(
        file: PythonFile,
        program: &'static str,
        arguments: Vec<String>,
        limits: PoolLimits,
    ) -> Result<Self, String> {
        let hashes = file.hashes()?;
        let logs = (0..limits.workers).map(|_| Arc::default()).collect();
        let (state, arrived) = Default::default();
        let shared =
            Arc::new(Shared { file, program, arguments, limits, hashes, state, arrived, logs });
        let started = shared.start_process(0);
        let (first, greeting) =
            started.map_err(|failure| failure.text(&shared.file, &shared.logs[0]))?;
        // The others start when there is work for them.
        let mut first = Some(first);
        for place in 0..shared.logs.len() {
            let (pool, process) = (Arc::clone(&shared), first.take());
            let thread = std::thread::Builder::new().name(format!("python {place}"));
            let spawned = thread.spawn(move || pool.serve(place, process));
            spawned.map_err(|error| format!("no thread for a process of Python: {error}"))?;
        }
        Ok(Self { shared, greeting })
    }

    /// Scores an item.
    pub(crate) async fn score(&self, item: Value) -> ItemResult {
        let (answer, answered) = oneshot::channel();
        self.shared.state().waiting.push_back(WaitingItem { item, answer });
        self.shared.arrived.notify_one();
        answered.await.unwrap_or_else(|_| Err("the thread of its process ended".to_owned()))
    }

    /// Writes the output of the processes to files `NAME.0.log` and so on in a directory.
    ///
    /// # Errors
    ///
    /// If a file cannot be opened.
    pub(crate) fn write_logs(&self, dir: &Path, name: &str) -> std::io::Result<()> {
        let mut logs = self.shared.logs.iter().enumerate();
        logs.try_for_each(|(n, log)| log.write_to(&dir.join(format!("{name}.{n}.log"))))
    }

    /// Takes the counts since the last call.
    pub(crate) fn take_usage(&self) -> PoolUsage {
        std::mem::take(&mut self.shared.state().usage)
    }

    /// Appends the output of all processes to a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub(crate) fn write_log(&self, path: &Path) -> std::io::Result<()> {
        self.shared.logs.iter().try_for_each(|log| log.write_to(path))
    }

    /// Returns a message about the file that begins with its name.
    pub(crate) fn located(&self, message: &str) -> String {
        self.shared.file.located(message)
    }

    /// Ends the use of the file.
    pub(crate) fn give_up(&self, reason: &str) {
        self.shared.give_up(reason.to_owned());
    }

    /// Returns true if the file is no longer used.
    pub(crate) fn is_broken(&self) -> bool {
        self.shared.broken().is_some()
    }

    /// Returns the names of the files that values depend on.
    pub(crate) fn sources(&self) -> Vec<String> {
        self.shared.hashes.keys().cloned().collect()
    }
}

impl Drop for PythonPool {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.arrived.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process, whose files must be those of the start.
    fn start_process(&self, place: usize) -> Result<(PythonProcess, Value), StartFailure> {
        let hashes = self.file.hashes().map_err(StartFailure::File)?;
        if hashes != self.hashes {
            let changed = hashes.iter().find(|(name, hash)| self.hashes.get(*name) != Some(*hash));
            let name = changed.map_or(&self.file.file, |(name, _)| name);
            return Err(StartFailure::File(format!(
                "{name} was changed during the run; values of two versions are not mixed: restore it, or begin a new run"
            )));
        }
        let (limit, log) = (self.limits.start_timeout, &self.logs[place]);
        PythonProcess::start(&self.file, self.program, &self.arguments, log, limit)
    }

    /// Answers items until the pool is dropped.
    fn serve(&self, place: usize, process: Option<PythonProcess>) {
        let started = process.is_some();
        let mut seat = PoolSeat { pool: self, place, process, started };
        while let Some(batch) = self.next_batch() {
            let (items, answers): (Vec<Value>, Vec<_>) =
                batch.into_iter().map(|WaitingItem { item, answer }| (item, answer)).unzip();
            let results = seat.score(&items);
            let failed = results.iter().filter(|result| result.is_err()).count();
            self.state().usage.failed += failed as u64;
            for (answer, result) in answers.into_iter().zip(results) {
                // The episode may have run out of time.
                let _ = answer.send(result);
            }
        }
    }

    /// Waits for items, and returns those of a request. `None` if the pool is dropped.
    fn next_batch(&self) -> Option<Vec<WaitingItem>> {
        let mut state = self.state();
        while state.waiting.is_empty() && !state.closed {
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let n = state.waiting.len().min(self.limits.batch);
        (!state.closed).then(|| state.waiting.drain(..n).collect())
    }

    /// Returns the reason that the file is no longer used.
    fn broken(&self) -> Option<String> {
        self.state().broken.clone()
    }

    fn give_up(&self, reason: String) {
        self.state().broken.get_or_insert(reason);
    }
}

/// A place of the pool with its process, if one runs.
struct PoolSeat<'p> {
    pool: &'p Shared,
    place: usize,
    process: Option<PythonProcess>,
    /// A process ran before.
    started: bool,
}

impl PoolSeat<'_> {
    fn score(&mut self, items: &[Value]) -> Vec<ItemResult> {
        if let Some(reason) = self.pool.broken() {
            return vec![Err(reason); items.len()];
        }
        let results = match self.attempt(items) {
            Ok(results) => results,
            Err(reason) => items.iter().map(|item| self.alone(item, &reason)).collect(),
        };
        self.probe(items, &results);
        match self.pool.broken() {
            Some(reason) => vec![Err(reason); items.len()],
            None => results,
        }
    }

    /// Scores an item of a failed request again.
    fn alone(&mut self, item: &Value, first: &str) -> ItemResult {
        let mut reason = first.to_owned();
        for _ in 0..self.pool.limits.retries {
            if let Some(broken) = self.pool.broken() {
                return Err(broken);
            }
            match self.attempt(std::slice::from_ref(item)) {
                Ok(mut results) => return results.pop().unwrap_or(Err(reason)),
                Err(again) => reason = again,
            }
        }
        Err(reason)
    }

    /// Sends items once. The process of a failure is killed.
    fn attempt(&mut self, items: &[Value]) -> Result<Vec<ItemResult>, String> {
        let limits = &self.pool.limits;
        let process = self.running()?;
        let begun = Instant::now();
        let answer = process.ask(items, limits.timeout);
        let results = answer.and_then(|answer| read_results(&answer, items.len()));
        match results {
            Ok(results) => {
                let mut state = self.pool.state();
                state.failures = 0;
                state.usage.requests += 1;
                state.usage.seconds += begun.elapsed().as_secs_f64();
                Ok(results
                    .into_iter()
                    .map(|result| result.map_err(|what| self.pool.file.located(&what)))
                    .collect())
            }
            Err(failure) => {
                self.process = None;
                let reason = match failure {
                    ProcessFailure::Timeout(_) => {
                        self.pool.state().usage.timeouts += 1;
                        self.pool.file.located(&format!("a request {failure} (`timeout_s`)"))
                    }
                    ProcessFailure::Ended(_) => self.pool.file.located(&failure.to_string()),
                };
                self.count_failure(&reason);
                Err(reason)
            }
        }
    }

    /// Returns the process. If none runs, or if it ended while it was idle, one is started.
    fn running(&mut self) -> Result<&mut PythonProcess, String> {
        if self.process.as_mut().is_some_and(PythonProcess::has_ended) {
            self.process = None;
        }
        while self.process.is_none() {
            match self.pool.start_process(self.place) {
                Ok((process, _)) => {
                    self.pool.state().usage.restarts += u64::from(self.started);
                    (self.process, self.started) = (Some(process), true);
                }
                Err(failure) => {
                    let log = &self.pool.logs[self.place];
                    let reason = failure.text(&self.pool.file, log);
                    if matches!(failure, StartFailure::File(_)) {
                        self.pool.give_up(reason);
                    } else {
                        self.count_failure(&reason);
                    }
                    self.pool.broken().map_or(Ok(()), Err)?;
                }
            }
        }
        self.process.as_mut().ok_or_else(|| "no process runs".to_owned())
    }

    /// Counts a failure of a process. After several in a row, the file is no longer used.
    fn count_failure(&self, reason: &str) {
        let failures = {
            let mut state = self.pool.state();
            state.failures += 1;
            state.failures
        };
        if failures > self.pool.limits.give_up_after {
            let last = tail(&self.pool.logs[self.place]);
            self.pool.give_up(format!("{reason}; that was failure {failures} in a row{last}"));
        }
    }
}

/// Reads the answer to a request for `n` items.
fn read_results(answer: &Value, n: usize) -> Result<Vec<ItemResult>, ProcessFailure> {
    let results = answer["results"].as_array().filter(|results| results.len() == n);
    let results = results.ok_or_else(|| {
        ProcessFailure::Ended("it wrote into the channel of its answers".to_owned())
    })?;
    let read = results.iter().map(|result| match result["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(result.clone()),
    });
    Ok(read.collect())
}
