//! Inference servers of a run: they are given the weights of each version, and their log-probs are compared with the
//! trainer's before the first episode.
//!
//! Weights are published before the first generation after an update. The comparison has two parts. Servers first get
//! weights that differ from the policy's in every number: a part that a server never replaces would otherwise stay
//! unseen, because servers start with the policy's weights. Then they get the policy's. All ranks compute the log-probs
//! of the trainer; rank 0 alone talks to the servers.

mod compare;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::files::{HfConfig, ModelError, ModelFiles, ModelSource};
use crate::metrics::Metrics;
use crate::net::Model;
use crate::plan::Plan;
use crate::rollout::{RemotePolicy, RolloutError, ServerUsage};
use crate::runtime::{Policy, Row, score};
use crate::train::error::TrainError;
use crate::train::progress::Progress;
use crate::train::ranks::RankPeers;
use compare::{LogprobDifference, Perturbed, SentReply, differences, problems};

/// Number of directories of weights of a policy that are kept, without those of batches that are played ahead.
const KEPT: u64 = 2;
/// Temperature of probes. Log-probs before and after the temperature differ clearly.
const TEMPERATURE: f32 = 0.6;

/// Policies that servers sample for.
pub(crate) struct PolicyServers {
    policies: Vec<Remote>,
    peers: RankPeers,
    progress: Arc<dyn Progress>,
}

/// A policy that servers sample for.
struct Remote {
    policy: Policy,
    remote: Arc<RemotePolicy>,
    /// Directory of weights; `None` for the base as the servers started with it.
    weights_dir: Option<PathBuf>,
    /// Base of an adapter; `None` if all weights are published.
    base: Option<ModelSource>,
    /// Number of directories of weights that are kept.
    kept: u64,
    max_mismatch: f64,
    /// True if its log-probs are used without a correction.
    uncorrected: bool,
    state: Mutex<RemoteState>,
}

/// Weights that a policy's servers were given.
#[derive(Debug, Clone, Default)]
struct RemoteState {
    /// Name of the run in labels and directories, equal on all ranks.
    run: String,
    /// Number of publications.
    publications: u64,
    /// Number of updates of the policy at the last publication.
    version: Option<u64>,
    /// True after the comparison with the trainer.
    qualified: bool,
}

impl PolicyServers {
    /// Returns the servers of a plan, and its policies, those of which some sample there.
    pub(crate) fn start(
        plan: &Plan,
        policies: &[Policy],
        (progress, peers): (&Arc<dyn Progress>, &RankPeers),
    ) -> Result<(Self, Vec<Policy>), TrainError> {
        let mut tables = std::collections::BTreeMap::new();
        let (mut remotes, mut all) = (Vec::new(), Vec::new());
        let staleness = plan.config.rollout.staleness as usize;
        for (at, policy) in policies.iter().enumerate() {
            let Some((name, config)) = plan.rollout_servers(at) else {
                all.push(policy.clone());
                continue;
            };
            let servers = match tables.get(name) {
                Some(servers) => Arc::clone(servers),
                None => {
                    let made = crate::rollout::Servers::new(name, config, peers.leads());
                    Arc::new(made.map_err(|problem| servers_failure(name, problem))?)
                }
            };
            tables.insert(name, Arc::clone(&servers));
            let (its, worker) = (&plan.policies[at], &plan.workers[plan.policies[at].worker]);
            let shape = HfConfig::load(&ModelFiles::new(&worker.source));
            let shape = shape.map_err(|error| servers_failure(name, error.to_string()))?;
            let adapter = its.adapter.is_some();
            let remote = RemotePolicy::new(policy, &servers, shape, adapter).keeping(staleness);
            let remote = Arc::new(remote);
            all.push(policy.with_generator(Arc::clone(&remote) as _));
            let mut seats = plan.seats.iter().filter(|seat| seat.policy == at && seat.trained);
            let dir = config.weights_dir.as_ref().map(|dir| plan.base.join(dir));
            remotes.push(Remote {
                policy: policy.clone(),
                remote,
                weights_dir: dir.filter(|_| its.trained || adapter),
                base: adapter.then(|| worker.source.clone()),
                kept: KEPT + staleness as u64,
                max_mismatch: config.max_mismatch,
                uncorrected: seats.any(|seat| seat.loss.correction.is_empty()),
                state: Mutex::default(),
            });
        }
        let (peers, progress) = (peers.clone(), Arc::clone(progress));
        Ok((Self { policies: remotes, peers, progress }, all))
    }

    /// Returns true if servers lose weights that they sample with when they get others: full weights.
    pub(crate) fn hold_one_version(&self) -> bool {
        self.policies.iter().any(|policy| policy.base.is_none() && policy.weights_dir.is_some())
    }

