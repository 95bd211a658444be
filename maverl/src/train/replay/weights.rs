//! Weights that played a recorded episode: those of a checkpoint, and those of steps that are learned again from it.

use std::ops::Range;
use std::path::Path;

use tokio::sync::watch;

use crate::checkpoint::{Checkpoint, Checkpoints, Which};
use crate::plan::Plan;
use crate::rollout::{PolicyVersions, TurnVersions};
use crate::run_dir::{Origin, RunDir, RunDirError, read_rollouts};
use crate::train::ahead::{played_versions, wait_clock};
use crate::train::error::TrainError;
use crate::train::progress::Progress;
use crate::train::run::trainable::Trainable;
use crate::train::training::Training;
use crate::trajectory::Episode;

/// Loads into new policies the weights that the first turn of an episode of a step of a run had. Returns the versions of all its
/// turns, if the episode went on with newer weights (`rollout.advance_turns`).
pub(super) async fn load_weights(
    training: &mut Training<'_>,
    plan: &Plan,
    run: &RunDir,
    (step, episode): (u64, &Episode),
    progress: &dyn Progress,
) -> Result<Option<TurnVersions>, TrainError> {
    let row = run.metrics()?.remove(&step);
    let schedule = played_versions(plan, step, row.as_ref());
    return_to(training, run, schedule.first, progress).await?;
    if schedule.turns == 0 {
        return Ok(None);
    }
    let turns = episode.turns.iter();
    let last = turns.map(|turn| schedule.version(&turn.path)).max().unwrap_or(schedule.first);
    if last > schedule.first {
        progress.note(&format!("steps to {last} learned again for later turns"));
    }
    let mut versions = PolicyVersions::new();
    for version in schedule.first..=last {
        if version > schedule.first {
            learn_steps(training, run, version - 1..version).await?;
        }
        let place = (version - schedule.first) as usize;
        versions.insert(version, training.snapshots(place).await?);
    }
    let (_, existing) = watch::channel(versions);
    Ok(Some(TurnVersions::new(plan, schedule, existing, wait_clock())))
}

/// Loads into new policies the weights that the run had after `steps` steps.
async fn return_to(
    training: &mut Training<'_>,
    run: &RunDir,
    steps: u64,
    progress: &dyn Progress,
) -> Result<(), TrainError> {
    training.read_episodes_in(run.path());
    let (from, exact) = match checkpoint(run.path(), steps)? {
        Some(checkpoint) => {
            training.load(&checkpoint).await?;
            (checkpoint.state.step, checkpoint.state.moments.is_exact())
        }
        None => {
            same_start(training, run).await?;
            (0, true)
        }
    };
    if from < steps {
        let learned = match steps - from {
            1 => format!("step {steps}"),
            _ => format!("steps {} to {steps}", from + 1),
        };
        progress.note(&format!("weights after step {from}, and {learned} learned again"));
        let Origin { config, provenance, .. } = run.origin()?;
        // A run may have gone on with the moments that it had before the key was changed.
        let last = Checkpoints::of(run.path()).open(Which::Last);
        let lost = last.is_ok_and(|last| last.state.moments_lost);
        if lost || !(config.checkpoint.moments.is_exact() && exact) {
            progress.warn(
                "checkpoints of the run have no moments or rounded ones (`checkpoint.moments`); what is learned again from one differs, \
                 and what followed a resume from one too, so that turns may differ. Steps right after a checkpoint have nothing learned \
                 again",
            );
        }
        let ranks = provenance.ranks;
        if ranks > 1 {
            progress.warn(&format!(
                "the run had {ranks} ranks; what one rank learns again differs by rounding, so that turns may differ. \
                 Steps right after a checkpoint have nothing learned again"
            ));
        }
    }
    learn_steps(training, run, from..steps).await
}

/// Trains on the stored episodes of steps, counted from 0.
async fn learn_steps(
    training: &mut Training<'_>,
    run: &RunDir,
    steps: Range<u64>,
) -> Result<(), TrainError> {
    let rows = run.metrics()?;
    for step in steps {
        let episodes = read_rollouts(&run.rollouts(step + 1))?;
        // The learning rates are those of the row. The plan's may differ: a run that was extended has another schedule.
        training.learn_again(step, &episodes, rows.get(&(step + 1))).await?;
    }
    Ok(())
}

/// Returns the newest intact checkpoint of at most `steps` steps. A damaged one is skipped: an older one, and the
/// starting weights, lead to the same result.
fn checkpoint(run: &Path, steps: u64) -> Result<Option<Checkpoint>, RunDirError> {
    let checkpoints = Checkpoints::of(run);
    for step in checkpoints.steps()?.into_iter().rev().filter(|&step| step <= steps) {
        match checkpoints.open(Which::Step(step)) {
            Ok(checkpoint) => return Ok(Some(checkpoint)),
            Err(RunDirError::Damaged { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(None)
}

/// Fails if the starting weights differ from those of the run.
async fn same_start(training: &Training<'_>, run: &RunDir) -> Result<(), TrainError> {
    let mut now = run.origin()?;
    now.provenance.weights.extend(training.fingerprints().await?);
    Ok(run.compare(&now)?)
}
