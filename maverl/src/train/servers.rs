//! Inference servers of a run: they are given the weights of each version, and their log-probs are compared with the
//! trainer's before the first episode.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::config::CorrectionPlan;
use crate::metrics::Metrics;
use crate::model::{HfConfig, ModelFiles};
use crate::plan::Plan;
use crate::rollout::{Probe, RemotePolicy, RolloutError, ServerUsage};
use crate::runtime::{Policy, Row};
use crate::train::error::TrainError;
use crate::train::progress::Progress;
use crate::train::ranks::Peers;

/// Number of directories of weights of a policy that are kept.
const KEPT: u64 = 2;
/// Least mean change of log-probs under perturbed weights, beside a multiple of the difference without.
const MOVED: f64 = 0.02;
/// Multiple of the largest difference without perturbed weights that they must exceed.
const CLEARLY: f64 = 2.0;

/// Policies that servers sample for.
pub(super) struct Servers {
    policies: Vec<Remote>,
    peers: Peers,
    progress: Arc<dyn Progress>,
}

/// A policy that servers sample for.
struct Remote {
    policy: Policy,
    remote: Arc<RemotePolicy>,
    /// Directory of weights; `None` for the base as the servers started with it.
    weights_dir: Option<PathBuf>,
    max_mismatch: f64,
    /// True if its log-probs are used without a correction.
    uncorrected: bool,
    state: Mutex<State>,
}

/// Weights that a policy's servers were given.
#[derive(Debug, Clone, Default)]
struct State {
    /// Name of the run in labels and directories, equal on all ranks.
    run: String,
    /// Number of publications.
    publications: u64,
    /// Number of updates of the policy at the last publication.
    version: Option<u64>,
    /// True after the comparison with the trainer.
    qualified: bool,
}

/// Completions of a fixed prompt by a server, on their way to other ranks.
#[derive(Serialize, Deserialize)]
struct Sent {
    url: String,
    prompt: Vec<u32>,
    completion: Vec<u32>,
    logprobs: Vec<f32>,
    temperature: f32,
}

/// Difference between the log-probs of a server and of the trainer.
#[derive(Debug, Clone, PartialEq)]
struct Difference {
    url: String,
    mean: f64,
    most: f64,
}

impl Servers {
    /// Returns the servers of a plan, and its policies, those of which some sample there.
    pub(super) fn start(
        plan: &Plan,
        policies: &[Policy],
        (progress, peers): (&Arc<dyn Progress>, &Peers),
    ) -> Result<(Self, Vec<Policy>), TrainError> {
        let mut tables = std::collections::BTreeMap::new();
        let (mut remotes, mut all) = (Vec::new(), Vec::new());
        for (at, policy) in policies.iter().enumerate() {
            let Some((name, config)) = plan.rollout_servers(at) else {
                all.push(policy.clone());
                continue;
            };
            let failed = |problem| RolloutError::Servers { name: name.to_owned(), problem };
            let servers = match tables.get(name) {
                Some(servers) => Arc::clone(servers),
                None => {
                    let made = crate::rollout::Servers::new(name, config, peers.leads());
                    Arc::new(made.map_err(failed)?)
                }
            };
            tables.insert(name, Arc::clone(&servers));
            let (its, worker) = (&plan.policies[at], &plan.workers[plan.policies[at].worker]);
            let shape = HfConfig::load(&ModelFiles::new(&worker.source));
            let rows = shape.map_err(|error| failed(error.to_string()))?.vocab_size;
            let adapter = its.adapter.is_some();
            let remote = Arc::new(RemotePolicy::new(policy, &servers, rows, adapter));
            all.push(policy.with_generator(Arc::clone(&remote) as _));
            let mut seats = plan.seats.iter().filter(|seat| seat.policy == at && seat.trained);
            let dir = config.weights_dir.as_ref().map(|dir| plan.base.join(dir));
            remotes.push(Remote {
                policy: policy.clone(),
                remote,
                weights_dir: dir.filter(|_| its.trained || adapter),
                max_mismatch: config.max_mismatch,
                uncorrected: seats.any(|seat| seat.loss.correction == CorrectionPlan::None),
                state: Mutex::default(),
            });
        }
        let (peers, progress) = (peers.clone(), Arc::clone(progress));
        Ok((Self { policies: remotes, peers, progress }, all))
    }

