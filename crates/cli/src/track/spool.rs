//! The files of a run as what is to be sent: rows of metrics, and texts of episodes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use maverl::run_dir::{episode_text, read_first_rollouts};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reader::{RowPlace, RowReader, WrittenRow};

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunState {
    /// A process may still write rows.
    Running,
    /// All steps are done.
    Complete,
    /// It was stopped in order.
    Stopped,
    /// Its process has ended without a summary.
    Failed,
}

/// A row of `metrics.jsonl`, with that of `timing.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SpoolRow {
    pub(super) step: u64,
    /// True for the row of a step, false for that of an evaluation before or after training.
    pub(super) is_step: bool,
    /// Milliseconds since 1970 at which the run wrote the row.
    pub(super) time_ms: u64,
    pub(super) metrics: BTreeMap<String, f64>,
    /// Texts of some episodes of the step, for the row of the step itself.
    pub(super) episodes: Vec<String>,
}

impl SpoolRow {
    /// Returns a name that no other row of the run has.
    pub(super) fn name(&self) -> String {
        let kind = if self.is_step { "step" } else { "evaluation" };
        format!("{}:{kind}", self.step)
    }
}

/// The files of a run.
pub(super) struct Spool {
    dir: PathBuf,
    /// Episodes of each step that are sent.
    episodes: usize,
    /// Place before which every row is sent.
    sent: RowPlace,
}

impl Spool {
    pub(super) fn new(dir: &Path, episodes: usize) -> Self {
        Self { dir: dir.to_owned(), episodes, sent: RowPlace::start(start_ms(dir)) }
    }

    /// Returns at most so many rows that are wanted, by their step and by whether they are those of steps, each with the digest of
    /// the rows of steps up to it. Rows that are not wanted, before the first that is, are not read again.
    pub(super) fn rows_where(
        &mut self,
        wanted: impl Fn(u64, bool) -> bool,
        most: usize,
    ) -> io::Result<Vec<(SpoolRow, String)>> {
        let mut rows = Vec::new();
        let Some(mut reader) = self.reader_at(&self.sent)? else { return Ok(rows) };
        while rows.len() < most
            && let Some(row) = reader.next_row()?
        {
            if wanted(row.step, row.is_step) {
                rows.push((self.spool_row(row, reader.place.clock_ms), reader.place.digest()));
            } else if rows.is_empty() {
                self.sent = reader.place.clone();
            }
        }
        Ok(rows)
    }

    fn spool_row(&self, row: WrittenRow, time_ms: u64) -> SpoolRow {
        let WrittenRow { step, is_step, values } = row;
        let episodes = if is_step { self.texts(step) } else { Vec::new() };
        SpoolRow { step, is_step, time_ms, metrics: values, episodes }
    }

    /// Returns the digest of the rows of steps up to a step; `None` if they are not there.
    pub(super) fn digest_up_to(&self, last: u64) -> io::Result<Option<String>> {
        let start = RowPlace::start(self.start_ms());
        let (mut digest, mut reached) = (start.digest(), 0);
        let Some(mut reader) = self.reader_at(&start)? else { return Ok(None) };
        while reached < last
            && let Some(row) = reader.next_row()?
        {
            if row.is_step {
                (digest, reached) = (reader.place.digest(), row.step);
            }
        }
        Ok((reached == last).then_some(digest))
    }

    /// Returns the time of the last row, or that at which the run began.
    pub(super) fn last_ms(&self) -> io::Result<u64> {
        let Some(mut reader) = self.reader_at(&self.sent)? else { return Ok(self.start_ms()) };
        while reader.next_row()?.is_some() {}
        Ok(reader.place.clock_ms)
    }

    /// Opens the files of metrics and of times.
    fn reader_at(&self, place: &RowPlace) -> io::Result<Option<RowReader>> {
        RowReader::open(&self.dir, place, RowPlace::start(self.start_ms()))
    }

    /// Returns the configuration with every default, as keys and values.
    pub(super) fn settings(&self) -> BTreeMap<String, String> {
        let text = fs::read_to_string(self.dir.join("resolved.toml")).unwrap_or_default();
        let mut settings = BTreeMap::new();
        if let Ok(table) = text.parse::<toml::Table>() {
            flatten("", &toml::Value::Table(table), &mut settings);
        }
        settings.retain(|key, _| !key.starts_with("track.") && key != "base");
        settings
    }

    /// Returns how the run stands, where `alive` says whether a process trains it.
    pub(super) fn state(&self, alive: bool) -> RunState {
        let summary = fs::read(self.dir.join("summary.json")).ok();
        let summary: Option<Value> = summary.and_then(|text| serde_json::from_slice(&text).ok());
        match summary {
            Some(summary) if summary["complete"] == true => RunState::Complete,
            Some(_) => RunState::Stopped,
            None if alive => RunState::Running,
            None => RunState::Failed,
        }
    }

    /// Returns the time at which the run began, as far as its files say it.
    pub(super) fn start_ms(&self) -> u64 {
        start_ms(&self.dir)
    }

    /// Returns the texts of the first episodes of a step; none if its file is gone.
    fn texts(&self, step: u64) -> Vec<String> {
        if self.episodes == 0 {
            return Vec::new();
        }
        let path = self.dir.join(format!("rollouts/step-{step:06}.jsonl.zst"));
        let episodes = read_first_rollouts(&path, self.episodes).unwrap_or_default();
        episodes.iter().map(episode_text).collect()
    }
}

/// Returns the time at which a run began, in milliseconds since 1970: that of its first file.
fn start_ms(dir: &Path) -> u64 {
    let made = fs::metadata(dir.join("provenance.json")).and_then(|it| it.modified());
    let since = made.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_millis() as u64)
}

fn flatten(prefix: &str, value: &toml::Value, into: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&key, value, into);
            }
        }
        toml::Value::String(text) => drop(into.insert(prefix.to_owned(), text.clone())),
        other => drop(into.insert(prefix.to_owned(), other.to_string())),
    }
}
