//! Training of a plan's team: players, learner and data, put together.

pub(super) mod dataset;
pub(super) mod servers;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use crate::IntoMap;
use crate::TryIntoMap;
use crate::algo::is_greedy;
use crate::checkpoint::{Checkpoint, Draft};
use crate::config::{Preset, TaskConfig};
use crate::credit::Estimators;
use crate::data;
use crate::eval::EvalSpec;
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::rollout::Rollout;
use crate::run_dir::disk::hash_bytes;
use crate::run_dir::{HELD_OUT, Origin, Provenance, RolloutWriter, RunDirError};
use crate::runtime::{DeviceChoice, Policy, Runtime, WorkerDevice};
use crate::train::error::TrainError;
use crate::train::learner::Learner;
use crate::train::learner::batches::StepPlan;
use crate::train::learner::estimator;
use crate::train::ranks::RankPeers;
use crate::train::record::measure;
use crate::train::run::trainable::{Stepped, Trainable};
use crate::train::step::players::Players;
use crate::train::step::sink::Observers;
use crate::train::step::{learn, step};
use crate::train::supervised;
use crate::train::supervised::verifier::verify;
use crate::train::training::dataset::{Dataset, Needs, files, hash, held_out};
use crate::train::training::servers::PolicyServers;
use crate::trajectory::{Episode, Seat};

/// Number of tasks that the environment reports on before the run.
const REPORTED: usize = 1000;

/// Training of a plan's team.
pub(super) struct Training<'p> {
    plan: &'p Plan,
    /// Plan with the policies of the two trained seats swapped, if steps swap them.
    swapped: Option<Plan>,
    players: Players,
    learner: Learner,
    dataset: Dataset,
    /// Device of the models, and that of everything else.
    device: String,
    /// Number of ranks.
    ranks: usize,
    /// Inference servers that sample for policies.
    servers: PolicyServers,
}

impl<'p> Training<'p> {
    /// Loads the data, then starts the environment and builds the team.
    pub(super) fn start(
        plan: &'p Plan,
        registry: &Registry,
        runtime: &Runtime,
        needs: Needs<'_>,
        (observers, peers): (Observers, &RankPeers),
    ) -> Result<Self, TrainError> {
        let dataset = Dataset::read(plan, needs, runtime.policies())?;
        let warn = |warning: &str| observers.progress.warn(warning);
        let held_out = held_out(plan, registry, needs, warn)?;
        let sampler = dataset.sampler(plan);
        let told = (&observers.progress, peers);
        let (servers, policies) = PolicyServers::start(plan, runtime.policies(), told)?;
        let policies = &policies;
        // Evaluations compute no advantages.
        let estimators = match needs {
            Needs::Split(_) => Estimators::default(),
            _ => estimator::open(plan, registry, runtime.resolved_device())?,
        };
        if let Some(device) = estimators.device() {
            let by = estimators.kernel().map(|file| format!(", by the kernel `{file}`"));
            let by = by.unwrap_or_default();
            observers.progress.note(&format!("advantages are computed on {device}{by}"));
        }
        Ok(Self {
            plan,
            swapped: (plan.algorithm.swap_every > 0).then(|| plan.with_swapped_policies()),
            players: Players::start(
                plan,
                registry,
                policies,
                sampler,
                held_out,
                (observers, peers.clone()),
            )?,
            learner: Learner::new(policies, peers.clone(), estimators),
            ranks: peers.size(),
            dataset,
            device: device(runtime),
            servers,
        })
    }

    /// Returns the origin of a run of this team.
    pub(super) async fn origin(&self, given: String) -> Result<Origin, TrainError> {
        let held_out = self.players.held_out().iter();
        let held_out = held_out.map(|(split, tasks)| (format!("{HELD_OUT}{split}"), hash(tasks)));
        let sources = self.sources()?;
        let trained = (self.plan.config.task.split.clone(), self.dataset.hash());
        let threads = match self.plan.config.runtime.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            threads => threads,
        };
        let provenance = Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data: std::iter::once(trained).chain(held_out).chain(sources).into_map(),
            files: files(self.plan)?,
            weights: self.learner.fingerprints().await?,
            device: self.device.clone(),
            threads,
            ranks: self.ranks,
        };
        let base = absolute(&self.plan.base)?;
        Ok(Origin { given, config: (*self.plan.config).clone(), base, provenance })
    }

    /// Returns the hash of each file that the orchestra depends on, by its name.
    fn sources(&self) -> Result<Vec<(String, String)>, TrainError> {
        let hashed = |name: String| {
            let path = self.plan.base.join(&name);
            let read = std::fs::read(&path);
            let bytes = read.map_err(|source| RunDirError::Io { action: "read", path, source })?;
            Ok((format!("source {name}"), hash_bytes(&bytes)))
        };
        self.players.sources().into_iter().map(hashed).collect()
    }

    /// Returns the tokenizer of each policy as JSON, by name.
    pub(super) fn tokenizers(&self) -> Result<BTreeMap<String, String>, TrainError> {
        let json = |policy: &Policy| {
            let name = policy.name().to_owned();
            let json = policy.tokenizer().to_json();
            let failed = |source| TrainError::Tokenizer { policy: name.clone(), source };
            Ok((name.clone(), json.map_err(failed)?))
        };
        self.learner.policies().iter().map(json).try_into_map()
    }

    /// Returns the hash of each policy's weights, by name.
    pub(super) async fn fingerprints(&self) -> Result<BTreeMap<String, String>, TrainError> {
        self.learner.fingerprints().await
    }

    /// Returns the environment's message about the data, whatever split is used.
    pub(super) fn report(&self) -> Result<Option<String>, TrainError> {
        if !matches!(self.dataset, Dataset::Tasks(_)) {
            return Ok(None);
        }
        let config =
            TaskConfig { limit: NonZeroUsize::new(REPORTED), ..self.plan.config.task.clone() };
        let tasks = data::load(&config, data::ALL, &self.plan.base)?;
        Ok(self.players.report(self.plan, &tasks)?)
    }

    /// Returns the name that the environment gives to the share of solved episodes.
    pub(super) fn measure(&self) -> String {
        self.players.measure()
    }

    /// Returns every seat that is called in training; empty for supervised training.
    pub(super) fn asked(&self) -> Vec<Seat> {
        match self.dataset {
            Dataset::Tasks(_) => self.plan.members(),
            _ => Vec::new(),
        }
    }

    /// Returns the rollout with which a training episode of step `step`, counted from 0, was run.
    pub(super) fn rollout_of(&self, step: u64, episode: &Episode) -> Rollout {
        let plan = plan_of(self.plan, self.swapped.as_ref(), step);
        match is_greedy(plan, episode) {
            true => self.players.at_temperature(plan, 0.0),
            false => self.players.rollout(plan),
        }
    }

    /// Trains on the stored episodes of a step, counted from 0, with the learning rates of its stored metrics.
    pub(super) async fn learn_again(
        &mut self,
        step: u64,
        episodes: &[Episode],
        rates: Option<&Metrics>,
    ) -> Result<(), TrainError> {
        let plan = plan_of(self.plan, self.swapped.as_ref(), step);
        let at = StepPlan { plan, step, rates };
        self.learner.begin(&at).await?;
        learn(&at, &mut self.learner, episodes).await.map(drop)
    }
}

