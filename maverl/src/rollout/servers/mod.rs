//! Inference servers that sample for policies: SGLang and vLLM over HTTP, token ids in and out.
//!
//! Every answer is validated before it becomes a completion: a server that misbehaves costs a request, or the episode that
//! asked, and never gives data that is not what was asked for.
//!
//! `sglang`, `vllm` and `vllm_whole` (full weights) are protocols: functions from a request to a body, and from a body
//! to an answer. `answer` validates what all answers have, `control` sends weights, and `remote` chooses a server for
//! each attempt.

mod answer;
mod control;
mod remote;
mod sglang;
mod vllm;
mod vllm_whole;

pub use remote::{Probe, RemotePolicy};

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;

use crate::client::{Client, Failure};
use crate::config::{RolloutServerConfig, ServerKind};
use crate::runtime::Sampling;
use answer::Answer;

/// Number of characters of a list of problems that a message shows of each.
const SHOWN: usize = 300;

/// A request for a completion, as a server gets it.
#[derive(Debug, Clone, Copy)]
struct Asked<'r> {
    prompt: &'r [u32],
    sampling: &'r Sampling,
    /// Maximum number of tokens, within the context.
    max_tokens: usize,
    seed: u64,
    /// All token ids that end a reply.
    stop_ids: &'r [u32],
    weights: &'r Weights,
    /// Name of the base on the servers.
    base: &'r str,
}

/// Weights of a policy as servers know them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Weights {
    /// Name of the published weights; empty for the base as the server started with it.
    label: String,
    /// True if they are an adapter.
    adapter: bool,
    /// Directory that holds them, an absolute path.
    dir: String,
    /// Number of updates of the policy.
    version: u64,
}

impl Weights {
    /// Returns true if they are all weights of the model.
    fn whole(&self) -> bool {
        !self.adapter && !self.label.is_empty()
    }
}

/// Problem of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Problem {
    /// Another attempt may go well: the server is busy, failing, unreachable or shutting down.
    Transient(String, Duration),
    /// The server does not have the weights, as after a restart.
    Missing(String),
    /// The answer is not what was asked for.
    Wrong(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Transient(text, _) | Self::Missing(text) | Self::Wrong(text)) = self;
        f.write_str(text)
    }
}

impl Problem {
    fn transient(text: impl Into<String>) -> Self {
        Self::Transient(text.into(), Duration::ZERO)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Transient(reason, least) => Self::Transient(reason, least),
            Failure::Refused(_, reason) | Failure::Final(reason) => Self::Wrong(reason),
        }
    }
}

/// Requests to servers since the last call of [`Servers::take_usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerUsage {
    /// Number of completions.
    pub requests: u64,
    /// Number of attempts that failed.
    pub failures: u64,
    /// Number of sampled tokens.
    pub tokens: u64,
}

/// The servers of a table of a configuration.
pub struct Servers {
    name: String,
    kind: ServerKind,
    /// Name of the base on the servers.
    base: String,
    servers: Vec<Server>,
    retries: u32,
    /// True if this process gives the servers their weights.
    leads: bool,
    usage: Mutex<ServerUsage>,
}

/// One server.
struct Server {
    url: String,
    key: Option<String>,
    timeout: Duration,
    /// Generations with the base or an adapter.
    generate: Arc<Client>,
    /// Generations with full weights.
    generate_whole: Arc<Client>,
    places: Semaphore,
    /// Number of requests that it runs.
    running: AtomicUsize,
    /// True if its last attempt failed.
    failed: AtomicBool,
    /// Number of times that it could not be given weights.
    refusals: AtomicUsize,
    /// Labels of the weights that it has; locked while it is given others.
    loaded: tokio::sync::Mutex<Vec<control::Loaded>>,
}

