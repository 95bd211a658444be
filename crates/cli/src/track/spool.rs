//! The files of a run as what is to be sent: rows of metrics, and texts of episodes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use maverl::run_dir::disk::hex;
use maverl::run_dir::{STEP_SECONDS, UNIX_TIME, episode_text, read_rollouts};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Name of the number of a row.
const STEP: &str = "step";

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

    /// Returns at most so many rows that are wanted, by their step and by whether they are those of steps, each with the digest of
    /// the rows of steps up to it.
    pub(super) fn rows_where(
        &self,
        wanted: impl Fn(u64, bool) -> bool,
        most: usize,
    ) -> io::Result<Vec<(SpoolRow, String)>> {
        let [metrics, timing] = self.files()?;
        let (mut sha, mut clock, mut rows) = (Sha256::new(), self.start_ms(), Vec::new());
        for (line, times) in metrics.iter().zip(timing.iter()) {
            let (mut metrics, mut times) = (values(line)?, values(times)?);
            let step = metrics.remove(STEP).unwrap_or_default() as u64;
            times.remove(STEP);
            let is_step = times.contains_key(STEP_SECONDS);
            if is_step {
                sha.update(line);
            }
            clock = time_of(&times, clock);
            if !wanted(step, is_step) {
                continue;
            }
            metrics.extend(times);
            let episodes = if is_step { self.texts(step) } else { Vec::new() };
            let row = SpoolRow { step, is_step, time_ms: clock, metrics, episodes };
            rows.push((row, hex(sha.clone().finalize().as_ref())));
            if rows.len() == most {
                break;
            }
        }
        Ok(rows)
    }

    /// Returns the digest of the rows of steps up to a step; `None` if they are not there.
    pub(super) fn digest_up_to(&self, last: u64) -> io::Result<Option<String>> {
        let [metrics, timing] = self.files()?;
        let (mut sha, mut reached) = (Sha256::new(), 0);
        for (line, times) in metrics.iter().zip(timing.iter()) {
            let step = values(line)?.get(STEP).copied().unwrap_or_default() as u64;
            if values(times)?.contains_key(STEP_SECONDS) && step <= last {
                sha.update(line);
                reached = step;
            }
        }
        Ok((reached == last).then(|| hex(sha.finalize().as_ref())))
    }

    /// Returns the time of the last row, or that at which the run began.
    pub(super) fn last_ms(&self) -> io::Result<u64> {
        let [_, timing] = self.files()?;
        let mut clock = self.start_ms();
        for times in timing.iter() {
            clock = time_of(&values(times)?, clock);
        }
        Ok(clock)
    }

    /// Reads the files of metrics and of times, whose rows belong together.
    fn files(&self) -> io::Result<[Lines; 2]> {
        let metrics = Lines::read(&self.dir.join("metrics.jsonl"))?;
        Ok([metrics, Lines::read(&self.dir.join("timing.jsonl"))?])
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
