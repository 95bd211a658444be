//! Training of a plan's team: players, learner and data, put together, and what a run and each of its steps does with them.

mod again;
pub(super) mod dataset;
pub(super) mod exact;
mod origin;
pub(super) mod servers;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::IntoMap;
use crate::checkpoint::{Checkpoint, Draft};
use crate::config::{Preset, TaskConfig};
use crate::credit::Estimators;
use crate::data;
use crate::eval::EvalSpec;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::run_dir::{HELD_OUT, Origin, Provenance, RolloutWriter};
use crate::runtime::{DeviceChoice, Runtime};
use crate::train::ahead::{BatchesAhead, idle_share};
use crate::train::error::TrainError;
use crate::train::learner::Learner;
use crate::train::learner::batches::StepPlan;
use crate::train::learner::estimator;
use crate::train::options::Options;
use crate::train::progress::heartbeat::Heartbeat;
use crate::train::progress::{Progress, silent};
use crate::train::ranks::RankPeers;
use crate::train::ranks::follow::{Led, end, follow};
use crate::train::record::measure;
use crate::train::run::summary::Report;
use crate::train::run::trainable::{Stepped, Trainable, WriteRest};
use crate::train::run::{Opened, Run, RunSettings};
use crate::train::step::players::Players;
use crate::train::step::sink::Observers;
use crate::train::step::source::EpisodeSource;
use crate::train::step::step;
use crate::train::supervised;
use crate::train::supervised::verifier::verify;
use crate::train::training::dataset::{Dataset, Needs, files, hash, held_out};
use crate::train::training::origin::{
    absolute_base, origin_device, plan_numbers, runtime_devices, source_hashes, tokenizer_texts,
    used_threads,
};
use crate::train::training::servers::PolicyServers;
use crate::trajectory::{Episode, Seat};

/// Number of tasks that the environment reports on before the run.
const REPORTED: usize = 1000;

/// Trains the team of a plan, or resumes a run. With a launch, every rank calls this with the same plan. Rank 0 writes all
/// files, and all ranks return its report.
///
/// # Errors
///
/// See [`TrainError`]. Written files stay, and `RunLocation::Resume` continues from the last checkpoint.
pub async fn train(
    plan: &Plan,
    registry: &Registry,
    options: Options,
) -> Result<Report, TrainError> {
    let peers = RankPeers::join(&options, &plan.config.dist).await?;
    let _guard = peers.guard();
    let interrupt = options.interrupt.clone();
    let done = tokio::select! {
        biased;
        failed = peers.wait_for_failure() => Err(failed),
        never = peers.pass_on(&interrupt) => match never {},
        // Boxed: the state of a whole run is too large to be moved with its caller.
        report = Box::pin(train_on(plan, registry, options, &peers)) => report,
    };
    peers.end(done)
}

/// Trains on connected ranks.
async fn train_on(
    plan: &Plan,
    registry: &Registry,
    options: Options,
    peers: &RankPeers,
) -> Result<Report, TrainError> {
    let progress: Arc<dyn Progress> = if peers.leads() {
        Arc::new(Heartbeat::new(Arc::clone(&options.progress)))
    } else {
        silent()
    };
    if let Some(note) = estimator::compile(plan, registry)? {
        progress.note(&note);
    }
    let (workers, runtime_options) = peers.runtime(plan.training_specs(), plan.runtime_options());
    let runtime = Runtime::start_on(&workers, &runtime_options, peers.ranks())?;
    let devices = runtime_devices(&runtime);
    if plan.config.runtime.device != DeviceChoice::default() || devices != runtime.device() {
        progress.note(&format!("device: {devices}"));
    }
    if peers.size() > 1 {
        progress.note(&format!("ranks: {}", peers.size()));
    }
    runtime.notes().iter().for_each(|note| progress.warn(note));
    options.interrupt.tell(Arc::clone(&progress));
    let report = Box::pin(run_on(plan, registry, options, (&runtime, progress, peers))).await;
    // A worker group may still compute for a rank that is lost.
    if report.is_ok() || peers.size() == 1 {
        runtime.shutdown();
    }
    report
}