impl Servers {
    /// Creates the servers of a table. `leads` is true for the process that gives them their weights.
    ///
    /// # Errors
    ///
    /// If the environment variable of the key is not set, or the table has no `kind`.
    pub fn new(name: &str, config: &RolloutServerConfig, leads: bool) -> Result<Self, String> {
        let kind = config.kind.ok_or("`kind` is not set")?;
        let key = match &config.key_env {
            None => None,
            Some(variable) => match std::env::var(variable) {
                Ok(key) if !key.is_empty() => Some(key),
                _ => {
                    return Err(format!(
                        "the environment variable `{variable}` is not set, or empty"
                    ));
                }
            },
        };
        let timeout = Duration::try_from_secs_f64(config.timeout_s).unwrap_or(Duration::MAX);
        let most = config.max_requests.get();
        let [path, whole] = match kind {
            ServerKind::Sglang => [sglang::GENERATE; 2],
            ServerKind::Vllm => [vllm::GENERATE, vllm_whole::GENERATE],
        };
        let server = |url: &String| {
            let url = url.trim_end_matches('/').to_owned();
            let client =
                |path| Arc::new(Client::new(format!("{url}{path}"), key.clone(), timeout, 0, most));
            let (generate, generate_whole) = (client(path), client(whole));
            Server {
                url,
                key: key.clone(),
                timeout,
                generate,
                generate_whole,
                places: Semaphore::new(most.min(Semaphore::MAX_PERMITS)),
                running: AtomicUsize::new(0),
                failed: AtomicBool::new(false),
                refusals: AtomicUsize::new(0),
                loaded: tokio::sync::Mutex::default(),
            }
        };
        Ok(Self {
            name: name.to_owned(),
            kind,
            base: config.model.clone().unwrap_or_default(),
            servers: config.urls.iter().map(server).collect(),
            retries: config.retries,
            leads,
            usage: Mutex::default(),
        })
    }

    /// Returns the name of the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the protocol.
    pub fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Returns the number of servers.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns true if there is no server.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Returns the requests since the last call.
    pub fn take_usage(&self) -> ServerUsage {
        std::mem::take(&mut *self.usage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives servers that failed another chance before the others.
    pub fn forgive(&self) {
        self.servers.iter().for_each(|server| server.failed.store(false, Ordering::Relaxed));
    }

    fn count(&self, change: impl FnOnce(&mut ServerUsage)) {
        change(&mut self.usage.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the server for the next attempt: one whose last attempt did not fail, with the fewest requests.
    fn choose(&self) -> Option<&Server> {
        let load = |server: &&Server| {
            (server.failed.load(Ordering::Relaxed), server.running.load(Ordering::Relaxed))
        };
        self.servers.iter().min_by_key(load)
    }

    /// Makes one attempt at a server, which gets the weights first if it lacks them.
    async fn attempt(&self, server: &Server, asked: &Asked<'_>) -> Result<Answer, Problem> {
        if self.leads {
            // The caller tries again.
            self.provide(server, asked.weights, 0).await?;
        }
        let closed = |_| Problem::transient("the process is ending");
        let _place = server.places.acquire().await.map_err(closed)?;
        let whole = asked.weights.whole();
        let body = match self.kind {
            ServerKind::Sglang => sglang::body(asked),
            ServerKind::Vllm if whole => vllm_whole::body(asked),
            ServerKind::Vllm => vllm::body(asked),
        };
        let client = if whole { &server.generate_whole } else { &server.generate };
        let text = match client.post_once(&Arc::new(body)).await {
            Ok(text) => text,
            Err(Failure::Refused(status, reason)) if self.lacks(asked, status, &reason) => {
                return Err(Problem::Missing(reason));
            }
            Err(Failure::Refused(403, reason)) if whole && self.kind == ServerKind::Vllm => {
                return Err(vllm_whole::not_open(vllm_whole::GENERATE, &reason));
            }
            Err(failure) => return Err(failure.into()),
        };
        // A cut answer is a failure of the connection.
        let answer: Value = serde_json::from_str(&text).map_err(|error| {
            let start = crate::client::start(&text);
            Problem::transient(format!("answered {start}, no JSON: {error}"))
        })?;
        match self.kind {
            ServerKind::Sglang => sglang::read(&answer, asked),
            ServerKind::Vllm if whole => vllm_whole::read(&answer, asked),
            ServerKind::Vllm => vllm::read(&answer, asked),
        }
    }

    /// Returns true if a status means that the server does not know an adapter.
    fn lacks(&self, asked: &Asked<'_>, status: u16, reason: &str) -> bool {
        asked.weights.adapter
            && match self.kind {
                ServerKind::Vllm => status == 404,
                ServerKind::Sglang => status == 400 && reason.contains("not loaded"),
            }
    }
}

/// Counts a request as long as it lives.
struct CountedRequest<'c>(&'c AtomicUsize);

impl<'c> CountedRequest<'c> {
    fn new(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for CountedRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the beginning of a message.
fn shortened(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests;
