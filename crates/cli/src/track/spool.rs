//! The files of a run as what is to be sent: rows of metrics, and texts of episodes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use maverl::run_dir::{STEP_SECONDS, UNIX_TIME, episode_text, read_rollouts};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// How a run stands.
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
    /// Number of the row, from 0. Resumed runs write the same rows again.
    pub(super) index: u64,
    pub(super) step: u64,
    /// Milliseconds since 1970 at which the run wrote the row.
    pub(super) time_ms: u64,
    pub(super) metrics: BTreeMap<String, f64>,
    /// Texts of some episodes of the step, for the row of the step itself.
    pub(super) episodes: Vec<String>,
}

/// The files of a run.
pub(super) struct Spool {
    dir: PathBuf,
    /// Episodes of each step that are sent.
    episodes: usize,
}

/// Whole lines of a file.
struct Lines {
    text: String,
}

impl Lines {
    /// Reads a file; a missing one has no lines.
    fn read(path: &Path) -> io::Result<Self> {
        match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self { text: String::new() })
            }
            text => Ok(Self { text: text? }),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        self.text.split_inclusive('\n').filter(|line| line.ends_with('\n'))
    }
}

impl Spool {
    pub(super) fn new(dir: &Path, episodes: usize) -> Self {
        Self { dir: dir.to_owned(), episodes }
    }

    /// Returns at most so many rows after the first `sent` ones, and the digest of the rows of metrics up to and with each.
    pub(super) fn rows_after(&self, sent: u64, most: usize) -> io::Result<Vec<(SpoolRow, String)>> {
        let (metrics, timing) = (
            Lines::read(&self.dir.join("metrics.jsonl"))?,
            Lines::read(&self.dir.join("timing.jsonl"))?,
        );
        let mut sha = Sha256::new();
        let mut clock = self.start_ms();
        let mut rows = Vec::new();
        for ((index, line), times) in (0..).zip(metrics.iter()).zip(timing.iter()) {
            sha.update(line);
            let mut times = values(times)?;
            times.remove("step");
            clock = time_of(&times, clock);
            if index < sent {
                continue;
            }
            if rows.len() == most {
                break;
            }
            let mut metrics = values(line)?;
            let step = metrics.remove("step").unwrap_or_default() as u64;
            let is_step = times.contains_key(STEP_SECONDS);
            metrics.extend(times);
            let episodes = if is_step { self.texts(step) } else { Vec::new() };
            let row = SpoolRow { index, step, time_ms: clock, metrics, episodes };
            rows.push((row, hex(sha.clone().finalize().as_ref())));
        }
        Ok(rows)
    }

    /// Returns the digest of the first rows; `None` if there are fewer.
    pub(super) fn digest_of(&self, rows: u64) -> io::Result<Option<String>> {
        let lines = Lines::read(&self.dir.join("metrics.jsonl"))?;
        let (mut sha, mut count) = (Sha256::new(), 0);
        for line in lines.iter() {
            if count == rows {
                break;
            }
            sha.update(line);
            count += 1;
        }
        Ok((count == rows).then(|| hex(sha.finalize().as_ref())))
    }

    /// Returns the number of whole rows.
    pub(super) fn count(&self) -> io::Result<u64> {
        Ok(Lines::read(&self.dir.join("metrics.jsonl"))?.iter().count() as u64)
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
        let made = fs::metadata(self.dir.join("provenance.json")).and_then(|it| it.modified());
        let since = made.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        since.map_or(0, |since| since.as_millis() as u64)
    }

    /// Returns the texts of the first episodes of a step; none if its file is gone.
    fn texts(&self, step: u64) -> Vec<String> {
        if self.episodes == 0 {
            return Vec::new();
        }
        let path = self.dir.join(format!("rollouts/step-{step:06}.jsonl.zst"));
        let episodes = read_rollouts(&path).unwrap_or_default();
        episodes.iter().take(self.episodes).map(episode_text).collect()
    }
}

/// Returns the time of a row: its own, or else that of the row before it and the seconds of its step.
fn time_of(times: &BTreeMap<String, f64>, before_ms: u64) -> u64 {
    let ms = |seconds: f64| (seconds * 1000.0).round() as u64;
    match times.get(UNIX_TIME) {
        Some(seconds) => ms(*seconds),
        None => before_ms + ms(times.get(STEP_SECONDS).copied().unwrap_or_default()),
    }
}

fn values(line: &str) -> io::Result<BTreeMap<String, f64>> {
    let row: Map<String, Value> = serde_json::from_str(line)?;
    Ok(row.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect())
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

/// Formats bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
