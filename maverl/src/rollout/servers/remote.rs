//! A policy that servers sample for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use maverl_hub::retry;

use crate::files::HfConfig;
use crate::rollout::servers::request::{AnswerProblem, Asked, ServedWeights, shorten_message};
use crate::rollout::servers::server::{CountedRequest, Server, Servers};
use crate::runtime::{Completion, Generating, Generator, Policy, Request, RuntimeError, Sampling};
use crate::text::Tokenizer;

/// Number of versions of an adapter that servers keep: the current one, and the one before.
const KEPT: usize = 2;
/// Text of the prompt of a probe.
const PROBE: &str = "The quick brown fox jumps over the lazy dog. Then it";
/// Seeds of the completions of a probe.
const SEEDS: [u64; 4] = [2, 4, 6, 8];
/// Maximum number of tokens of a completion of a probe.
const PROBE_TOKENS: usize = 16;

/// A policy whose replies servers sample.
pub struct RemotePolicy {
    pub(super) policy: String,
    pub(super) servers: Arc<Servers>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) context: usize,
    /// Shape of the model.
    pub(super) shape: HfConfig,
    /// True if it is an adapter.
    pub(super) adapter: bool,
    pub(super) weights: RwLock<Arc<ServedWeights>>,
    /// Labels that were published before, the oldest first.
    pub(super) older: tokio::sync::Mutex<Vec<String>>,
    /// Number of versions of an adapter that servers keep.
    pub(super) kept: usize,
    /// Number of sampled tokens.
    pub(super) sampled: Arc<AtomicU64>,
}

/// Completion of a fixed prompt by one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// Sampled ids.
    pub completion: Vec<u32>,
    /// Their log-probs, as the server gave them.
    pub logprobs: Vec<f32>,
    /// Temperature of the log-probs.
    pub temperature: f32,
}

impl RemotePolicy {
    /// Creates a policy that is the base of the servers, a model of a shape, until weights are published. Of an adapter, servers
    /// keep the current version and the one before; more with [`RemotePolicy::keeping`].
    pub fn new(policy: &Policy, servers: &Arc<Servers>, shape: HfConfig, adapter: bool) -> Self {
        Self {
            policy: policy.name().to_owned(),
            servers: Arc::clone(servers),
            tokenizer: Arc::clone(policy.tokenizer()),
            context: policy.context(),
            shape,
            adapter,
            weights: RwLock::default(),
            older: tokio::sync::Mutex::default(),
            kept: KEPT,
            sampled: Arc::default(),
        }
    }

    /// Returns the policy, of whose adapter servers keep `more` versions in addition.
    #[must_use]
    pub fn keeping(self, more: usize) -> Self {
        Self { kept: KEPT + more, ..self }
    }

