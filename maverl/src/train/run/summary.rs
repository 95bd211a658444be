//! Results of a run.
//!
//! A new field of `summary.json` has `#[serde(default)]`, and its value comes from `finish` in `run.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checkpoint::Best;
use crate::eval::EvalReport;
use crate::metrics::SeatSummary;
use crate::table::{Table, paragraphs};
use crate::train::progress::commands::{has_view, resume_command, view_command};
use crate::trajectory::Seat;

/// Complete evaluation before or after training; `evaluations/before.json` and `after.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evaluation {
    /// Report at the training temperature, or that of `[eval]`.
    pub sampled: EvalReport,
    /// Report at temperature 0.
    pub greedy: EvalReport,
}

/// Evaluation in the summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SplitScore {
    /// Share of solved episodes at the training temperature.
    pub exact_match: f64,
    /// 95 % confidence interval of the share.
    pub interval: (f64, f64),
    /// Share at temperature 0.
    pub greedy: f64,
    /// Number of tasks.
    pub tasks: u64,
}

impl From<&Evaluation> for SplitScore {
    fn from(evaluation: &Evaluation) -> Self {
        let overall = &evaluation.sampled.overall;
        Self {
            exact_match: overall.avg.mean,
            interval: (overall.avg.low, overall.avg.high),
            greedy: evaluation.greedy.exact_match(),
            tasks: overall.tasks,
        }
    }
}

/// Results of a run; `summary.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunSummary {
    /// True if all steps and the evaluation after them are done.
    pub complete: bool,
    /// Completed steps.
    pub steps: u64,
    /// Seed of the run, from which every other seed derives.
    pub seed: u64,
    /// Name that the environment gives to the share of solved episodes.
    #[serde(default = "solved_header")]
    pub measure: String,
    /// Evaluation before the first step.
    pub before: Option<SplitScore>,
    /// Evaluation after the last step.
    pub after: Option<SplitScore>,
    /// Best validation.
    pub best: Option<Best>,
    /// Seconds of training, evaluations excluded.
    pub train_seconds: f64,
    /// Statistics of each seat over all training episodes.
    pub agents: BTreeMap<Seat, SeatSummary>,
}

fn solved_header() -> String {
    "solved".to_owned()
}

impl RunSummary {
    /// Formats the summary in lines of at most `width` columns: solved shares before and after, each agent, the run
    /// directory.
    pub fn table(&self, dir: &Path, width: usize) -> String {
        let last = if self.complete {
            format!("; {}", dir.display())
        } else {
            format!(", not complete; go on with `{}`", resume_command(dir))
        };
        self.ending(&last, width)
    }

    /// Formats the results alone, in lines of at most `width` columns.
    pub(crate) fn results(&self, width: usize) -> String {
        self.ending("", width)
    }

    /// Formats the results, with the end of their last line.
    fn ending(&self, last: &str, width: usize) -> String {
        let measure = format!("{} (95 %)", self.measure);
        let scores = table(
            &["", &measure, "greedy", "tasks"],
            [("before", &self.before), ("after", &self.after)].into_iter().filter_map(
                |(when, score)| {
                    let score = score.as_ref()?;
                    let (low, high) = score.interval;
                    let share = format!("{:.3} ({low:.3} to {high:.3})", score.exact_match);
                    Some(vec![
                        when.into(),
                        share,
                        format!("{:.3}", score.greedy),
                        score.tasks.to_string(),
                    ])
                },
            ),
        );
        let agents = table(
            &["agent", "calls", "reply errors", "truncated", "reward"],
            self.agents.iter().map(|(seat, agent)| {
                let mut row = vec![seat.to_string(), agent.calls.to_string()];
                if agent.calls == 0 {
                    // A seat that was never called has no rates.
                    row.extend(["-"; 3].map(str::to_owned));
                } else {
                    row.push(format!("{:.1} %", 100.0 * agent.reply_error_rate));
                    row.push(format!("{:.1} %", 100.0 * agent.truncated_rate));
                    row.push(format!("{:.3}", agent.reward_mean));
                }
                row
            }),
        );
        let steps = if self.steps == 1 { "step" } else { "steps" };
        let done = format!("{} {steps} in {:.1} s{last}", self.steps, self.train_seconds);
        let tables = [scores, agents].into_iter().flatten();
        let parts = tables.map(|table| table.draw(width)).chain([paragraphs(&done, width)]);
        parts.collect::<Vec<_>>().join("\n")
    }
}

