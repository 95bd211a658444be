//! Growing files of a run, which get a row at every step.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::append::AppendFile;
use super::clock::SpanRow;
use super::error::{At, RunDirError, damaged_error};
use super::events;
use super::manifest::FileHash;
use super::rows::EpisodeRow;
use crate::TryIntoMap;
use crate::metrics::Metrics;

/// Name of the file of metrics.
pub(super) const METRICS: &str = "metrics.jsonl";
const EPISODES: &str = "episodes.jsonl";
const WARNINGS: &str = "warnings.jsonl";
const SPANS: &str = "spans.jsonl";
/// Name of the file of times.
pub(super) const TIMING: &str = "timing.jsonl";
/// Name of the TensorBoard file. TensorBoard requires `tfevents` in the name; a fixed name lets a resumed run continue
/// the file.
const EVENTS: &str = "events.out.tfevents.0.maverl";

/// Name in `timing.jsonl` of the duration of a step, evaluations excluded.
pub const STEP_SECONDS: &str = "time/step_s";

/// Name in `timing.jsonl` of the time at which a row was written, in seconds since 1970.
pub const UNIX_TIME: &str = "time/unix";

/// A line of `metrics.jsonl`.
#[derive(serde::Deserialize)]
struct Row {
    step: u64,
    #[serde(flatten)]
    metrics: Metrics,
}

/// A line of `warnings.jsonl`.
#[derive(serde::Serialize)]
struct Warning<'t> {
    step: u64,
    text: &'t str,
}

/// Growing files of a run: metrics, timing, TensorBoard events, rows of episodes, warnings, spans.
#[derive(Debug)]
pub struct Journal {
    metrics: AppendFile,
    timing: AppendFile,
    events: AppendFile,
    episodes: AppendFile,
    warnings: AppendFile,
    spans: AppendFile,
}

impl Journal {
    /// Opens the growing files of a run directory at the state that a checkpoint recorded; files without a record are
    /// new. Content after the recorded state is kept until [`Journal::cut`].
    ///
    /// # Errors
    ///
    /// If another process writes this run, or a file does not begin as recorded.
    pub fn open(dir: &Path, files: &BTreeMap<String, FileHash>) -> Result<Self, RunDirError> {
        Ok(Self {
            metrics: AppendFile::open_in(dir, METRICS, files)?,
            timing: AppendFile::open_in(dir, TIMING, files)?,
            events: AppendFile::open_in(dir, EVENTS, files)?,
            episodes: AppendFile::open_in(dir, EPISODES, files)?,
            warnings: AppendFile::open_in(dir, WARNINGS, files)?,
            spans: AppendFile::open_in(dir, SPANS, files)?,
        })
    }

