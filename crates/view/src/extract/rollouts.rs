//! Recorded episodes of training, each with all of its turns, token ids and log-probs.

use std::path::Path;

use maverl::run_dir::{RunDir, RunDirError, read_ended_rollouts, read_rollouts};
use maverl::trajectory::Episode;
use serde::Serialize;

use super::error::{ExtractError, write_failure};
use super::lines::JsonLines;

/// An episode, with the step that played it.
#[derive(Serialize)]
struct RolloutRow<'e> {
    step: u64,
    #[serde(flatten)]
    episode: &'e Episode,
}

/// Writes the episodes of steps, from the first to the last or of all, and returns their number. Of a step that is being played,
/// or whose process was killed, these are the ones that have ended. One step is in memory at a time.
pub(super) fn write_rollouts(
    run: &RunDir,
    steps: Option<(u32, u32)>,
    out: &Path,
) -> Result<usize, ExtractError> {
    let failure = write_failure(out);
    let steps = chosen_steps(run, steps)?;
    let mut lines = JsonLines::open(out).map_err(|error| failure(error.to_string()))?;
    let mut count = 0;
    for step in steps {
        let episodes = read_step(run, step)?;
        count += episodes.len();
        for episode in &episodes {
            let row = RolloutRow { step, episode };
            lines.write_row(&row).map_err(|error| failure(error.to_string()))?;
        }
    }
    lines.finish().map_err(|error| failure(error.to_string()))?;
    Ok(count)
}

/// Returns the recorded steps among those that are asked for.
fn chosen_steps(run: &RunDir, steps: Option<(u32, u32)>) -> Result<Vec<u64>, ExtractError> {
    let mut recorded = run.rollout_steps()?;
    let next = recorded.last().map_or(1, |last| last + 1);
    if run.growing_rollouts(next).is_file() {
        recorded.push(next);
    }
    let (first, last) = steps.map_or((0, u64::MAX), |(first, last)| (first.into(), last.into()));
    recorded.retain(|step| (first..=last).contains(step));
    if recorded.is_empty() {
        let path = run.path().display().to_string();
        let reason = match steps {
            None => "it has done no step, or its rollouts were removed",
            Some(_) => "it has not done these steps, or their rollouts were removed",
        };
        return Err(ExtractError::Missing { path, part: "rollouts", reason });
    }
    Ok(recorded)
}

/// Reads the episodes of a step. A growing file gets its final name when it is complete, which may be at any time.
fn read_step(run: &RunDir, step: u64) -> Result<Vec<Episode>, RunDirError> {
    read_ended_rollouts(&run.growing_rollouts(step)).or_else(|_| read_rollouts(&run.rollouts(step)))
}