/// Result of [`fn@crate::train`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Run directory.
    pub dir: PathBuf,
    /// Content of its `summary.json`.
    pub summary: RunSummary,
    /// True if the run was asked to stop and did; it can be resumed.
    pub interrupted: bool,
}

impl Report {
    /// Returns the exit code of a command that trains: 0, or 130 if it was interrupted.
    pub fn exit_code(&self) -> u8 {
        if self.interrupted { 130 } else { 0 }
    }

    /// Formats the summary in lines of at most `width` columns. Of a complete run, names the command to look at it.
    pub fn table(&self, width: usize) -> String {
        let summary = self.summary.table(&self.dir, width);
        if !self.summary.complete {
            return summary;
        }
        let look = match view_command(&self.dir) {
            Some(command) if has_view() => format!("look at it with `{command}`"),
            Some(command) => {
                format!(
                    "look at it with `{command}`, which builds this program with the feature `view`"
                )
            }
            None => format!("to look at it: {}", crate::lacks_feature!("view", "maverl-cli")),
        };
        format!("{summary}\n{}", paragraphs(&look, width))
    }
}

/// Returns a table, `None` if it has no row.
fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Option<Table> {
    let mut table = Table::with_frame(header.iter().copied());
    rows.for_each(|row| table.row(row));
    (!table.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_run_ends_with_the_command_to_look_at_it() {
        let summary = RunSummary {
            complete: true,
            steps: 3,
            seed: 7,
            measure: "goal met".to_owned(),
            before: None,
            after: None,
            best: None,
            train_seconds: 1.5,
            agents: BTreeMap::new(),
        };
        let mut report = Report { dir: "runs/a b".into(), summary, interrupted: false };
        // The line is long, and wrapped.
        let table = report.table(200).replace("\n  ", " ");
        // Pages are of a crate above this one, which its tests do not have.
        assert!(table.contains("\nlook at it with `cargo run "), "{table}");
        assert!(table.contains("--features view"), "{table}");
        assert!(table.contains(" -- view 'runs/a b'`"), "{table}");
        report.summary.complete = false;
        assert!(!report.table(120).contains("view"));
    }

    #[test]
    fn the_table_shows_before_and_after_the_agents_and_the_directory() {
        let score =
            |exact_match| SplitScore { exact_match, interval: (0.1, 0.9), greedy: 0.5, tasks: 512 };
        let agent = SeatSummary {
            calls: 12,
            reply_error_rate: 0.25,
            truncated_rate: 0.0,
            reward_mean: 0.5,
        };
        let mut summary = RunSummary {
            complete: true,
            steps: 3,
            seed: 7,
            measure: "goal met".to_owned(),
            before: Some(score(0.375)),
            after: Some(score(0.875)),
            best: None,
            train_seconds: 1.5,
            agents: BTreeMap::from([
                (Seat::at("debate/debater", 2), agent),
                (Seat::only("debate/judge"), SeatSummary { calls: 0, ..agent }),
            ]),
        };
        let text = summary.table(Path::new("runs/a"), 80);
        for part in [
            "goal met (95 %)",
            "0.375",
            "0.875",
            "debate/debater#2",
            "25.0 %",
            "runs/a",
            "3 steps in 1.5 s;",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let judge = text.lines().find(|line| line.contains("debate/judge"));
        let words: Vec<&str> = judge.unwrap_or_default().split_whitespace().collect();
        assert_eq!(words, ["|", "debate/judge", "0", "-", "-", "-", "|"], "{text}");
        summary.before = None;
        summary.after = None;
        summary.complete = false;
        let text = summary.table(Path::new("runs/a b"), 80);
        let end = "3 steps in 1.5 s, not complete; go on with `maverl train --resume 'runs/a b'`";
        assert!(!text.contains("greedy") && text.ends_with(end), "{text}");
    }
}