impl Trainable for Training<'_> {
    async fn step(
        &mut self,
        step: u64,
        rollouts: &mut RolloutWriter,
    ) -> Result<Stepped, TrainError> {
        if self.plan.algorithm.preset.generates() {
            self.servers.sync().await?;
        }
        let Self { players, learner, .. } = self;
        let plan = plan_of(self.plan, self.swapped.as_ref(), step);
        let at = StepPlan { plan, step, rates: None };
        let mut stepped = match &self.dataset {
            Dataset::Tasks(tasks) => self::step(&at, players, learner, tasks, rollouts).await?,
            Dataset::Demonstrations(shown) if plan.algorithm.preset == Preset::Spin => {
                supervised::self_play(&at, players, learner, shown).await?
            }
            Dataset::Demonstrations(shown) => {
                supervised::imitate(&at, players, learner, shown).await?
            }
            Dataset::Preferences(pairs) => supervised::prefer(&at, players, learner, pairs).await?,
            Dataset::Labeled(data) => verify(&at, players, learner, data).await?,
        };
        let (metrics, warnings) = learner.state.live.step(plan, step, &stepped.episodes);
        stepped.metrics.extend(metrics);
        stepped.warnings.extend(warnings);
        // The plan already warns if all groups are of one.
        let expected = self.plan.config.task.group_size.get() == 1;
        let warning = measure::singletons(&stepped.metrics).filter(|_| !expected);
        stepped.warnings_once.extend(warning.map(|warning| ("singletons", warning)));
        stepped.timing.extend(self.servers.take_usage());
        Ok(stepped)
    }

    async fn evaluate(&self, spec: &EvalSpec) -> Result<Vec<Episode>, TrainError> {
        self.servers.sync().await?;
        self.players.evaluate(self.plan, spec).await
    }

    async fn save(&self, draft: &Draft) -> Result<(), TrainError> {
        self.learner.save(draft).await
    }

    async fn share(&self) -> Result<(), TrainError> {
        self.learner.share().await
    }

    async fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        self.servers.forget();
        self.learner.load(self.plan, checkpoint).await
    }
}

/// Returns the plan of step `step`, counted from 0.
fn plan_of<'p>(plan: &'p Plan, swapped: Option<&'p Plan>, step: u64) -> &'p Plan {
    let turn = step.checked_div(plan.algorithm.swap_every).unwrap_or(0);
    swapped.filter(|_| turn % 2 == 1).unwrap_or(plan)
}

/// Returns the device of the models, and after it each worker group that has another.
pub(super) fn devices(runtime: &Runtime) -> String {
    let other = |of: &&WorkerDevice| of.name != runtime.device();
    let own = runtime.worker_devices().filter(other);
    let own = own.map(|of| format!("; worker group `{}`: {}", of.worker, of.name));
    std::iter::once(runtime.device().to_owned()).chain(own).collect()
}

/// Returns the CPU with the vector instructions in use, as in `cpu x86_64 linux, avx2`, after the device of the models if
/// that is another; then each worker group that is on another device.
fn device(runtime: &Runtime) -> String {
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    let simd = maverl_kernels::simd::select()
        .map_or_else(|error| error.to_string(), |path| path.to_string());
    let cpu = format!("cpu {arch} {os}, {simd}");
    let other = |of: &&WorkerDevice| of.device != runtime.resolved_device();
    let own = runtime.worker_devices().filter(other).map(|of| match of.device {
        DeviceChoice::Cpu => format!("; worker group `{}`: cpu", of.worker),
        _ => format!("; worker group `{}`: {}", of.worker, of.name),
    });
    let shared = match runtime.device() {
        device if device.starts_with("cpu") => cpu,
        device => format!("{device}; {cpu}"),
    };
    std::iter::once(shared).chain(own).collect()
}

fn absolute(base: &Path) -> Result<PathBuf, RunDirError> {
    let base = if base.as_os_str().is_empty() { Path::new(".") } else { base };
    std::path::absolute(base).map_err(|source| RunDirError::Io {
        action: "find",
        path: base.to_owned(),
        source,
    })
}
