//! A watched run: what its files hold now, in memory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use maverl::eval::{Interval, paired_interval};
use maverl::run_dir::disk::read_json;
use maverl::run_dir::{PLAN, PROGRESS, RunDir};
use maverl::train::Beat;
use serde_json::Value;

use super::index::RowIndex;
use super::series::Series;
use super::tracking::Tracking;
use super::validations::Validations;
use crate::compact::collect_into;
use crate::report::reading::files::RunFiles;
use crate::report::reading::growing::{FileChange, GrowingLines};

/// Interval between two looks at the files.
pub(crate) const INTERVAL: Duration = Duration::from_millis(500);
/// Time without a change of `beat` after which a process is taken for dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// Files whose content is read whole when they change.
const WHOLE: [&str; 6] = [
    "manifest.json",
    "resolved.toml",
    "summary.json",
    PLAN,
    "evaluations/before.json",
    "evaluations/after.json",
];

/// A run.
pub(crate) struct ReportedRun {
    pub(crate) files: RunFiles,
    /// Name in lists: the path as the user wrote it.
    pub(crate) name: String,
    /// Name in addresses: that in lists in small letters, digits and `-`.
    pub(crate) id: String,
    pub(crate) validations: Validations,
    content: Mutex<RunContent>,
}

/// Content of a run's files.
pub(crate) struct RunContent {
    /// Content of files that are written whole.
    pub(crate) facts: WholeFiles,
    /// Reason why the run cannot be read.
    pub(crate) problem: Option<String>,
    pub(crate) series: Series,
    pub(crate) index: RowIndex,
    /// Rows of `warnings.jsonl`.
    pub(crate) warnings: Vec<Value>,
    /// Progress of the process that writes the run.
    pub(crate) beat: Option<Beat>,
    pub(crate) pulse: Pulse,
    /// Files of episodes that still have no rows, and all of them; of a run without rows.
    pub(crate) scanning: Option<(usize, usize)>,
    /// Number of times that earlier lines stopped counting.
    pub(crate) resets: u64,
    metrics: GrowingLines,
    timing: GrowingLines,
    rows: GrowingLines,
    notes: GrowingLines,
    stamps: Vec<Option<(u64, SystemTime)>>,
    /// Number of times that files that are written whole were read.
    read: usize,
    polled: Option<Instant>,
    gain: Option<([usize; 2], Option<TrainingGain>)>,
    tracking: Tracking,
}

/// Content of files that are written whole; null if a file does not exist.
#[derive(Debug, Default, Clone)]
pub(crate) struct WholeFiles {
    /// Configuration with every default.
    pub(crate) config: Value,
    pub(crate) provenance: Value,
    pub(crate) plan: Value,
    pub(crate) summary: Value,
    pub(crate) before: Value,
    pub(crate) after: Value,
}

/// Life of the process that writes a run. No clocks are compared: the process is alive if its beat changes.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beat: Option<u64>,
    seen: Option<Instant>,
    changed: Option<Instant>,
}

/// Difference of solved tasks after and before training, paired by task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrainingGain {
    pub(crate) interval: Interval,
    pub(crate) tasks: usize,
}

impl Pulse {
    /// Takes in the beat that was found at a time.
    fn observe_beat(&mut self, beat: Option<u64>, now: Instant) {
        if beat.is_some() && self.beat.is_some() && beat != self.beat {
            self.changed = Some(now);
        }
        if beat.is_none() {
            (self.seen, self.changed) = (None, None);
        } else if self.seen.is_none() {
            self.seen = Some(now);
        }
        self.beat = beat;
    }

    /// Returns `running`, `checking` as long as it is not known, or `stopped`.
    fn state(&self, now: Instant) -> &'static str {
        let [changed, seen] =
            [self.changed, self.seen].map(|at| at.is_some_and(|at| now - at < PATIENCE));
        match () {
            () if changed => "running",
            () if self.changed.is_none() && seen => "checking",
            () => "stopped",
        }
    }
}

impl ReportedRun {
    pub(crate) fn new(path: PathBuf, name: String) -> Self {
        let content = RunContent {
            facts: WholeFiles::default(),
            problem: None,
            series: Series::default(),
            index: RowIndex::default(),
            warnings: Vec::new(),
            beat: None,
            pulse: Pulse::default(),
            scanning: None,
            resets: 0,
            metrics: GrowingLines::new(path.join("metrics.jsonl")),
            timing: GrowingLines::new(path.join("timing.jsonl")),
            rows: GrowingLines::new(path.join("episodes.jsonl")),
            notes: GrowingLines::new(path.join("warnings.jsonl")),
            stamps: Vec::new(),
            read: 0,
            polled: None,
            gain: None,
            tracking: Tracking::default(),
        };
        Self {
            files: RunFiles::new(path),
            id: name.clone(),
            name,
            validations: Validations::default(),
            content: Mutex::new(content),
        }
    }

