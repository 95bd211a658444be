//! A watched run: its numbers, and the answers about it that are computed once for the same files.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use maverl::run_dir::TRAIN;
use serde_json::Value;

use super::analyses::fall::largest_fall;
use super::analyses::groups::{largest_groups, step_groups};
use super::analyses::hacking::parts_pay;
use super::analyses::replies::{ReplyFindings, read_findings};
use super::analyses::team::last_steps;
use super::analyses::weights::GroupWeights;
use super::notices::{Evidence, Notice, find_notices};
use super::problem::ReportProblem;
use super::rows::run::ReportedRun;

/// Lengths of the files of a run, which change whenever there is something new.
type Lengths = [u64; 4];

/// A run with what was found out about it.
pub(crate) struct WatchedRun {
    pub(crate) run: Arc<ReportedRun>,
    weights: GroupWeights,
    /// Statements on replies, with the lengths of the files that they were read from.
    replies: Mutex<Option<(Lengths, ReplyFindings)>>,
    /// Notices, with the lengths of the files that they were made from.
    notices: Mutex<Option<(Lengths, Vec<Notice>)>>,
}

/// Returns the sentence of each notice on the run in a directory that needs attention, most important first, as the overview
/// of the pages shows them.
pub fn notices_of(dir: &Path) -> Vec<String> {
    let run = WatchedRun::new(ReportedRun::new(dir.to_owned(), String::new()));
    let found = run.all_notices().into_iter().filter(Notice::is_problem);
    found.map(|notice| notice.text).collect()
}

impl WatchedRun {
    /// Watches a run.
    pub(crate) fn new(run: ReportedRun) -> Self {
        Self {
            run: Arc::new(run),
            weights: GroupWeights::default(),
            replies: Mutex::default(),
            notices: Mutex::default(),
        }
    }

    /// Returns the statements on the replies of the last steps, read anew if the files have grown.
    pub(crate) fn reply_findings(&self) -> ReplyFindings {
        let lengths = self.run.lock_content().content_lengths();
        let mut known = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = known.as_ref().filter(|(of, _)| *of == lengths) {
            return found.clone();
        }
        let found = read_findings(&self.run);
        *known = Some((lengths, found.clone()));
        found
    }

    fn lock_notices(&self) -> MutexGuard<'_, Option<(Lengths, Vec<Notice>)>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what needs attention, most important first. Replies are read only if reward parts pay an agent.
    pub(crate) fn all_notices(&self) -> Vec<Notice> {
        let lengths = self.run.lock_content().content_lengths();
        if let Some((_, notices)) = self.lock_notices().as_ref().filter(|(of, _)| *of == lengths) {
            return notices.clone();
        }
        let paid = {
            let content = self.run.lock_content();
            let steps = last_steps(&content.index);
            steps.is_some_and(|steps| parts_pay(&content.index.team_sums(TRAIN, steps)))
        };
        let hacked = if paid { self.reply_findings().hacked } else { Vec::new() };
        let notices = {
            let mut content = self.run.lock_content();
            let gain = content.training_gain().map(|gain| gain.interval);
            let fall = largest_fall(&content.index);
            let warnings = &content.warnings;
            find_notices(&content.series, &Evidence { warnings, gain, fall, hacked: &hacked })
        };
        *self.lock_notices() = Some((lengths, notices.clone()));
        notices
    }

    /// Returns the line of the run in the list of runs.
    pub(crate) fn list_line(&self) -> Value {
        let notices = self.all_notices();
        self.run.lock_content().list_line(&self.run.id, &self.run.name, count_problems(&notices))
    }

    /// Describes the run.
    pub(crate) fn overview(&self) -> Value {
        let run = &self.run;
        let validations = run.validations.of_run(run.path());
        let notices = self.all_notices();
        let mut content = run.lock_content();
        let gain = content.training_gain().map(|gain| {
            let interval = gain.interval;
            object!({ "mean": interval.mean, "low": interval.low, "high": interval.high, "tasks": gain.tasks })
        });
        let line = content.list_line(&run.id, &run.name, count_problems(&notices));
        let facts = &content.facts;
        let samples = fs::read_dir(run.path().join("samples"));
        let has_samples = samples.is_ok_and(|mut entries| entries.any(|entry| entry.is_ok()));
        let (stages, _) = content.index.stages_and_seats();
        object!({
            "run": line,
            "measure": facts.summary["measure"],
            "summary": facts.summary,
            "provenance": facts.provenance,
            "plan": facts.plan,
            "before": evaluation_outcome(&facts.before),
            "after": evaluation_outcome(&facts.after),
            "gain": gain,
            "notices": notices,
            "validations": validations,
            "episodes": content.index.len(),
            "forgotten": content.index.forgotten_rows(),
            "stages": stages,
            "seats": content.seat_names(),
            "scanning": content.scanning,
            "holds": object!({ "samples": has_samples, "rows": content.rows_file().exists() }),
        })
    }

    /// Returns both configurations as text.
    pub(crate) fn configuration_texts(&self) -> Value {
        let [given, resolved] = ["config.toml", "resolved.toml"]
            .map(|file| fs::read_to_string(self.run.path().join(file)).unwrap_or_default());
        object!({ "given": given, "resolved": resolved })
    }

    /// Lists the groups of a step.
    pub(crate) fn step_groups(&self, step: u64) -> Result<Value, ReportProblem> {
        step_groups(&self.run, &self.weights, step)
    }

    /// Lists the groups of all steps with the largest weights.
    pub(crate) fn largest_groups(&self) -> Result<Value, ReportProblem> {
        largest_groups(&self.run, &self.weights)
    }
}

/// Returns the number of notices that need attention.
fn count_problems(notices: &[Notice]) -> usize {
    notices.iter().filter(|notice| !notice.is_fine()).count()
}

/// Returns the result of an evaluation; null without a report.
fn evaluation_outcome(report: &Value) -> Value {
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