    /// Gives the servers the current weights of every policy, if they have others. All ranks call it.
    pub(crate) async fn sync(&self) -> Result<(), TrainError> {
        for policy in &self.policies {
            policy.sync(&self.peers, &*self.progress).await?;
        }
        Ok(())
    }

    /// Takes weights that were loaded from a checkpoint for new ones.
    pub(crate) fn forget(&self) {
        self.policies.iter().for_each(|policy| policy.state().version = None);
    }

    /// Returns the requests to servers since the last call. They depend on the times of requests.
    pub(crate) fn take_usage(&self) -> Metrics {
        let mut metrics = Metrics::default();
        for policy in &self.policies {
            let servers = policy.remote.servers();
            let ServerUsage { requests, failures, tokens } = servers.take_usage();
            let values = [("requests", requests), ("failures", failures), ("tokens", tokens)];
            for (quantity, value) in values {
                let name = format!("rollout_server/{}/{quantity}", servers.name());
                let before = metrics.get(&name).unwrap_or(0.0);
                metrics.set(name, before + value as f64);
            }
        }
        metrics
    }
}

impl Drop for PolicyServers {
    /// Removes the weights that were written for the servers. Those of a killed run stay.
    fn drop(&mut self) {
        for policy in self.policies.iter().filter(|_| self.peers.leads()) {
            let run = policy.state().run.clone();
            if let Some(dir) = policy.weights_dir.as_ref().filter(|_| !run.is_empty()) {
                drop(fs::remove_dir_all(dir.join(run)));
            }
        }
    }
}

