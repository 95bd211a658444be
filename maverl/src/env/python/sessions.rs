//! Sessions in processes of Python. A session whose process has ended is played again, from its reset, in the next one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::env::{EnvError, Session};
use crate::python::PythonPool;
use crate::task::Task;

/// Number of sessions that are played twice, to see that they go alike.
const PROBED: usize = 2;

/// Processes, each with its sessions.
pub(super) struct PythonSessions {
    workers: Vec<Worker>,
    next: AtomicU64,
    retries: u32,
    /// Number of sessions that were played twice.
    probed: AtomicUsize,
}

struct Worker {
    pool: PythonPool,
    /// Number of its open sessions.
    open: AtomicUsize,
}

/// State of an episode, all that is needed to play it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PythonSession {
    /// Key of the state in the process.
    key: u64,
    worker: usize,
    /// Observation after the reset.
    pub(super) first: Option<String>,
    /// Actions so far.
    pub(super) actions: Vec<Value>,
    /// Rewards of the steps that had one.
    pub(super) rewards: Vec<f64>,
    /// Hash of all observations.
    seen: String,
    pub(super) done: bool,
}

impl PythonSession {
    /// Reads the state of an episode.
    pub(super) fn of(session: &Session) -> Result<Self, EnvError> {
        serde_json::from_value(session.state.clone())
            .map_err(|error| EnvError(format!("the session has another state: {error}")))
    }

    /// Adds what a step gave, and returns its observation.
    fn add(&mut self, action: Value, answer: &Value) -> String {
        let text = answer["observation"].as_str().unwrap_or_default().to_owned();
        self.actions.push(action);
        self.rewards.extend(answer["reward"].as_f64());
        self.done |= answer["done"] == true;
        self.seen = digest(&[&self.seen, &answer.to_string()]);
        text
    }
}

impl PythonSessions {
    pub(super) fn new(pools: Vec<PythonPool>, retries: u32) -> Self {
        let open = |pool| Worker { pool, open: AtomicUsize::new(0) };
        let (next, probed) = Default::default();
        Self { workers: pools.into_iter().map(open).collect(), next, retries, probed }
    }

    pub(super) fn sources(&self) -> Vec<String> {
        self.workers.first().map(|worker| worker.pool.sources()).unwrap_or_default()
    }