    /// Gives the servers the current weights of every policy, if they have others. All ranks call it.
    pub(super) async fn sync(&self) -> Result<(), TrainError> {
        for policy in &self.policies {
            policy.sync(&self.peers, &*self.progress).await?;
        }
        Ok(())
    }

    /// Takes weights that were loaded from a checkpoint for new ones.
    pub(super) fn forget(&self) {
        self.policies.iter().for_each(|policy| policy.state().version = None);
    }

    /// Returns the requests to servers since the last call. They depend on the times of requests.
    pub(super) fn take_usage(&self) -> Metrics {
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

impl Drop for Servers {
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
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, problem: String) -> TrainError {
        let name = self.remote.servers().name().to_owned();
        RolloutError::Servers { name, problem }.into()
    }

    async fn sync(&self, peers: &Peers, progress: &dyn Progress) -> Result<(), TrainError> {
        let (version, before) = (self.policy.version().await?, self.state().clone());
        if before.version == Some(version) {
            return Ok(());
        }
        if before.run.is_empty() {
            let name = peers.leads().then(name_of_run);
            self.state().run = peers.broadcast(name).await?;
        }
        let moved = match before.qualified || self.weights_dir.is_none() {
            true => None,
            false => {
                self.publish(Written::Perturbed, version, peers).await?;
                Some(self.compare(peers).await?)
            }
        };
        self.publish(Written::Current, version, peers).await?;
        self.state().version = Some(version);
        if !before.qualified {
            let found = self.compare(peers).await?;
            self.qualify(&found, moved.as_deref(), progress)?;
            self.state().qualified = true;
        }
        Ok(())
    }

    /// Writes weights, and gives them to the servers. Rank 0 does both.
    async fn publish(
        &self,
        written: Written,
        version: u64,
        peers: &Peers,
    ) -> Result<(), TrainError> {
        let Some(root) = &self.weights_dir else {
            return self.remote.publish("", "", version).await.map_err(|e| self.failed(e));
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
            let failed = |error: std::io::Error, dir: &Path| {
                self.failed(format!("`weights_dir`: {}: {error}", dir.display()))
            };
            let dir = std::path::absolute(&dir).map_err(|error| failed(error, &dir))?;
            // Servers never see a directory that is incomplete.
            let partial = dir.with_file_name(format!(".tmp-{name}-{number}"));
            fs::create_dir_all(&partial).map_err(|error| failed(error, &partial))?;
            match written {
                Written::Current => self.policy.publish(&partial).await?,
                Written::Perturbed => self.policy.publish_perturbed(&partial).await?,
            }
            fs::rename(&partial, &dir).map_err(|error| failed(error, &dir))?;
            text = dir.display().to_string();
        }
        let done = self.remote.publish(&label, &text, version).await;
        done.map_err(|problem| self.failed(problem))?;
        if let Some(old) = number.checked_sub(KEPT).filter(|_| peers.leads()) {
            drop(fs::remove_dir_all(root.join(&run).join(format!("{name}-{old}"))));
        }
        // Other ranks sample after the servers have the weights.
        peers.broadcast(peers.leads().then_some(number)).await.map(drop)
    }

    /// Compares log-probs of the servers with the trainer's. Rank 0 asks the servers, and all ranks score.
    async fn compare(&self, peers: &Peers) -> Result<Vec<Difference>, TrainError> {
        let mut own = None;
        if peers.leads() {
            let (mut sent, mut problems) = (Vec::new(), Vec::new());
            for (url, probes) in self.remote.probe().await {
                let of = |probe: Probe| {
                    let Probe { prompt, completion, logprobs, temperature } = probe;
                    Sent { url: url.clone(), prompt, completion, logprobs, temperature }
                };
                match probes {
                    Ok(probes) => sent.extend(probes.into_iter().map(of)),
                    Err(problem) => problems.push(format!("{url}: {problem}")),
                }
            }
            if !problems.is_empty() {
                return Err(self.failed(problems.join("; ")));
            }
            own = Some(sent);
        }
        let sent: Vec<Sent> = peers.broadcast(own).await?;
        let row = |sent: &Sent| Row {
            prompt: sent.prompt.clone(),
            completion: sent.completion.clone(),
            temperature: sent.temperature,
            ..Row::default()
        };
        let scored = self.policy.logprobs(sent.iter().map(row).collect()).await?;
        let mut found: Vec<(Difference, usize)> = Vec::new();
        for (sent, scored) in sent.iter().zip(&scored) {
            if found.last().is_none_or(|(difference, _)| difference.url != sent.url) {
                found.push((Difference { url: sent.url.clone(), mean: 0.0, most: 0.0 }, 0));
            }
            let Some((difference, tokens)) = found.last_mut() else { continue };
            for (theirs, ours) in sent.logprobs.iter().zip(scored) {
                let apart = f64::from((theirs - ours).abs());
                difference.mean += apart;
                difference.most = difference.most.max(apart);
                *tokens += 1;
            }
        }
        let mean = |(mut difference, tokens): (Difference, usize)| {
            difference.mean /= tokens.max(1) as f64;
            difference
        };
        Ok(found.into_iter().map(mean).collect())
    }

    /// Fails if a server samples from other weights than the trainer scores with, or does not use those that it was given.
    /// `moved` are the differences under perturbed weights.
    fn qualify(
        &self,
        found: &[Difference],
        moved: Option<&[Difference]>,
        progress: &dyn Progress,
    ) -> Result<(), TrainError> {
        let problems = problems(found, moved, self.max_mismatch);
        if !problems.is_empty() {
            return Err(self.failed(problems.join("; ")));
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

/// Weights that are written for servers.
#[derive(Debug, Clone, Copy)]
enum Written {
    Current,
    Perturbed,
}

/// Returns the reasons why servers cannot sample for the trainer.
fn problems(found: &[Difference], moved: Option<&[Difference]>, allowed: f64) -> Vec<String> {
    let mut problems = Vec::new();
    for Difference { url, mean, .. } in found {
        // A mean that is no number is none that agrees.
        let agrees = *mean <= allowed;
        if !agrees {
            problems.push(format!(
                "{url}: its log-probs differ from the trainer's by {mean:.3} on average, and `max_mismatch` is {allowed}; it has \
                 another model, or gives log-probs before the temperature (vLLM: `--logprobs-mode processed_logprobs`)"
            ));
        }
    }
    for Difference { url, mean: moved, .. } in moved.into_iter().flatten() {
        let at_rest = found.iter().find(|its| its.url == *url).map_or(0.0, |its| its.mean);
        let uses = *moved > CLEARLY * at_rest + MOVED;
        if !uses {
            problems.push(format!(
                "{url}: under clearly different weights its log-probs changed by {moved:.3} on average: it does not use the \
                 weights that it is given"
            ));
        }
    }
    problems
}

/// Returns a name that no other run has.
fn name_of_run() -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    format!("{:012x}", (now ^ (u64::from(std::process::id()) << 32)) & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(mean: f64) -> Vec<Difference> {
        vec![Difference { url: "http://a".to_owned(), mean, most: mean }]
    }

    #[test]
    fn servers_must_agree_with_the_trainer_and_use_the_weights_they_are_given() {
        assert!(problems(&apart(0.01), Some(&apart(0.5)), 0.1).is_empty());
        assert!(problems(&apart(0.01), None, 0.1).is_empty());
        let wrong = problems(&apart(0.7), Some(&apart(2.0)), 0.1);
        assert!(wrong[0].starts_with("http://a: its log-probs differ from the trainer's by 0.700"));
        assert_eq!(wrong.len(), 1);
        let stale = problems(&apart(0.03), Some(&apart(0.03)), 0.1);
        assert!(stale[0].ends_with("it does not use the weights that it is given"), "{stale:?}");
        assert_eq!(problems(&apart(f64::NAN), Some(&apart(f64::NAN)), 0.1).len(), 2);
    }
}