    /// Sets the name in addresses.
    pub(crate) fn with_id(self, id: String) -> Self {
        Self { id, ..self }
    }

    /// Returns the directory of the run.
    pub(crate) fn path(&self) -> &Path {
        self.files.path()
    }

    /// Returns the content of the files, which is at most half a second old.
    pub(crate) fn lock_content(&self) -> MutexGuard<'_, RunContent> {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if content.polled.is_none_or(|at| at.elapsed() >= INTERVAL) {
            content.poll(self.path());
            content.polled = Some(Instant::now());
        }
        content
    }
}

impl RunContent {
    /// Looks at every file, and reads what is new.
    fn poll(&mut self, path: &Path) {
        let problem = self.poll_whole(path).err();
        let grown = self.poll_growing().err().map(|error| error.to_string());
        self.problem = problem.or(grown);
        self.tracking.poll(path, [self.metrics.bytes(), self.timing.bytes()]);
        // Replaced while it is read, a file may be gone for a moment.
        self.beat = fs::read(path.join(PROGRESS))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        self.pulse.observe_beat(self.beat.as_ref().map(|beat| beat.beat), Instant::now());
    }

    /// Reads files that are written whole, if one of them has changed.
    fn poll_whole(&mut self, path: &Path) -> Result<(), String> {
        let stamps: Vec<_> = WHOLE
            .iter()
            .map(|file: &&str| {
                let found = fs::metadata(path.join(file)).ok()?;
                Some((found.len(), found.modified().ok()?))
            })
            .collect();
        if stamps == self.stamps {
            return self.problem.clone().map_or(Ok(()), Err);
        }
        let dir = RunDir::open(path).map_err(|error| error.to_string())?;
        let text = fs::read_to_string(dir.resolved()).map_err(|error| error.to_string())?;
        let config: toml::Value = toml::from_str(&text).map_err(|error| error.to_string())?;
        let config = serde_json::to_value(config).map_err(|error| error.to_string())?;
        let [before, after] = ["evaluations/before.json", "evaluations/after.json"];
        let [provenance, plan, summary, before, after] =
            ["provenance.json", PLAN, "summary.json", before, after]
                .map(|file| read_json(&path.join(file)).unwrap_or(Value::Null));
        self.facts = WholeFiles { config, provenance, plan, summary, before, after };
        self.stamps = stamps;
        self.read += 1;
        Ok(())
    }

    /// Reads new lines of both files of metrics. Returns true if one of them shrank.
    fn poll_series(&mut self) -> io::Result<bool> {
        let mut shrank = false;
        for file in [&mut self.metrics, &mut self.timing] {
            let change =
                file.poll(&mut self.series, |_| {}, |series, _, line| series.add_line(line))?;
            shrank |= change == FileChange::Reset;
        }
        Ok(shrank)
    }

    /// Reads new lines of growing files.
    fn poll_growing(&mut self) -> io::Result<()> {
        // Both files are cut back to the same step: one that shrank means that both are read anew.
        if self.poll_series()? {
            self.series = Series::default();
            for file in [&mut self.metrics, &mut self.timing] {
                *file = GrowingLines::new(file.path().to_owned());
            }
            self.poll_series()?;
            self.resets += 1;
        }
        let rows = self.rows.poll(&mut self.index, RowIndex::clear_read, RowIndex::add_line)?;
        let notes = self.notes.poll(&mut self.warnings, Vec::clear, |warnings, _, line| {
            warnings.extend(serde_json::from_slice::<Value>(line).ok());
        })?;
        self.resets += u64::from(rows == FileChange::Reset || notes == FileChange::Reset);
        Ok(())
    }

    /// Returns the path of `episodes.jsonl`.
    pub(crate) fn rows_file(&self) -> &Path {
        self.rows.path()
    }

    /// Returns lengths that change whenever there is something new.
    pub(crate) fn content_lengths(&self) -> [u64; 4] {
        let made = self.index.len() as u64;
        [self.metrics.bytes(), self.rows.bytes() + made, self.notes.bytes(), self.resets]
    }

