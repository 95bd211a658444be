//! Rows of runs that have none: made in the background by reading their files of episodes, newest step first.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::cache::{RowCache, RowWriter};
use super::run::ReportedRun;
use crate::compact::sort_by;
use maverl::run_dir::disk::{entries, name, step_of};
use maverl::run_dir::{EpisodeRow, TRAIN, is_growing, scan_rollouts};

/// Number of rows that are added at once.
const BATCH: usize = 256;

/// Makes missing rows of a run in a thread, which ends with the run. Rows are stored below a cache directory.
pub(crate) fn start_scan(run: &Arc<ReportedRun>, cache: Option<&Path>) {
    let files = missing_files(run);
    if files.is_empty() {
        return;
    }
    let all = files.len();
    run.lock_content().scanning = Some((all, all));
    let watched = Arc::downgrade(run);
    let cache = RowCache::new(cache, run.path());
    let named = std::thread::Builder::new().name("rows".to_owned());
    // Without the thread, old episodes are not listed, which `scanning` tells.
    let _ = named.spawn(move || scan_files(&watched, &files, &cache));
}

/// Returns the files of episodes that have no rows, newest step first.
fn missing_files(run: &ReportedRun) -> Vec<(String, u64, PathBuf)> {
    let content = run.lock_content();
    let indexed = content.rows_file().exists();
    // A resumed run of an older version has rows of what followed.
    let first = content.index.first_step(TRAIN);
    let forgotten = content.index.forgotten_rows() > 0;
    drop(content);
    if indexed && (forgotten || first.is_none_or(|first| first <= 1)) {
        return Vec::new();
    }
    let mut files = steps_below(run.path(), "rollouts", TRAIN);
    files.extend(steps_below(run.path(), "evaluations", "validation"));
    files.retain(|(_, step, _)| first.is_none_or(|first| *step < first));
    sort_by(&mut files, |(_, a, _), (_, b, _)| b.cmp(a));
    let last = files.first().map_or(0, |(_, step, _)| *step);
    for (stage, step) in
        [("before", 0), ("before-greedy", 0), ("after", last), ("after-greedy", last)]
    {
        let wanted = !indexed || stage.starts_with("before");
        let path = run.files.episodes_file(stage, step).filter(|path| wanted && path.is_file());
        files.extend(path.map(|path| (stage.to_owned(), step, path)));
    }
    files
}

/// Returns the whole files of episodes in a directory of a run, each with its stage and step.
fn steps_below(run: &Path, part: &str, stage: &str) -> Vec<(String, u64, PathBuf)> {
    let mut files = entries(&run.join(part)).unwrap_or_default();
    files.retain(|path| name(path).ends_with(".jsonl.zst") && !is_growing(path));
    files.into_iter().filter_map(|path| Some((stage.to_owned(), step_of(&path)?, path))).collect()
}

/// Makes the rows of files, which are read from the cache if they are there.
fn scan_files(watched: &Weak<ReportedRun>, files: &[(String, u64, PathBuf)], cache: &RowCache) {
    for (i, (stage, step, path)) in files.iter().enumerate() {
        let mut rows = cache.read_rows(stage, path).unwrap_or_default();
        let mut writer = if rows.is_empty() { cache.start_writing(stage, path) } else { None };
        let found = if rows.is_empty() {
            scan_rollouts(path, stage, *step, |row| {
                writer = writer.take().and_then(|writer| writer.add_row(&row));
                rows.push(row);
                rows.len() < BATCH || add_rows(watched, &mut rows)
            })
        } else {
            Ok(())
        };
        add_rows(watched, &mut rows);
        let Some(run) = watched.upgrade() else { return };
        match found {
            Ok(()) => writer.and_then(RowWriter::write_rows).unwrap_or_default(),
            Err(error) => {
                let text = format!("no rows of a file: {error}");
                let warning = serde_json::json!({ "step": step, "text": text });
                run.lock_content().warnings.push(warning);
            }
        }
        let left = files.len() - i - 1;
        run.lock_content().scanning = (left > 0).then_some((left, files.len()));
    }
}

/// Moves rows into a run; false if it is no longer watched.
fn add_rows(watched: &Weak<ReportedRun>, rows: &mut Vec<EpisodeRow>) -> bool {
    let Some(run) = watched.upgrade() else { return false };
    let mut content = run.lock_content();
    rows.drain(..).for_each(|row| content.index.add_made(&row));
    true
}
