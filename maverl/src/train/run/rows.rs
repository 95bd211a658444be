//! Rows of `episodes.jsonl` and `warnings.jsonl`.

use std::time::SystemTime;

use crate::run_dir::{EpisodePosition, EpisodeRow, Journal, RunDirError, episode_text};
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

/// Appends texts of the first episodes of a step for TensorBoard.
pub(crate) fn show(
    journal: &mut Journal,
    step: u64,
    episodes: &[Episode],
    most: usize,
) -> Result<(), RunDirError> {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64());
    let texts: Vec<String> = episodes.iter().take(most).map(episode_text).collect();
    journal.append_texts(step, &texts, now)
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