    /// Truncates the files to the state that the checkpoint recorded.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn cut_to_checkpoint(&mut self) -> Result<(), RunDirError> {
        self.metrics.cut_to_start()?;
        self.timing.cut_to_start()?;
        self.events.cut_to_start()?;
        self.episodes.cut_to_start()?;
        self.warnings.cut_to_start()?;
        self.spans.cut_to_start()
    }

    /// Returns true if a process has the run open for writing.
    pub(super) fn is_locked(dir: &Path) -> bool {
        AppendFile::is_locked(&dir.join(METRICS))
    }

    /// Returns true if a run has any row.
    pub(super) fn has_rows(dir: &Path) -> bool {
        fs::metadata(dir.join(METRICS)).is_ok_and(|metadata| metadata.len() > 0)
    }

    /// Returns the rows of a run by step, with rows of the same step merged. An incomplete last line is skipped.
    pub(super) fn metrics(dir: &Path) -> Result<BTreeMap<u64, Metrics>, RunDirError> {
        let path = dir.join(METRICS);
        let text = fs::read_to_string(&path).at("read", &path)?;
        let mut rows: BTreeMap<u64, Metrics> = BTreeMap::new();
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let row: Row =
                serde_json::from_str(line).map_err(|e| damaged_error(&path, e.to_string()))?;
            rows.entry(row.step).or_default().extend(row.metrics);
        }
        Ok(rows)
    }

    /// Appends a step's row to each file. `wall_time` (seconds since 1970) is part of `timing.jsonl` and of the TensorBoard file.
    ///
    /// # Errors
    ///
    /// If a value is not finite (nothing is written then) or the disk is full.
    pub fn append(
        &mut self,
        step: u64,
        metrics: &Metrics,
        timing: &Metrics,
        wall_time: f64,
    ) -> Result<(), RunDirError> {
        let mut clock = timing.clone();
        clock.set(UNIX_TIME, wall_time);
        let (row, clock) = (metrics.row(step)?, clock.row(step)?);
        self.metrics.append(row.as_bytes())?;
        self.timing.append(clock.as_bytes())?;
        let mut records = Vec::new();
        if self.events.is_empty() {
            records.extend(events::header(wall_time));
        }
        records.extend(events::scalars(wall_time, step, metrics.iter().chain(timing.iter())));
        self.events.append(&records)
    }

    /// Appends texts of a step to the TensorBoard file, which has scalars already.
    ///
    /// # Errors
    ///
    /// If the disk is full.
    pub fn append_texts(
        &mut self,
        step: u64,
        texts: &[String],
        wall_time: f64,
    ) -> Result<(), RunDirError> {
        if texts.is_empty() {
            return Ok(());
        }
        self.events.append(&events::texts(wall_time, step, "episodes", texts))
    }

    /// Appends rows of episodes. Their file must be complete.
    ///
    /// # Errors
    ///
    /// If the disk is full.
    pub fn append_episodes(&mut self, rows: &[EpisodeRow]) -> Result<(), RunDirError> {
        let lines = lines(rows, self.episodes.path())?;
        self.episodes.append(&lines)
    }

    /// Appends warnings of a step.
    ///
    /// # Errors
    ///
    /// If the disk is full.
    pub fn append_warnings(&mut self, step: u64, warnings: &[String]) -> Result<(), RunDirError> {
        let rows: Vec<Warning<'_>> = warnings.iter().map(|text| Warning { step, text }).collect();
        let lines = lines(&rows, self.warnings.path())?;
        self.warnings.append(&lines)
    }

    /// Appends the times of the parts of a step.
    ///
    /// # Errors
    ///
    /// If the disk is full.
    pub fn append_spans(&mut self, row: &SpanRow) -> Result<(), RunDirError> {
        let line = lines(std::slice::from_ref(row), self.spans.path())?;
        self.spans.append(&line)
    }

    /// Returns the seconds of all steps so far, those of earlier processes included.
    ///
    /// # Errors
    ///
    /// If `timing.jsonl` cannot be read.
    pub fn seconds(&self) -> Result<f64, RunDirError> {
        let path = self.timing.path();
        let text = fs::read_to_string(path).at("read", path)?;
        // The sum of an empty iterator is -0.0.
        text.lines().try_fold(0.0, |seconds, line| {
            let row: BTreeMap<String, f64> =
                serde_json::from_str(line).map_err(|e| damaged_error(path, e.to_string()))?;
            Ok(seconds + row.get(STEP_SECONDS).copied().unwrap_or(0.0))
        })
    }

    /// Makes everything appended durable, and returns each file's hash and length for a checkpoint.
    ///
    /// # Errors
    ///
    /// If the disk fails, or another process changed a file.
    pub fn sync(&self) -> Result<BTreeMap<String, FileHash>, RunDirError> {
        let files = [
            (METRICS, &self.metrics),
            (TIMING, &self.timing),
            (EVENTS, &self.events),
            (EPISODES, &self.episodes),
            (WARNINGS, &self.warnings),
            (SPANS, &self.spans),
        ];
        files.into_iter().map(|(name, file)| Ok((name.to_owned(), file.sync()?))).try_into_map()
    }
}

/// Encodes rows as lines of JSON.
fn lines<T: serde::Serialize>(rows: &[T], path: &Path) -> Result<Vec<u8>, RunDirError> {
    let mut text = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut text, row)
            .map_err(|e| RunDirError::Encode { path: path.to_owned(), reason: e.to_string() })?;
        text.push(b'\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rows_read_back_to_the_bit_and_those_of_one_step_are_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), &BTreeMap::new()).unwrap();
        let lr = 5e-4 / 3.0;
        for (step, name, value) in [(1, "policy/a/lr", lr), (2, "loss", -3.0), (2, "eval", 0.5)] {
            let metrics = [(name, value)].into_iter().collect();
            journal.append(step, &metrics, &Metrics::default(), 0.0).unwrap();
        }
        let path = dir.path().join(METRICS);
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"step\":3,").unwrap();
        let rows = Journal::metrics(dir.path()).unwrap();
        assert_eq!(rows.keys().copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(rows[&1].get("policy/a/lr"), Some(lr));
        assert_eq!((rows[&2].get("loss"), rows[&2].get("eval")), (Some(-3.0), Some(0.5)));
        assert_eq!(rows[&2].get("step"), None);
    }

    #[test]
    fn no_step_takes_no_second() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), &BTreeMap::new()).unwrap();
        assert_eq!(format!("{:.1}", journal.seconds().unwrap()), "0.0");
    }
}