    /// Returns the servers.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    fn weights(&self) -> Arc<ServedWeights> {
        Arc::clone(&self.weights.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the weights in a directory those that later requests are sampled with, and gives them to all servers that can be
    /// reached. An empty label is the base as the servers started with it.
    ///
    /// # Errors
    ///
    /// If no server could be given the weights; each with its reason.
    pub async fn publish(&self, label: &str, dir: &str, version: u64) -> Result<(), String> {
        let weights = ServedWeights {
            label: label.to_owned(),
            adapter: self.adapter && !label.is_empty(),
            dir: dir.to_owned(),
            version,
        };
        let weights = Arc::new(weights);
        let before = std::mem::replace(
            &mut *self.weights.write().unwrap_or_else(PoisonError::into_inner),
            Arc::clone(&weights),
        );
        self.servers.forgive();
        if !self.servers.leads {
            return Ok(());
        }
        let given = self.servers.servers.iter().map(|server| {
            let weights = Arc::clone(&weights);
            async move {
                let done = self.servers.provide(server, &weights, self.servers.retries).await;
                done.map_err(|problem| shorten_message(&format!("{}: {problem}", server.url)))
            }
        });
        let given = join_all(given).await;
        if given.iter().all(Result::is_err) {
            let reasons: Vec<String> = given.into_iter().filter_map(Result::err).collect();
            return Err(reasons.join("; "));
        }
        if before.adapter && before.label != weights.label {
            let mut older = self.older.lock().await;
            older.push(before.label.clone());
            self.servers.retire(&mut older, self.kept).await;
        }
        Ok(())
    }

    /// Returns completions of a fixed prompt at a temperature by each server, by its URL, or the reason why there are none.
    pub async fn probe(&self, temperature: f32) -> Vec<(String, Result<Vec<Probe>, String>)> {
        let sampling = Sampling { temperature, max_tokens: PROBE_TOKENS, ..Sampling::default() };
        let prompt = self.tokenizer.encode_plain(PROBE).unwrap_or_default();
        let prompt = if prompt.is_empty() { vec![0] } else { prompt };
        let room = self.context.saturating_sub(PROBE_TOKENS).max(1);
        let prompt = &prompt[..prompt.len().min(room)];
        let weights = self.weights();
        let asked = &self.request_for(prompt, &sampling, PROBE_TOKENS, &weights);
        let probed = self.servers.servers.iter().map(|server| async move {
            (server.url.clone(), self.probe_server(server, asked).await)
        });
        join_all(probed).await
    }

    /// Returns a server's completions with the seeds of a probe.
    async fn probe_server(&self, server: &Server, asked: &Asked<'_>) -> Result<Vec<Probe>, String> {
        let mut probes = Vec::new();
        for seed in SEEDS {
            let done = self.attempt(server, &Asked { seed, ..*asked }).await;
            let Completion { ids, logprobs, .. } = done.map_err(|problem| problem.to_string())?;
            let (prompt, temperature) = (asked.prompt.to_vec(), asked.sampling.temperature);
            probes.push(Probe { prompt, completion: ids, logprobs, temperature });
        }
        Ok(probes)
    }

    fn request_for<'r>(
        &'r self,
        prompt: &'r [u32],
        sampling: &'r Sampling,
        max_tokens: usize,
        weights: &'r ServedWeights,
    ) -> Asked<'r> {
        let (stop_ids, base) = (self.tokenizer.stop_ids(), self.servers.base.as_str());
        let routes = self.servers.router_replay;
        Asked { prompt, sampling, max_tokens, seed: 0, stop_ids, weights, base, routes }
    }

    /// Makes an attempt at a server, counts it, and remembers if the server failed.
    async fn attempt(
        &self,
        server: &Server,
        asked: &Asked<'_>,
    ) -> Result<Completion, AnswerProblem> {
        let done = {
            let _running = CountedRequest::new(&server.running);
            self.servers.attempt(server, asked).await
        };
        let done = done.and_then(|answer| answer.completion(asked, &self.tokenizer, &self.shape));
        let failed = matches!(done, Err(AnswerProblem::Transient(..) | AnswerProblem::Missing(_)));
        server.failed.store(failed, Ordering::Relaxed);
        match &done {
            Ok(completion) => {
                let tokens = completion.ids.len() as u64;
                self.sampled.fetch_add(tokens, Ordering::Relaxed);
                self.servers.count(|usage| {
                    usage.requests += 1;
                    usage.tokens += tokens;
                });
            }
            Err(problem) => {
                self.servers.count(|usage| usage.failures += 1);
                if matches!(problem, AnswerProblem::Missing(_)) {
                    self.servers.forget(server, asked.weights).await;
                }
            }
        }
        done
    }

    async fn complete(&self, request: &Request) -> Result<Completion, RuntimeError> {
        let Request { prompt, sampling, seed, .. } = request;
        let room = self.context.saturating_sub(prompt.len());
        if room == 0 {
            let (prompt, context) = (prompt.len(), self.context);
            return Err(RuntimeError::Overflow { prompt, context });
        }
        let weights = self.weights();
        let stop_ids = [self.tokenizer.stop_ids(), &sampling.stop_ids].concat();
        let max_tokens = sampling.max_tokens.min(room);
        let asked = Asked {
            seed: *seed,
            stop_ids: &stop_ids,
            ..self.request_for(prompt, sampling, max_tokens, &weights)
        };
        self.anywhere(&asked).await.map_err(|problem| RuntimeError::Generator {
            policy: self.policy.clone(),
            problem: format!("rollout servers `{}`: {problem}", self.servers.name()),
        })
    }

    /// Asks one server after the other, until one answers or the attempts are used up. An answer that is not what was asked
    /// for ends the request at once.
    async fn anywhere(&self, asked: &Asked<'_>) -> Result<Completion, String> {
        let mut pauses = retry::pauses(self.servers.retries);
        let mut failures = 0;
        // Each server but the first is tried without a pause.
        let mut others = self.servers.len().saturating_sub(1);
        loop {
            let Some(server) = self.servers.choose() else {
                return Err("there is none".to_owned());
            };
            let done = self.attempt(server, asked).await;
            let problem = match done {
                Ok(completion) => return Ok(completion),
                Err(problem) => problem,
            };
            failures += 1;
            let least = match &problem {
                AnswerProblem::Wrong(text) => return Err(format!("{}: {text}", server.url)),
                AnswerProblem::Transient(_, least) => *least,
                AnswerProblem::Missing(_) => Duration::ZERO,
            };
            if others > 0 {
                others -= 1;
                continue;
            }
            let Some(pause) = pauses.next() else {
                let plural = if failures == 1 { "" } else { "s" };
                let problem = shorten_message(&problem.to_string());
                return Err(format!("{}: {problem} ({failures} attempt{plural})", server.url));
            };
            tokio::time::sleep(pause.max(least)).await;
        }
    }
}

impl Generator for RemotePolicy {
    fn generate(&self, request: Request) -> Generating<'_> {
        Box::pin(async move { self.complete(&request).await })
    }

    fn sampled(&self) -> u64 {
        self.sampled.load(Ordering::Relaxed)
    }

    fn pinned(&self) -> Option<Arc<dyn Generator>> {
        self.adapter.then(|| {
            let pinned = Self {
                policy: self.policy.clone(),
                servers: Arc::clone(&self.servers),
                tokenizer: Arc::clone(&self.tokenizer),
                shape: self.shape.clone(),
                weights: RwLock::new(self.weights()),
                older: tokio::sync::Mutex::default(),
                sampled: Arc::clone(&self.sampled),
                ..*self
            };
            Arc::new(pinned) as Arc<dyn Generator>
        })
    }
}
