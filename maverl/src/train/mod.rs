//! Training: the loop over steps, and all files of a run.
//!
//! ```text
//! Episodes ─► Samples ─► Advantages ─► Batches ─► Update      one step: `step.rs`
//!  step/players          learner                  learner
//! checkpoints, evaluations, metrics, resuming after a crash   the loop of a run: `run.rs`
//! a stored episode again, with the weights of its step        `replay.rs`
//! ```
//!
//! `step/players.rs` runs episodes and uses no algorithm, `learner.rs` updates policies and does not use the rollout, `step.rs`
//! connects them. `training.rs` puts them together for a plan, and `run.rs` depends on neither. No file here uses one that
//! uses it.
//!
//! - `progress`: messages, displays, interruption, and commands that a user types to go on;
//! - `record`: what is recorded of a step: metrics, times, samples;
//! - `run`: the loop over steps, its files, and the trait `Trainable` of what it repeats;
//! - `ranks`: the processes that train together;
//! - `learner`: samples, advantages, batches, critics, mixer, updates;
//! - `step`: a step of reinforcement learning; `supervised`: steps of other kinds;
//! - `training`: the data and inference servers of a plan; `replay`: stored episodes.

mod error;
mod learner;
mod progress;
mod ranks;
mod record;
mod replay;
mod run;
mod step;
mod supervised;
mod training;

pub use crate::dist::{Launch, RankError};
pub use error::{DemonstrationError, ErrorKind, TrainError};
pub(crate) use learner::state::{VERIFIER, VerifierRecord};
#[doc(hidden)]
pub use progress::Silent;
#[doc(hidden)]
pub use progress::commands::resume_command;
#[doc(hidden)]
pub use progress::commands::{COMMANDS, features, own, program, renamed};
#[doc(hidden)]
pub use progress::display::stderr;
#[doc(hidden)]
pub use progress::heartbeat::Beat;
pub use progress::interrupt::Interrupt;
#[doc(hidden)]
pub use progress::tell;
pub use progress::{Progress, StepLine, silent};
pub use replay::{Recorded, ReplayOptions, ReplayScope, replay};
pub use run::summary::{Evaluation, Report, RunSummary, SplitScore};
pub use step::sink::{EndedEpisode, EpisodeSink, SinkError};
#[doc(hidden)]
pub use step::unscored::report;
pub(crate) use supervised::verifier::verifier_tasks;

use std::path::PathBuf;
use std::sync::Arc;

use crate::checkpoint::Checkpoints;
pub use crate::checkpoint::Which;
use crate::eval::{EvalReport, EvalSpec};
use crate::plan::{EndpointPlan, Plan};
use crate::registry::Registry;
use crate::run_dir::{Missing, RunDir, RunLocation};
use crate::runtime::{DeviceChoice, Runtime};
use crate::trajectory::Episode;

use learner::estimator;
use progress::heartbeat::Heartbeat;
use ranks::RankPeers;
use ranks::follow::{self, Led};
use run::trainable::Trainable;
use run::{Opened, Run, Settings};
use step::sink::{HeldOutSink, Observers};
use step::unscored;
use training::Training;
use training::dataset::Needs;

/// Options of a run that do not change its numbers.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// Run directory.
    pub place: RunLocation,
    /// Configuration as the user gave it, for `config.toml`, such as [`crate::config::source::Sources::written`]; empty if there
    /// was no file.
    pub given: String,
    /// Files that may be missing in a run directory that is resumed.
    pub missing: Missing,
    /// Receiver of progress.
    pub progress: Arc<dyn Progress>,
    /// Request to stop.
    pub interrupt: Interrupt,
    /// Receivers of the episodes of training and evaluations, each as soon as it ends.
    pub sinks: Vec<Arc<dyn EpisodeSink>>,
    /// Place of this process among those that train together; `None` if it trains alone.
    pub launch: Option<Launch>,
    /// True if this process trains again with the same ranks after this run. Over MPI, which connects processes once, they
    /// stay connected until then.
    pub again: bool,
}

impl Options {
    /// Returns options of a silent run that cannot be interrupted.
    pub fn new(place: RunLocation) -> Self {
        Self {
            place,
            given: String::new(),
            missing: Missing::default(),
            progress: Arc::new(Silent),
            interrupt: Interrupt::default(),
            sinks: Vec::new(),
            launch: None,
            again: false,
        }
    }

    /// Registers a receiver of the run's episodes.
    #[must_use]
    pub fn sink(mut self, sink: impl EpisodeSink + 'static) -> Self {
        self.sinks.push(Arc::new(sink));
        self
    }
}