/// Trains with a runtime.
async fn run_on(
    plan: &Plan,
    registry: &Registry,
    options: Options,
    (runtime, progress, peers): (&Runtime, Arc<dyn Progress>, &RankPeers),
) -> Result<Report, TrainError> {
    let Options { place, given, missing, interrupt, sinks, .. } = options;
    let eval = plan.config.eval.used(plan.algorithm.preset);
    let sinks = if peers.leads() { sinks } else { Vec::new() };
    let observers = Observers { sinks, ..Observers::new(&progress) };
    let needs = Needs::Training(&eval);
    let training = Training::start(plan, registry, runtime, needs, (observers, peers))?;
    if let Some(report) = training.report()? {
        progress.note(&report);
    }
    let origin = training.origin(given).await?;
    peers.agree(&origin).await?;
    if !peers.leads() {
        return Box::pin(follow(training, peers)).await;
    }
    plan.checkpoint_line().iter().for_each(|line| progress.note(line));
    let settings = RunSettings {
        seed: plan.config.seed,
        steps: plan.config.steps,
        max_flat_steps: plan.algorithm.max_flat_steps,
        eval: eval.clone(),
        rewards: plan.config.rewards.keys().cloned().collect(),
        checkpoint: plan.config.checkpoint.clone(),
        record: plan.config.record.clone(),
        texts: plan.config.track.episodes,
        seats: training.asked_seats(),
        measure: training.measure(),
        missing,
        plan: plan_numbers(plan),
        tokenizers: tokenizer_texts(training.learner.policies())?,
    };
    let led = Led { work: training, peers: peers.clone() };
    let run = Run::open(&place, &origin, settings, led, Arc::clone(&progress), interrupt);
    let report = match Box::pin(run).await? {
        Opened::Ready(run) => Box::pin(run.run()).await?,
        Opened::Complete(report) => {
            progress.note("the run is complete; give more `steps` to go on with it");
            *report
        }
    };
    end(peers, &report).await?;
    Ok(report)
}

/// Training of a plan's team.
pub(super) struct Training<'p> {
    plan: &'p Plan,
    /// Plan with the policies of the two trained seats swapped, if steps swap them.
    swapped: Option<Plan>,
    players: Players,
    learner: Learner,
    dataset: Dataset,
    /// Batches that are played ahead, with `rollout.staleness`.
    ahead: Option<Mutex<BatchesAhead>>,
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
        let held_out = held_out(plan, registry, needs, |warning| observers.progress.warn(warning))?;
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
        let told = (observers, peers.clone());
        let players = Players::start(plan, registry, policies, sampler, held_out, told)?;
        Ok(Self {
            plan,
            swapped: (plan.algorithm.swap_every > 0).then(|| plan.with_swapped_policies()),
            players: match needs {
                Needs::Training(_) => players.with_teachers(plan)?,
                Needs::Split(_) | Needs::Nothing => players,
            },
            ahead: dataset.tasks().and_then(|tasks| BatchesAhead::new(plan, tasks)).map(Mutex::new),
            learner: Learner::new(policies, peers.clone(), estimators),
            ranks: peers.size(),
            dataset,
            device: origin_device(runtime),
            servers,
        })
    }

    /// Returns the origin of a run of this team.
    async fn origin(&self, given: String) -> Result<Origin, TrainError> {
        let held_out = self.players.held_out().iter();
        let held_out = held_out.map(|(split, tasks)| (format!("{HELD_OUT}{split}"), hash(tasks)));
        let sources = source_hashes(self.plan, self.players.sources())?;
        let trained = (self.plan.config.task.split.clone(), self.dataset.hash());
        let provenance = Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data: std::iter::once(trained).chain(held_out).chain(sources).into_map(),
            files: files(self.plan)?,
            weights: self.learner.fingerprints().await?,
            device: self.device.clone(),
            threads: used_threads(self.plan),
            ranks: self.ranks,
            exact: exact::is_exact(self.plan),
        };
        let base = absolute_base(&self.plan.base)?;
        Ok(Origin { given, config: (*self.plan.config).clone(), base, provenance })
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
    pub(super) fn asked_seats(&self) -> Vec<Seat> {
        match self.dataset {
            Dataset::Tasks(_) => self.plan.members(),
            _ => Vec::new(),
        }
    }

    /// Gives inference servers the current weights. Batches that servers of full weights sample for end before.
    async fn sync_servers(&self) -> Result<(), TrainError> {
        if let Some(ahead) = self.ahead.as_ref().filter(|_| self.servers.hold_one_version()) {
            ahead.lock().await.settle().await?;
        }
        self.servers.sync().await
    }
}

