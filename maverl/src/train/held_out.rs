//! Evaluation of a plan's team on held-out tasks, outside of a run.

use std::path::PathBuf;
use std::sync::Arc;

use crate::checkpoint::{Checkpoints, Which};
use crate::eval::{EvalReport, EvalSpec};
use crate::plan::Plan;
use crate::registry::Registry;
use crate::run_dir::RunDir;
use crate::runtime::Runtime;
use crate::train::error::TrainError;
use crate::train::progress::Progress;
use crate::train::ranks::RankPeers;
use crate::train::run::trainable::Trainable;
use crate::train::step::sink::{HeldOutSink, Observers};
use crate::train::step::unscored;
use crate::train::training::Training;
use crate::train::training::dataset::Needs;
use crate::trajectory::Episode;

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
    let episodes = play(plan, registry, weights, spec, progress).await?;
    unscored::report(spec, plan.config.rewards.keys(), &episodes)
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
