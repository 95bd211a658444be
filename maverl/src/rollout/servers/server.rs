//! The servers of a table, and what is counted of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::client::Client;
use crate::config::{RolloutServerConfig, ServerKind};
use crate::rollout::servers::{sglang, vllm, vllm_whole};

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
    pub(super) name: String,
    pub(super) kind: ServerKind,
    /// Name of the base on the servers.
    pub(super) base: String,
    pub(super) servers: Vec<Server>,
    pub(super) retries: u32,
    /// True if the experts of the tokens are asked for.
    pub(super) router_replay: bool,
    /// True if this process gives the servers their weights.
    pub(super) leads: bool,
    pub(super) usage: Mutex<ServerUsage>,
}

/// One server.
pub(super) struct Server {
    pub(super) url: String,
    pub(super) key: Option<String>,
    pub(super) timeout: Duration,
    /// Generations with the base or an adapter.
    pub(super) generate: Arc<Client>,
    /// Generations with full weights.
    pub(super) generate_whole: Arc<Client>,
    pub(super) places: Semaphore,
    /// Number of requests that it runs.
    pub(super) running: AtomicUsize,
    /// True if its last attempt failed.
    pub(super) failed: AtomicBool,
    /// Number of times that it could not be given weights.
    pub(super) refusals: AtomicUsize,
    /// Labels of the weights that it has; locked while it is given others.
    pub(super) loaded: tokio::sync::Mutex<Vec<LoadedWeights>>,
}

/// Weights that a server was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoadedWeights {
    pub(super) label: String,
    /// True if it still has them; false after it lost them.
    pub(super) there: bool,
}

impl Servers {
    /// Creates the servers of a table. `leads` is true for the process that gives them their weights.
    ///
    /// # Errors
    ///
    /// If the environment variable of the key is not set, or the table has no `kind`.
    pub fn new(name: &str, config: &RolloutServerConfig, leads: bool) -> Result<Self, String> {
        let kind = config.kind.ok_or("`kind` is not set")?;
        let key = server_key(config.key_env.as_deref())?;
        let paths = match kind {
            ServerKind::Sglang => [sglang::GENERATE; 2],
            ServerKind::Vllm => [vllm::GENERATE, vllm_whole::GENERATE],
        };
        let servers = config.urls.iter().map(|url| Server::new(url, config, key.as_ref(), paths));
        Ok(Self {
            name: name.to_owned(),
            kind,
            base: config.model.clone().unwrap_or_default(),
            servers: servers.collect(),
            retries: config.retries,
            router_replay: config.router_replay,
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

    pub(super) fn count(&self, change: impl FnOnce(&mut ServerUsage)) {
        change(&mut self.usage.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the server for the next attempt: one whose last attempt did not fail, with the fewest requests.
    pub(super) fn choose(&self) -> Option<&Server> {
        self.servers.iter().min_by_key(|server| {
            (server.failed.load(Ordering::Relaxed), server.running.load(Ordering::Relaxed))
        })
    }
}

impl Server {
    /// Creates a server of a table, with the paths of generations with the base or an adapter, and with full weights.
    fn new(
        url: &str,
        config: &RolloutServerConfig,
        key: Option<&String>,
        paths: [&str; 2],
    ) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let timeout = Duration::try_from_secs_f64(config.timeout_s).unwrap_or(Duration::MAX);
        let most = config.max_requests.get();
        let [generate, generate_whole] = paths.map(|path| {
            Arc::new(Client::new(format!("{url}{path}"), key.cloned(), timeout, 0, most))
        });
        Self {
            url,
            key: key.cloned(),
            timeout,
            generate,
            generate_whole,
            places: Semaphore::new(most.min(Semaphore::MAX_PERMITS)),
            running: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            refusals: AtomicUsize::new(0),
            loaded: tokio::sync::Mutex::default(),
        }
    }
}

/// Returns the key in an environment variable, if one is named.
pub(in crate::rollout) fn server_key(variable: Option<&str>) -> Result<Option<String>, String> {
    let Some(variable) = variable else { return Ok(None) };
    match std::env::var(variable) {
        Ok(key) if !key.is_empty() => Ok(Some(key)),
        _ => Err(format!("the environment variable `{variable}` is not set, or empty")),
    }
}

/// Counts a request as long as it lives.
pub(super) struct CountedRequest<'c>(&'c AtomicUsize);

impl<'c> CountedRequest<'c> {
    pub(super) fn new(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for CountedRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