impl Trainable for Training<'_> {
    async fn step(
        &mut self,
        step: u64,
        rollouts: &mut RolloutWriter,
    ) -> Result<Stepped, TrainError> {
        if self.plan.algorithm.preset.generates() {
            self.sync_servers().await?;
        }
        let Self { players, learner, .. } = self;
        let plan = plan_of(self.plan, self.swapped.as_ref(), step);
        let at = StepPlan { plan, step, rates: None };
        let mut stepped = match &self.dataset {
            Dataset::Tasks(tasks) => {
                let source = match self.ahead.as_mut().map(Mutex::get_mut) {
                    Some(ahead) => {
                        ahead.issue(step + 1, players, learner.solve_rates()).await?;
                        EpisodeSource::Ahead(ahead)
                    }
                    None => EpisodeSource::Tasks(tasks),
                };
                self::step(&at, players, learner, source, rollouts).await?
            }
            Dataset::Demonstrations(shown) if plan.algorithm.preset == Preset::Spin => {
                supervised::self_play(&at, players, learner, shown).await?
            }
            Dataset::Demonstrations(shown) => {
                supervised::imitate(&at, players, learner, shown).await?
            }
            Dataset::Preferences(pairs) => supervised::prefer(&at, players, learner, pairs).await?,
            Dataset::Labeled(data) => verify(&at, players, learner, data).await?,
        };
        stepped.warnings_once.extend(exact::mismatch_warning(plan, &stepped.metrics));
        let (metrics, warnings) = learner.state.live.step(plan, step, &stepped.episodes);
        stepped.metrics.extend(metrics);
        stepped.warnings.extend(warnings);
        // The plan already warns if all groups are of one.
        let expected = self.plan.config.task.group_size.get() == 1;
        let warning = measure::singletons(&stepped.metrics).filter(|_| !expected);
        stepped.warnings_once.extend(warning.map(|warning| ("singletons", warning)));
        if let Some(ahead) = self.ahead.as_mut().map(Mutex::get_mut) {
            ahead.advance(step + 1, players).await?;
            stepped.metrics.extend(ahead.metrics(step + 1));
            stepped.timing.extend(idle_share(&stepped.timing));
        }
        stepped.timing.extend(self.servers.take_usage());
        stepped.timing.extend(players.take_reward_usage().into_iter().collect());
        Ok(stepped)
    }

    async fn evaluate(&self, spec: &EvalSpec) -> Result<Vec<Episode>, TrainError> {
        self.sync_servers().await?;
        self.players.evaluate(self.plan, spec).await
    }

    fn staleness(&self) -> u64 {
        self.plan.config.rollout.staleness
    }

    fn awaited_steps(&self) -> u64 {
        let rollout = &self.plan.config.rollout;
        if rollout.advance_turns > 0 { rollout.staleness.saturating_sub(1) } else { 0 }
    }

    async fn save_in_flight(&mut self, step: u64, draft: &Draft) -> Result<(), TrainError> {
        match self.ahead.as_mut().map(Mutex::get_mut) {
            Some(ahead) => ahead.save(step, draft).await,
            None => Ok(()),
        }
    }

    fn open_in(&mut self, dir: &Path) -> Result<(), TrainError> {
        self.learner.read_episodes_in(dir);
        Ok(self.players.open_in(dir)?)
    }

    async fn save(&self, draft: &Draft) -> Result<WriteRest, TrainError> {
        let moments = self.plan.config.checkpoint.moments;
        self.learner.save(draft, moments, self.plan.copies_checkpoints()).await
    }

    async fn share(&self) -> Result<(), TrainError> {
        self.learner.share().await
    }

    async fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        self.servers.forget();
        if let Some(ahead) = self.ahead.as_mut().map(Mutex::get_mut) {
            ahead.load(checkpoint)?;
        }
        self.learner.load(self.plan, checkpoint).await
    }
}

/// Returns the plan of step `step`, counted from 0.
fn plan_of<'p>(plan: &'p Plan, swapped: Option<&'p Plan>, step: u64) -> &'p Plan {
    let turn = step.checked_div(plan.algorithm.swap_every).unwrap_or(0);
    swapped.filter(|_| turn % 2 == 1).unwrap_or(plan)
}