    /// Returns the state: `complete`, `running`, `checking`, `stopped` or `unreadable`.
    pub(crate) fn state(&self) -> &'static str {
        let WholeFiles { summary, config, .. } = &self.facts;
        let complete = summary["complete"] == true && summary["steps"] == config["steps"];
        match () {
            () if self.problem.is_some() => "unreadable",
            () if self.beat.is_some() => self.pulse.state(Instant::now()),
            () if complete => "complete",
            () => "stopped",
        }
    }

    /// Returns the share of solved episodes of each held-out task before or after training: those of the report, or those
    /// of the rows of a run whose reports have no tasks.
    pub(crate) fn task_outcomes(&self, name: &str) -> BTreeMap<String, f64> {
        let report = if name == "before" { &self.facts.before } else { &self.facts.after };
        let tasks = report["sampled"]["tasks"].as_array().into_iter().flatten();
        let reported: BTreeMap<String, f64> = collect_into(tasks.filter_map(|task: &Value| {
            let key = format!("{}/{}", task["source"].as_str()?, task["id"].as_str()?);
            Some((key, task["solved"].as_f64()? / task["episodes"].as_f64()?))
        }));
        if !reported.is_empty() {
            return reported;
        }
        let rows = self.index.solved_by_task(name).into_iter();
        collect_into(rows.map(|(task, share)| (task.to_owned(), share)))
    }

    /// Returns the gain over training; `None` if no task has a scored episode both before and after.
    pub(crate) fn training_gain(&mut self) -> Option<TrainingGain> {
        let rows = [self.index.len(), self.read];
        if let Some((_, gain)) = self.gain.filter(|(of, _)| *of == rows) {
            return gain;
        }
        let (before, after) = (self.task_outcomes("before"), self.task_outcomes("after"));
        let both = before.iter().filter_map(|(task, before)| Some(after.get(task)? - before));
        let differences: Vec<f64> = both.collect();
        let tasks = differences.len();
        let gain =
            (tasks > 0).then(|| TrainingGain { interval: paired_interval(&differences), tasks });
        self.gain = Some((rows, gain));
        gain
    }

    /// Returns the seats in the order of the plan; those of episodes if the run has no plan.
    pub(crate) fn seat_names(&self) -> Vec<String> {
        let plan = &self.facts.plan;
        let mut seats = seats_of(&plan["summary"]["seats"]);
        seats.extend(seats_of(&plan["endpoints"]));
        let (_, found) = self.index.stages_and_seats();
        let mut others: Vec<String> =
            found.iter().filter(|seat| !seats.contains(seat)).cloned().collect();
        others.sort();
        seats.extend(others);
        seats
    }

    /// Returns the line of the run in the list of runs. `notices` is the number of those that are problems.
    pub(crate) fn list_line(&self, id: &str, name: &str, notices: usize) -> Value {
        let WholeFiles { config, before, after, .. } = &self.facts;
        let [before, after] =
            [before, after].map(|report| report["sampled"]["overall"]["avg"].clone());
        let step = self.series.last_step().unwrap_or(0);
        object!({
            "r": id,
            "name": name,
            "state": self.state(),
            "problem": self.problem,
            "step": step,
            "steps": config["steps"],
            "seed": config["seed"],
            "algorithm": config["algorithm"]["name"],
            "orchestra": config["orchestra"]["name"],
            "before": before,
            "after": after,
            "progress": self.beat,
            "notices": notices,
            "tracking": self.tracking.sentences(),
        })
    }
}

/// Returns the seats of a list in a plan.
fn seats_of(list: &Value) -> Vec<String> {
    let seats = list.as_array().into_iter().flatten();
    seats.filter_map(|seat| seat["seat"].as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_process_is_alive_while_its_beat_changes() {
        let (mut pulse, start) = (Pulse::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        pulse.observe_beat(Some(7), at(0));
        assert_eq!((pulse.state(at(1)), pulse.state(at(11))), ("checking", "stopped"));
        pulse.observe_beat(Some(7), at(2));
        assert_eq!(pulse.state(at(3)), "checking");
        pulse.observe_beat(Some(8), at(4));
        assert_eq!((pulse.state(at(5)), pulse.state(at(15))), ("running", "stopped"));
        pulse.observe_beat(None, at(16));
        assert_eq!(pulse.state(at(16)), "stopped");
    }

    #[test]
    fn what_is_no_run_says_why() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("manifest.json"), "{\"format\": 99}").unwrap();
        let run = ReportedRun::new(dir.path().to_owned(), "a".to_owned());
        assert_eq!(run.lock_content().state(), "unreadable");
        let line = run.lock_content().list_line("a", "a", 0);
        assert!(line["problem"].as_str().unwrap().contains("format 99"), "{line}");
        assert_eq!(run.files.episodes_file("../../etc", 1), None);
    }
}
