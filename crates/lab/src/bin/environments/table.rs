//! The table of runs.

use anyhow::{Error, Result};
use maverl::eval::Interval;
use maverl::plan::Plan;
use maverl_lab::measure::TrainedRun;
use serde_json::Value;

/// Result of a run.
pub(crate) struct ExampleRow {
    example: String,
    outcome: Result<ExampleRun, String>,
}

struct ExampleRun {
    orchestra: String,
    environment: String,
    /// Mean reward of an episode in the first and the last tenth of the steps.
    reward: (f64, f64),
    /// Number of steps in which every group had equal rewards.
    flat: usize,
    trained: TrainedRun,
}

impl ExampleRow {
    /// Creates the result of a successful run, with its `metrics.jsonl`.
    pub(crate) fn trained_row(
        example: &str,
        plan: &Plan,
        trained: TrainedRun,
        metrics: &str,
    ) -> Result<Self> {
        let rows: Vec<Value> =
            metrics.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let [rewards, flat] = ["rollout/score_mean", "group/flat_steps"]
            .map(|name| rows.iter().filter_map(|row| row[name].as_f64()).collect::<Vec<_>>());
        let tenth = rewards.len().div_ceil(10);
        let [first, last] = [&rewards[..tenth], &rewards[rewards.len() - tenth..]]
            .map(|part| part.iter().sum::<f64>() / part.len() as f64);
        let run = ExampleRun {
            orchestra: plan.orchestra.name.clone(),
            environment: plan.environment.name.clone(),
            reward: (first, last),
            flat: flat.into_iter().filter(|flat| *flat > 0.0).count(),
            trained,
        };
        Ok(Self { example: example.to_owned(), outcome: Ok(run) })
    }

    /// Creates the result of a failed run.
    pub(crate) fn failed_row(example: &str, error: &Error) -> Self {
        let error = format!("{error:#}").replace('\n', "; ");
        Self { example: example.to_owned(), outcome: Err(error) }
    }

    /// Formats the result as a row of the table.
    pub(crate) fn format_line(&self) -> String {
        let ExampleRun { orchestra, environment, reward, flat, trained } = match &self.outcome {
            Ok(run) => run,
            Err(error) => return format!("| `{}` | | | failed: {error} | | | | | |", self.example),
        };
        let Interval { mean, low, high } = trained.mean_gain();
        format!(
            "| `{}` | `{orchestra}` | {environment} | {:.3} | {:.3} | {mean:+.3} ({low:+.3} to {high:+.3}) | {:.3} to {:.3} | {} \
             ({flat}) | {:.0} |",
            self.example,
            trained.before.mean(),
            trained.after.mean(),
            reward.0,
            reward.1,
            trained.steps,
            trained.seconds,
        )
    }
}

/// Formats a table of every run.
pub(crate) fn format_table(rows: &[ExampleRow]) -> String {
    let head = "| example | orchestra | environment | start | end | gain (95 %) | reward in training | steps (flat) | seconds |\n\
                |---|---|---|---|---|---|---|---|---|\n";
    rows.iter().fold(head.to_owned(), |table, row| table + &row.format_line() + "\n")
}
