//! The table of runs.

use std::fmt::Write;

use maverl::config::Preset;
use maverl::eval::{Interval, paired_interval};
use maverl_lab::measure::TrainedRun;

/// Formats the ends of an interval.
fn format_ends(interval: &Interval) -> String {
    let Interval { low, high, .. } = interval;
    if interval.is_known() { format!("{low:+.3} to {high:+.3}") } else { "unknown".to_owned() }
}

/// Result of a run.
pub(crate) struct PresetRow {
    preset: Preset,
    seed: u64,
    outcome: Result<TrainedRun, String>,
}

impl PresetRow {
    /// Creates the result of a successful run.
    pub(crate) fn trained_row(preset: Preset, seed: u64, trained: TrainedRun) -> Self {
        Self { preset, seed, outcome: Ok(trained) }
    }

    /// Creates the result of a failed run.
    pub(crate) fn failed_row(preset: Preset, seed: u64, error: &anyhow::Error) -> Self {
        Self { preset, seed, outcome: Err(format!("{error:#}").replace('\n', "; ")) }
    }

    /// Formats the result as a row of the table.
    pub(crate) fn format_line(&self) -> String {
        let head = format!("| `{}` | {} |", self.preset.name(), self.seed);
        match &self.outcome {
            Err(error) => format!("{head} | | | | failed: {error} | | |"),
            Ok(trained) => {
                let TrainedRun { steps, seconds, before, after } = trained;
                let gain = trained.mean_gain();
                let (mean, ends) = (gain.mean, format_ends(&gain));
                format!(
                    "{head} {steps} | {seconds:.0} | {:.3} | {:.3} | {mean:+.3} | {ends} | {} |",
                    before.mean(),
                    after.mean(),
                    if gain.low > 0.0 { "yes" } else { "no" },
                )
            }
        }
    }
}

/// Formats a table of every run, and of each preset over its seeds: there, the gain of a task is its mean over the
/// runs.
pub(crate) fn format_table(rows: &[PresetRow]) -> String {
    let mut text =
        "| preset | seed | steps | seconds | before | after | gain | 95 % of gain | improves |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        text += &row.format_line();
        text.push('\n');
    }
    text += "\nOver seeds:\n\n| preset | runs | tasks | gain | 95 % of gain | every run improves |\n|---|---|---|---|---|---|\n";
    let mut presets: Vec<Preset> = rows.iter().map(|row| row.preset).collect();
    presets.dedup();
    for preset in presets {
        let of: Vec<&PresetRow> = rows.iter().filter(|row| row.preset == preset).collect();
        let gains: Vec<Vec<f64>> = of
            .iter()
            .filter_map(|row| row.outcome.as_ref().ok())
            .map(|run| run.before.task_gains(&run.after))
            .collect();
        let tasks = gains.iter().map(Vec::len).min().unwrap_or(0);
        let runs = gains.len();
        if runs == 0 {
            let _ = writeln!(text, "| `{}` | 0 of {} | | | | no |", preset.name(), of.len());
            continue;
        }
        let together: Vec<f64> = (0..tasks)
            .map(|task| gains.iter().map(|gains| gains[task]).sum::<f64>() / runs as f64)
            .collect();
        let gain = paired_interval(&together);
        let every = runs == of.len() && gains.iter().all(|gains| paired_interval(gains).low > 0.0);
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {runs} of {} | {tasks} | {:+.3} | {} | {} |",
            preset.name(),
            of.len(),
            gain.mean,
            format_ends(&gain),
            if every { "yes" } else { "no" },
        );
    }
    text
}
