//! Rows of `episodes.jsonl` and `warnings.jsonl`.

use crate::run_dir::{EpisodePosition, EpisodeRow, Journal, RunDirError};
use crate::train::progress::Progress;
use crate::trajectory::Episode;

/// Appends the rows of episodes whose file is complete.
pub(crate) fn index(
    journal: &mut Journal,
    (stage, step): (&str, u64),
    episodes: &[Episode],
    places: &[EpisodePosition],
) -> Result<(), RunDirError> {
    let rows = episodes.iter().zip(places).zip(0..);
    let rows: Vec<EpisodeRow> =
        rows.map(|((episode, at), n)| EpisodeRow::new(stage, step, n, *at, episode)).collect();
    journal.append_episodes(&rows)
}

/// Prints warnings, and records them.
pub(crate) fn warn(
    journal: &mut Journal,
    progress: &dyn Progress,
    step: u64,
    warnings: &[String],
) -> Result<(), RunDirError> {
    warnings.iter().for_each(|warning| progress.warn(warning));
    journal.append_warnings(step, warnings)
}