impl Remote {
    fn state(&self) -> MutexGuard<'_, RemoteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server_failure(&self, problem: String) -> TrainError {
        servers_failure(self.remote.servers().name(), problem)
    }

    fn dir_failure(&self, dir: &Path, error: &io::Error) -> TrainError {
        self.server_failure(format!("`weights_dir`: {}: {error}", dir.display()))
    }

    async fn sync(&self, peers: &RankPeers, progress: &dyn Progress) -> Result<(), TrainError> {
        let (version, before) = (self.policy.version().await?, self.state().clone());
        if before.version == Some(version) {
            return Ok(());
        }
        if before.run.is_empty() {
            let name = peers.leads().then(name_of_run);
            self.state().run = peers.broadcast(name).await?;
        }
        let perturbed = if before.qualified || self.weights_dir.is_none() {
            Vec::new()
        } else {
            let dir = self.publish(WrittenWeights::Perturbed, version, peers).await?;
            self.compare_perturbed(&dir, peers).await?
        };
        self.publish(WrittenWeights::Current, version, peers).await?;
        self.state().version = Some(version);
        if !before.qualified {
            let sent = self.probe(TEMPERATURE, peers).await?;
            let found = differences(&sent, &self.score(&sent).await?);
            self.qualify(&found, &perturbed, progress)?;
            self.state().qualified = true;
        }
        Ok(())
    }

    /// Writes weights, and gives them to the servers. Rank 0 does both, and returns their directory.
    async fn publish(
        &self,
        written: WrittenWeights,
        version: u64,
        peers: &RankPeers,
    ) -> Result<PathBuf, TrainError> {
        let Some(root) = &self.weights_dir else {
            let done = self.remote.publish("", "", version).await;
            return done.map(|()| PathBuf::new()).map_err(|problem| self.server_failure(problem));
        };
        let (run, number) = {
            let mut state = self.state();
            state.publications += 1;
            (state.run.clone(), state.publications)
        };
        let name = self.policy.name();
        let label = format!("{name}-{run}-{number}");
        let dir = root.join(&run).join(format!("{name}-{number}"));
        let mut text = String::new();
        if peers.leads() {
            let absolute = std::path::absolute(&dir);
            let dir = absolute.map_err(|error| self.dir_failure(&dir, &error))?;
            // Servers never see a directory that is incomplete.
            let partial = dir.with_file_name(format!(".tmp-{name}-{number}"));
            let made = fs::create_dir_all(&partial);
            made.map_err(|error| self.dir_failure(&partial, &error))?;
            match written {
                WrittenWeights::Current => self.policy.publish(&partial).await?,
                WrittenWeights::Perturbed => self.policy.publish_perturbed(&partial).await?,
            }
            fs::rename(&partial, &dir).map_err(|error| self.dir_failure(&dir, &error))?;
            text = dir.display().to_string();
        }
        let done = self.remote.publish(&label, &text, version).await;
        done.map_err(|problem| self.server_failure(problem))?;
        if let Some(old) = number.checked_sub(self.kept).filter(|_| peers.leads()) {
            drop(fs::remove_dir_all(root.join(&run).join(format!("{name}-{old}"))));
        }
        // Other ranks sample after the servers have the weights.
        peers.broadcast(peers.leads().then_some(number)).await?;
        Ok(text.into())
    }

    /// Returns completions of the servers on all ranks. Rank 0 asks for them.
    async fn probe(
        &self,
        temperature: f32,
        peers: &RankPeers,
    ) -> Result<Vec<SentReply>, TrainError> {
        let mut own = None;
        if peers.leads() {
            let (mut sent, mut problems) = (Vec::new(), Vec::new());
            for (url, probes) in self.remote.probe(temperature).await {
                match probes {
                    Ok(probes) => {
                        sent.extend(probes.into_iter().map(|probe| SentReply::new(&url, probe)));
                    }
                    Err(problem) => problems.push(format!("{url}: {problem}")),
                }
            }
            if !problems.is_empty() {
                return Err(self.server_failure(problems.join("; ")));
            }
            own = Some(sent);
        }
        peers.broadcast(own).await
    }

    /// Returns the trainer's log-probs of completions.
    async fn score(&self, sent: &[SentReply]) -> Result<Vec<Vec<f32>>, TrainError> {
        let rows = sent.iter().map(|sent| Row {
            prompt: sent.prompt.clone(),
            completion: sent.completion.clone(),
            temperature: sent.temperature,
            ..Row::default()
        });
        Ok(self.policy.logprobs(rows.collect()).await?)
    }

    /// Compares log-probs of the servers, which have the perturbed weights in a directory, with those of these weights. Rank 0
    /// loads them.
    async fn compare_perturbed(
        &self,
        dir: &Path,
        peers: &RankPeers,
    ) -> Result<Vec<Perturbed>, TrainError> {
        let sent = self.probe(1.0, peers).await?;
        let own = peers.leads().then(|| self.score_in(dir, &sent)).transpose();
        let own = own.map_err(|error| self.server_failure(error.to_string()))?;
        let scored: Vec<Vec<f32>> = peers.broadcast(own).await?;
        let found = differences(&sent, &scored);
        let trainer = self.score(&sent).await?;
        let sent = sent.into_iter().zip(trainer);
        let sent: Vec<_> = sent.map(|(sent, logprobs)| SentReply { logprobs, ..sent }).collect();
        let changes = differences(&sent, &scored).into_iter().map(|change| change.mean);
        let found = found.into_iter().zip(changes);
        Ok(found.map(|(difference, change)| Perturbed { difference, change }).collect())
    }

    /// Returns log-probs of completions at temperature 1 under the weights in a directory.
    fn score_in(&self, dir: &Path, sent: &[SentReply]) -> Result<Vec<Vec<f32>>, ModelError> {
        let model = match &self.base {
            Some(base) => Model::load(&ModelFiles::new(base))?.load_adapter(dir)?,
            None => Model::load(&ModelFiles::new(&ModelSource::Directory(dir.to_owned())))?,
        };
        let rows = sent.iter().map(|sent| [&sent.prompt[..], &sent.completion].concat());
        let scores = score(&model, &rows.collect::<Vec<_>>())?;
        let starts = sent.iter().map(|sent| sent.prompt.len().saturating_sub(1));
        let scores = scores.iter().zip(starts);
        Ok(scores.map(|(scores, start)| scores.logprobs[start..].to_vec()).collect())
    }

    /// Fails if a server samples from other weights than the trainer scores with, or does not use those that it was given.
    fn qualify(
        &self,
        found: &[LogprobDifference],
        perturbed: &[Perturbed],
        progress: &dyn Progress,
    ) -> Result<(), TrainError> {
        let problems = problems(found, perturbed, self.max_mismatch);
        if !problems.is_empty() {
            return Err(self.server_failure(problems.join("; ")));
        }
        let (servers, policy) = (self.remote.servers(), self.policy.name());
        let mean = found.iter().map(|its| its.mean).fold(0.0, f64::max);
        let most = found.iter().map(|its| its.most).fold(0.0, f64::max);
        progress.note(&format!(
            "rollout servers `{}` ({}, {} of them) sample for policy `{policy}`; their log-probs differ from the trainer's by \
             {mean:.2e} on average, {most:.2e} at most",
            servers.name(),
            servers.kind().name(),
            servers.len()
        ));
        if most > 0.0 && self.uncorrected {
            progress.warn(&format!(
                "log-probs of the rollout servers `{}` are not those of the trainer: \
                 `algorithm.loss.correction = {{ kind = \"truncate\" }}` corrects for it",
                servers.name()
            ));
        }
        Ok(())
    }
}

fn servers_failure(name: &str, problem: String) -> TrainError {
    RolloutError::Servers { name: name.to_owned(), problem }.into()
}

/// Weights that are written for servers.
#[derive(Debug, Clone, Copy)]
enum WrittenWeights {
    Current,
    Perturbed,
}

/// Returns a name that no other run has.
fn name_of_run() -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    format!("{:012x}", (now ^ (u64::from(std::process::id()) << 32)) & 0xffff_ffff_ffff)
}