    /// Returns the tools as the class lists them.
    pub(super) fn tools(&self) -> &[Value] {
        let listed = self.workers.first().map(|worker| &worker.pool.greeting["tools"]);
        listed.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// Opens a session in the process that has the fewest.
    pub(super) async fn open(&self, task: &Task) -> Result<PythonSession, EnvError> {
        let counts = self.workers.iter().map(|worker| worker.open.load(Ordering::Relaxed));
        let worker = counts.enumerate().min_by_key(|(_, open)| *open).map_or(0, |(at, _)| at);
        self.workers[worker].open.fetch_add(1, Ordering::Relaxed);
        let opened = self.reset(task, self.new_key(), worker).await;
        if opened.is_err() {
            self.workers[worker].open.fetch_sub(1, Ordering::Relaxed);
        }
        opened
    }

    /// Executes an action, and returns the observation.
    pub(super) async fn step(
        &self,
        task: &Task,
        session: &mut PythonSession,
        action: Value,
    ) -> Result<String, EnvError> {
        let request = step_request(task, session, &action);
        let answer = self.ask_again(task, session, &request).await?;
        Ok(session.add(action, &answer))
    }

    /// Returns the score that the class gives; `None` if it has no `score`.
    pub(super) async fn score(
        &self,
        task: &Task,
        session: &PythonSession,
        answer: Option<&str>,
    ) -> Result<Option<Value>, EnvError> {
        let scored = self.score_once(task, session, answer).await?;
        if self.probed.fetch_add(1, Ordering::Relaxed) < PROBED {
            self.probe(task, session, answer, scored.as_ref()).await?;
        }
        Ok(scored)
    }

    async fn score_once(
        &self,
        task: &Task,
        session: &PythonSession,
        answer: Option<&str>,
    ) -> Result<Option<Value>, EnvError> {
        if self.workers[session.worker].pool.greeting["scores"] != true {
            return Ok(None);
        }
        let mut request = session_request("score", task, session);
        request["answer"] = answer.into();
        self.ask_again(task, session, &request).await.map(Some)
    }

    /// Copies a session; `None` if the class cannot.
    pub(super) async fn fork(
        &self,
        task: &Task,
        session: &PythonSession,
    ) -> Result<Option<PythonSession>, EnvError> {
        let copy = self.new_key();
        let mut request = session_request("fork", task, session);
        request["copy"] = copy.into();
        let answer = self.ask_again(task, session, &request).await?;
        if answer["forked"] != true {
            return Ok(None);
        }
        self.workers[session.worker].open.fetch_add(1, Ordering::Relaxed);
        Ok(Some(PythonSession { key: copy, ..session.clone() }))
    }

    /// Closes a session. Its process may have ended.
    pub(super) async fn close(&self, task: &Task, session: &PythonSession) {
        let worker = &self.workers[session.worker];
        // What the class does at the end changes no result.
        let _ = worker.pool.score(session_request("close", task, session)).await;
        worker.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn new_key(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins a session.
    async fn reset(&self, task: &Task, key: u64, worker: usize) -> Result<PythonSession, EnvError> {
        let mut session = PythonSession {
            key,
            worker,
            first: None,
            actions: Vec::new(),
            rewards: Vec::new(),
            seen: String::new(),
            done: false,
        };
        let answer = self.ask_again(task, &session, &reset_request(task, key)).await?;
        session.first = answer["observation"].as_str().map(str::to_owned);
        session.seen = digest(&[&answer.to_string()]);
        Ok(session)
    }

    /// Sends a request. If the process of the session has ended, the session is played again in the next one.
    async fn ask_again(
        &self,
        task: &Task,
        session: &PythonSession,
        request: &Value,
    ) -> Result<Value, EnvError> {
        let (mut left, mut lost) = (self.retries, false);
        loop {
            let ended = if lost && request["op"] != "reset" {
                lost = false;
                self.play_again(task, session).await?
            } else {
                lost = true;
                match self.ask(session.worker, request).await? {
                    RequestResult::Answer(answer) => return Ok(answer),
                    RequestResult::Lost => None,
                    RequestResult::Ended(reason) => Some(reason),
                }
            };
            // Also a process that ends while the session is played again counts.
            if let Some(reason) = ended {
                left = left.checked_sub(1).ok_or(EnvError(reason))?;
                lost = true;
            }
        }
    }

    /// Plays a session up to its last action, in the process that runs now. Returns the reason if that has ended by it.
    async fn play_again(
        &self,
        task: &Task,
        session: &PythonSession,
    ) -> Result<Option<String>, EnvError> {
        let mut again = vec![reset_request(task, session.key)];
        let mut played = PythonSession { actions: Vec::new(), ..session.clone() };
        for action in &session.actions {
            again.push(step_request(task, &played, action));
            played.actions.push(action.clone());
        }
        for request in again {
            match self.ask(session.worker, &request).await? {
                RequestResult::Answer(_) => {}
                // Another session has ended the process: the next request finds that it is lost.
                RequestResult::Lost => return Ok(None),
                RequestResult::Ended(reason) => return Ok(Some(reason)),
            }
        }
        Ok(None)
    }

    /// Plays a session again under another key, and compares it and its score.
    async fn probe(
        &self,
        task: &Task,
        session: &PythonSession,
        answer: Option<&str>,
        scored: Option<&Value>,
    ) -> Result<(), EnvError> {
        let mut again = self.reset(task, self.new_key(), session.worker).await?;
        for action in &session.actions {
            self.step(task, &mut again, action.clone()).await?;
        }
        let score = self.score_once(task, &again, answer).await?;
        // Closed without `close`, which counts the open sessions.
        let _ = self.ask(session.worker, &session_request("close", task, &again)).await;
        let differs = if (&again.seen, &again.rewards, again.done)
            != (&session.seen, &session.rewards, session.done)
        {
            "gave other observations or rewards"
        } else if score.as_ref() != scored {
            "got another score"
        } else {
            return Ok(());
        };
        let file = &self.sources().join(", ");
        let pool = &self.workers[session.worker].pool;
        let reason = format!(
            "{file}: task `{}`, played twice with the same seed and actions, {differs}; use no clock, no state of earlier episodes and no \
             random numbers but those of `random`, which is seeded, or of `seed`",
            task.id
        );
        pool.give_up(&reason);
        Err(EnvError(reason))
    }

    async fn ask(&self, worker: usize, request: &Value) -> Result<RequestResult, EnvError> {
        let pool = &self.workers[worker].pool;
        match pool.score(request.clone()).await {
            Ok(answer) if answer["lost"] == true => Ok(RequestResult::Lost),
            Ok(answer) => match answer["failed"].as_str() {
                Some(failed) => Err(EnvError(pool.located(failed))),
                None => Ok(RequestResult::Answer(answer)),
            },
            Err(reason) if pool.is_broken() => Err(EnvError(reason)),
            Err(reason) => Ok(RequestResult::Ended(reason)),
        }
    }
}

/// Result of a request.
enum RequestResult {
    Answer(Value),
    /// The process does not have the session.
    Lost,
    /// The process ended.
    Ended(String),
}

fn reset_request(task: &Task, key: u64) -> Value {
    let mut row = Map::new();
    row.insert("id".to_owned(), task.id.clone().into());
    row.insert("source".to_owned(), task.source.clone().into());
    row.insert("question".to_owned(), task.question.clone().into());
    row.extend(task.data.clone());
    json!({ "op": "reset", "key": key, "task": row, "seed": seed_of(task) })
}

fn step_request(task: &Task, session: &PythonSession, action: &Value) -> Value {
    let mut request = session_request("step", task, session);
    request["action"] = action.clone();
    request
}

/// Returns a request of an open session, with what its random numbers depend on.
fn session_request(op: &str, task: &Task, session: &PythonSession) -> Value {
    let steps = session.actions.len();
    json!({ "op": op, "key": session.key, "seed": seed_of(task), "steps": steps })
}

/// Returns the seed of a task, which fits 31 bits.
fn seed_of(task: &Task) -> u32 {
    let digest = Sha256::digest(format!("{}/{}", task.source, task.id).as_bytes());
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]) >> 1
}

fn digest(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    parts.iter().for_each(|part| digest.update(part.as_bytes()));
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
