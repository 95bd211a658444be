//! Episodes of rows, read from their files.

use maverl::run_dir::{EpisodePosition, read_episode};
use maverl::trajectory::Episode;
use serde_json::Value;

use super::run::ReportedRun;
use crate::report::problem::ReportProblem;

/// An episode with its row.
#[derive(Debug)]
pub(crate) struct StoredEpisode {
    /// Index of the row.
    pub(crate) index: usize,
    pub(crate) row: Value,
    pub(crate) episode: Episode,
}

/// Reads an episode with its row. The episode must be the one that the row names.
pub(crate) fn read_stored(
    run: &ReportedRun,
    stage: &str,
    step: u64,
    n: u64,
) -> Result<StoredEpisode, ReportProblem> {
    let missing = || ReportProblem::missing("there is no such episode");
    let file = run.files.episodes_file(stage, step).ok_or_else(missing)?;
    let (index, row) = {
        let content = run.lock_content();
        let index = content.index.find_row(stage, step, n).ok_or_else(missing)?;
        let rows = content.index.read_rows(content.rows_file(), &[index]);
        let rows = rows.map_err(ReportProblem::unreadable)?;
        (index, rows.into_iter().next().ok_or_else(missing)?)
    };
    let at: EpisodePosition =
        serde_json::from_value(row["at"].clone()).map_err(ReportProblem::unreadable)?;
    let episode = read_episode(&file, at).map_err(ReportProblem::unreadable)?;
    let named = (row["source"].as_str(), row["task"].as_str(), row["index"].as_u64());
    let task = &episode.task;
    let found = (Some(&*task.source), Some(&*task.id), Some(u64::from(episode.index)));
    if named != found {
        let reason = "the row in `episodes.jsonl` names another episode than its file has there";
        return Err(ReportProblem::unreadable(reason));
    }
    Ok(StoredEpisode { index, row, episode })
}
