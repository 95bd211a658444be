//! Training: the loop over steps, and all files of a run.
//!
//! ```text
//! Tasks ─► Episodes ─► Samples ─► Advantages ─► Batches ─► Update          one step: `step.rs`, `learn.rs`
//! checkpoints, evaluations, metrics, rollouts, resuming after a crash      the course of a run: `course.rs`
//! a stored episode again, with the weights of its step                     `replay.rs`
//! ```

mod course;
mod critic;
mod error;
mod interrupt;
mod kl_penalty;
mod learn;
mod measure;
mod mixer;
mod progress;
mod record;
mod replay;
mod state;
mod step;
mod summary;
mod supervised;
mod team;
mod unscored;

pub use error::TrainError;
pub use interrupt::Interrupt;
pub use progress::{Beat, Progress, Silent, StepLine, silent, stderr};
pub use replay::{Recorded, replay};
pub use summary::{Evaluation, Report, RunSummary, SplitScore};
pub use unscored::report;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::{Checkpoints, Which};
use crate::eval::{EvalReport, EvalSpec};
use crate::plan::{EndpointPlan, Plan};
use crate::registry::Registry;
use crate::run_dir::{Missing, RunDir, RunLocation};
use crate::runtime::Runtime;
use crate::trajectory::Episode;

use course::{Course, Opened, Settings, Trainable};
use progress::Heartbeat;
use team::{Needs, Team};

/// Options of a run that do not change its numbers.
#[derive(Clone)]
pub struct Options {
    /// Run directory.
    pub place: RunLocation,
    /// Configuration as the user gave it, for `config.toml`, such as [`crate::check::Sources::written`]; empty if there
    /// was no file.
    pub given: String,
    /// Files that may be missing in a run directory that is resumed.
    pub missing: Missing,
    /// Receiver of progress.
    pub progress: Arc<dyn Progress>,
    /// Request to stop.
    pub interrupt: Interrupt,
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
        }
    }
}

/// Trains the team of a plan, or resumes a run.
///
/// # Errors
///
/// See [`TrainError`]. Written files stay, and `RunLocation::Resume` continues from the last checkpoint.
pub async fn train(
    plan: &Plan,
    registry: &Registry,
    options: Options,
) -> Result<Report, TrainError> {
    let Options { place, given, missing, progress, interrupt } = options;
    let progress: Arc<dyn Progress> = Arc::new(Heartbeat::new(progress));
    let eval = plan.eval.used(plan.algorithm.preset);
    let runtime = Runtime::start(plan)?;
    runtime.notes(plan).iter().for_each(|note| progress.warn(note));
    interrupt.tell(Arc::clone(&progress));
    let report = async {
        let team = Team::start(plan, registry, &runtime, Needs::Training(&eval), &progress)?;
        if let Some(note) = team.note()? {
            progress.note(&note);
        }
        let origin = team.origin(given).await?;
        let settings = Settings {
            seed: plan.seed,
            steps: plan.steps,
            max_flat_steps: plan.algorithm.max_flat_steps,
            eval: eval.clone(),
            checkpoint: plan.checkpoint.clone(),
            seats: team.asked(),
            measure: team.measure(),
            missing,
            plan: plan_json(plan),
        };
        match Course::open(&place, &origin, settings, team, Arc::clone(&progress), interrupt)
            .await?
        {
            Opened::Ready(course) => course.run().await,
            Opened::Complete(report) => {
                progress.note("the run is complete; give more `steps` to go on with it");
                Ok(*report)
            }
        }
    };
    // Boxed: the state of a whole run is too large to be moved with its caller.
    let report = Box::pin(report).await;
    runtime.shutdown();
    report
}

/// Returns the plan in numbers, with the names that have no numbers: seats of endpoints, and environments.
fn plan_json(plan: &Plan) -> serde_json::Value {
    let endpoint = |of: &EndpointPlan| serde_json::json!({ "seat": of.seat, "endpoint": of.name });
    serde_json::json!({
        "summary": plan.summary(),
        "endpoints": plan.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "environment": plan.environment.name,
        "environments": plan.environments.keys().collect::<Vec<_>>(),
    })
}

/// Returns the command that resumes a run.
pub fn resume_command(dir: &Path) -> String {
    format!("maverl train --resume {}", quoted(dir))
}

/// Returns the command that serves pages about a run.
pub fn view_command(dir: &Path) -> String {
    format!("maverl view {}", quoted(dir))
}

/// Quotes a path for a shell, if that is needed.
fn quoted(dir: &Path) -> String {
    let dir = dir.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=,:@".contains(c);
    match dir.chars().all(plain) {
        true => dir,
        false => format!("'{}'", dir.replace('\'', "'\\''")),
    }
}

/// Weights to evaluate.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    let checkpoint = match weights {
        Weights::Start => None,
        Weights::Run(dir, which) => Some(Checkpoints::of(RunDir::open(dir)?.path()).open(*which)?),
    };
    let runtime = Runtime::start(plan)?;
    let episodes = async {
        let needs = Needs::Split(&spec.split);
        let mut team = Team::start(plan, registry, &runtime, needs, progress)?;
        if let Some(checkpoint) = &checkpoint {
            team.load(checkpoint).await?;
        }
        team.perform(spec).await
    };
    let episodes = episodes.await;
    progress.end();
    runtime.shutdown();
    episodes
}
