//! A watched run: its numbers, and the answers about it that are computed once for the same files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use maverl::run_dir::TRAIN;
use serde_json::Value;

use super::analyses::fall::largest_fall;
use super::analyses::groups::{largest_groups, step_groups};
use super::analyses::hacking::parts_pay;
use super::analyses::replies::{ReplyFindings, read_findings};
use super::analyses::team::last_steps;
use super::analyses::weights::GroupWeights;
use super::notices::{Evidence, Notice, find_notices};
use super::problem::Problem;
use super::rows::run::Run;

/// Lengths of the files of a run, which change whenever there is something new.
type Lengths = [u64; 4];

/// A run with what was found out about it.
pub(crate) struct WatchedRun {
    pub(crate) run: Arc<Run>,
    weights: GroupWeights,
    /// Statements on replies, with the lengths of the files that they were read from.
    replies: Mutex<Option<(Lengths, ReplyFindings)>>,
    /// Notices, with the lengths of the files that they were made from.
    notices: Mutex<Option<(Lengths, Vec<Notice>)>>,
}

/// Returns the sentence of each notice on the run in a directory that needs attention, most important first, as the overview
/// of the pages shows them.
pub fn notices_of(dir: &Path) -> Vec<String> {
    let run = WatchedRun::new(Run::new(dir.to_owned(), String::new()));
    let found = run.notices().into_iter().filter(Notice::is_problem);
    found.map(|notice| notice.text).collect()
}

impl WatchedRun {
    /// Watches a run.
    pub(crate) fn new(run: Run) -> Self {
        Self {
            run: Arc::new(run),
            weights: GroupWeights::default(),
            replies: Mutex::default(),
            notices: Mutex::default(),
        }
    }

    /// Returns the statements on the replies of the last steps, read anew if the files have grown.
    pub(crate) fn replies(&self) -> ReplyFindings {
        let lengths = self.run.now().lengths();
        let mut known = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = known.as_ref().filter(|(of, _)| *of == lengths) {
            return found.clone();
        }
        let found = read_findings(&self.run);
        *known = Some((lengths, found.clone()));
        found
    }

    /// Returns what needs attention, most important first. Replies are read only if reward parts pay an agent.
    pub(crate) fn notices(&self) -> Vec<Notice> {
        let lengths = self.run.now().lengths();
        let known = || self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, notices)) = known().as_ref().filter(|(of, _)| *of == lengths) {
            return notices.clone();
        }
        let paid = {
            let content = self.run.now();
            let steps = last_steps(&content.index);
            steps.is_some_and(|steps| parts_pay(&content.index.team(TRAIN, steps)))
        };
        let hacked = if paid { self.replies().hacked } else { Vec::new() };
        let notices = {
            let mut content = self.run.now();
            let gain = content.gain().map(|gain| gain.interval);
            let fall = largest_fall(&content.index);
            let warnings = &content.warnings;
            find_notices(&content.series, &Evidence { warnings, gain, fall, hacked: &hacked })
        };
        *known() = Some((lengths, notices.clone()));
        notices
    }

    /// Returns the line of the run in the list of runs.
    pub(crate) fn line(&self) -> Value {
        let notices = self.notices();
        self.run.now().line(&self.run.id, &self.run.name, problems(&notices))
    }

    /// Describes the run.
    pub(crate) fn overview(&self) -> Value {
        let run = &self.run;
        let validations = run.validations.of(run.path());
        let notices = self.notices();
        let mut content = run.now();
        let gain = content.gain().map(|gain| {
            let interval = gain.interval;
            object!({ "mean": interval.mean, "low": interval.low, "high": interval.high, "tasks": gain.tasks })
        });
        let line = content.line(&run.id, &run.name, problems(&notices));
        let facts = &content.facts;
        let samples = fs::read_dir(run.path().join("samples"));
        let has_samples = samples.is_ok_and(|mut entries| entries.any(|entry| entry.is_ok()));
        let (stages, _) = content.index.names();
        object!({
            "run": line,
            "measure": facts.summary["measure"],
            "summary": facts.summary,
            "provenance": facts.provenance,
            "plan": facts.plan,
            "before": outcome(&facts.before),
            "after": outcome(&facts.after),
            "gain": gain,
            "notices": notices,
            "validations": validations,
            "episodes": content.index.len(),
            "forgotten": content.index.forgotten(),
            "stages": stages,
            "seats": content.seats(),
            "scanning": content.scanning,
            "holds": object!({ "samples": has_samples, "rows": content.rows_file().exists() }),
        })
    }

    /// Returns both configurations as text.
    pub(crate) fn configurations(&self) -> Value {
        let text = |file: &str| -> String {
            let path: PathBuf = self.run.path().join(file);
            fs::read_to_string(path).unwrap_or_default()
        };
        object!({ "given": text("config.toml"), "resolved": text("resolved.toml") })
    }

    /// Lists the groups of a step.
    pub(crate) fn step_groups(&self, step: u64) -> Result<Value, Problem> {
        step_groups(&self.run, &self.weights, step)
    }

    /// Lists the groups of all steps with the largest weights.
    pub(crate) fn largest_groups(&self) -> Result<Value, Problem> {
        largest_groups(&self.run, &self.weights)
    }
}

/// Returns the number of notices that need attention.
fn problems(notices: &[Notice]) -> usize {
    notices.iter().filter(|notice| !notice.is_fine()).count()
}

/// Returns the result of an evaluation; null without a report.
fn outcome(report: &Value) -> Value {
    match report {
        Value::Null => Value::Null,
        report => object!({
            "split": report["sampled"]["split"],
            "samples": report["sampled"]["samples"],
            "unscored": report["sampled"]["unscored"],
            "overall": report["sampled"]["overall"],
            "greedy": report["greedy"]["overall"]["avg"],
        }),
    }
}
