//! Training: the loop over steps, and everything a run leaves behind.
//!
//! ```text
//! Tasks ─► Episodes ─► Samples ─► Advantages ─► Batches ─► Update          one step: `step.rs`, `learn.rs`
//! checkpoint, evaluations, rows, rollouts, going on after a crash          their course: `course.rs`
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
mod replay;
mod state;
mod step;
mod summary;
mod supervised;
mod team;
mod unscored;

pub use error::TrainError;
pub use interrupt::Interrupt;
pub use progress::{Progress, Silent, StepLine, silent, stderr};
pub use replay::{Recorded, replay};
pub use summary::{Evaluation, Report, RunSummary, SplitScore};
pub use unscored::report;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::{Checkpoints, Which};
use crate::eval::{EvalReport, EvalSpec};
use crate::plan::Plan;
use crate::registry::Registry;
use crate::run_dir::{Missing, RunDir, RunLocation};
use crate::runtime::Runtime;
use crate::trajectory::Episode;

use course::{Course, Opened, Settings, Trainable};
use team::{Needs, Team};

/// How a run is carried out; nothing here changes its numbers.
#[derive(Clone)]
pub struct Options {
    /// Where it is written.
    pub place: RunLocation,
    /// The configuration as the user gave it, for `config.toml`, such as [`crate::check::Sources::written`]; empty where there
    /// was no file.
    pub given: String,
    /// What may be missing in a run directory that is resumed.
    pub missing: Missing,
    /// Is told how it goes.
    pub progress: Arc<dyn Progress>,
    /// Can stop it.
    pub interrupt: Interrupt,
}

impl Options {
    /// A silent run in a directory that nothing stops.
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

/// Trains the team of a plan, or goes on with a run that was cut off.
///
/// # Errors
///
/// See [`TrainError`]; what was written before stays, and `RunLocation::Resume` goes on from the last checkpoint.
pub async fn train(
    plan: &Plan,
    registry: &Registry,
    options: Options,
) -> Result<Report, TrainError> {
    let Options { place, given, missing, progress, interrupt } = options;
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
    let report = report.await;
    runtime.shutdown();
    report
}

/// The command that goes on with a run.
pub fn resume_command(dir: &Path) -> String {
    let dir = dir.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=,:@".contains(c);
    match dir.chars().all(plain) {
        true => format!("maverl train --resume {dir}"),
        false => format!("maverl train --resume '{}'", dir.replace('\'', "'\\''")),
    }
}

/// Which weights are evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weights {
    /// Those the plan starts from.
    Start,
    /// Those of a checkpoint of a run.
    Run(PathBuf, Which),
}

/// Plays held-out tasks with a plan's team and says how many it solves.
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

/// Plays held-out tasks with a plan's team: the episodes that [`eval`] counts. Equal plans play equal tasks on equal draws,
/// so that the scores of two can be compared task by task.
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