/// Trains the team of a plan, or resumes a run. With a launch, every rank calls this with the same plan. Rank 0 writes all
/// files, and all ranks return its report.
///
/// # Errors
///
/// See [`TrainError`]. Written files stay, and `RunLocation::Resume` continues from the last checkpoint.
pub async fn train(
    plan: &Plan,
    registry: &Registry,
    mut options: Options,
) -> Result<Report, TrainError> {
    let peers = RankPeers::join(options.launch.take(), &plan.config.dist, options.again).await?;
    let _guard = peers.guard();
    let interrupt = options.interrupt.clone();
    let done = tokio::select! {
        biased;
        failed = peers.failed() => Err(failed),
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
    let progress: Arc<dyn Progress> = match peers.leads() {
        true => Arc::new(Heartbeat::new(Arc::clone(&options.progress))),
        false => silent(),
    };
    if let Some(note) = estimator::compile(plan, registry)? {
        progress.note(&note);
    }
    let (workers, runtime_options) = peers.runtime(plan.worker_specs(), plan.runtime_options());
    let runtime = Runtime::start_on(&workers, &runtime_options, peers.ranks())?;
    let devices = training::devices(&runtime);
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
        return Box::pin(follow::follow(training, peers)).await;
    }
    let settings = Settings {
        seed: plan.config.seed,
        steps: plan.config.steps,
        max_flat_steps: plan.algorithm.max_flat_steps,
        eval: eval.clone(),
        checkpoint: plan.config.checkpoint.clone(),
        record: plan.config.record.clone(),
        seats: training.asked(),
        measure: training.measure(),
        missing,
        plan: plan_json(plan),
        tokenizers: training.tokenizers()?,
    };
    let led = Led { work: training, peers: peers.clone() };
    let run = Run::open(&place, &origin, settings, led, Arc::clone(&progress), interrupt);
    let report = match run.await? {
        Opened::Ready(run) => Box::pin(run.run()).await?,
        Opened::Complete(report) => {
            progress.note("the run is complete; give more `steps` to go on with it");
            *report
        }
    };
    follow::end(peers, &report).await?;
    Ok(report)
}

/// Returns the plan in numbers, with the names that have no numbers: seats of endpoints, and environments.
fn plan_json(plan: &Plan) -> serde_json::Value {
    let endpoint = |of: &EndpointPlan| serde_json::json!({ "seat": of.seat, "endpoint": of.name });
    let mut summary = plan.summary();
    for worker in &mut summary.workers {
        // As it is written, so that the file does not depend on the directory of the command.
        if let Some(model) = plan.config.models.get(&worker.model) {
            worker.path.clone_from(&model.path);
        }
    }
    serde_json::json!({
        "summary": summary,
        "endpoints": plan.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "environment": plan.environment.name,
        "environments": plan.environments.keys().collect::<Vec<_>>(),
    })
}

/// Weights to evaluate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Weights {
    /// Starting weights of the plan.
    Start,
    /// Weights of a checkpoint of a run.
    Run(PathBuf, Which),
}

/// Evaluates a plan's team on held-out tasks, and returns the report.
///
/// # Errors
///
/// See [`TrainError`].
pub async fn eval(
    plan: &Plan,
    registry: &Registry,
    weights: &Weights,
    spec: &EvalSpec,
    progress: &Arc<dyn Progress>,
) -> Result<EvalReport, TrainError> {
    unscored::report(spec, &play(plan, registry, weights, spec, progress).await?)
}

/// Runs a plan's team on held-out tasks, and returns the episodes that [`eval`] counts. Equal plans use equal tasks and
/// seeds, so that two teams can be compared task by task.
///
/// # Errors
///
/// See [`TrainError`].
pub async fn play(
    plan: &Plan,
    registry: &Registry,
    weights: &Weights,
    spec: &EvalSpec,
    progress: &Arc<dyn Progress>,
) -> Result<Vec<Episode>, TrainError> {
    play_for((plan, registry), weights, spec, Observers::new(progress)).await
}

/// Runs a plan's team on the tasks of a split for a data set, as [`play`] does. The progress display does not call it an
/// evaluation.
///
/// # Errors
///
/// See [`TrainError`].
#[doc(hidden)]
pub async fn play_for_data(
    plan: &Plan,
    registry: &Registry,
    weights: &Weights,
    spec: &EvalSpec,
    progress: &Arc<dyn Progress>,
) -> Result<Vec<Episode>, TrainError> {
    let observers = Observers { held_out: HeldOutSink::Data, ..Observers::new(progress) };
    play_for((plan, registry), weights, spec, observers).await
}

/// Runs a plan's team on the tasks of a split.
async fn play_for(
    (plan, registry): (&Plan, &Registry),
    weights: &Weights,
    spec: &EvalSpec,
    observers: Observers,
) -> Result<Vec<Episode>, TrainError> {
    let progress = Arc::clone(&observers.progress);
    let checkpoint = match weights {
        Weights::Start => None,
        Weights::Run(dir, which) => Some(Checkpoints::of(RunDir::open(dir)?.path()).open(*which)?),
    };
    if let Some(checkpoint) = &checkpoint {
        progress
            .note(&format!("the weights are those of step {} of the run", checkpoint.state.step));
    }
    let runtime = Runtime::start(&plan.worker_specs(), &plan.runtime_options())?;
    let episodes = async {
        let needs = Needs::Split(&spec.split);
        let alone = (observers, &RankPeers::default());
        let mut training = Training::start(plan, registry, &runtime, needs, alone)?;
        if let Some(checkpoint) = &checkpoint {
            training.load(checkpoint).await?;
        }
        training.evaluate(spec).await
    };
    let episodes = episodes.await;
    progress.end();
    runtime.shutdown();
    episodes
}
