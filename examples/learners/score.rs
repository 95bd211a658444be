//! What was solved, how sure an improvement is, and the table of both.

use std::collections::BTreeMap;
use std::fmt::Write;

use maverl::config::Preset;
use maverl::draw::Draw;
use maverl::trajectory::Episode;

/// Samples of tasks, drawn with replacement.
const RESAMPLES: usize = 10_000;

/// Which tasks were solved, by source and id.
#[derive(Clone, Default)]
pub(crate) struct Scores(BTreeMap<(String, String), f64>);

impl Scores {
    /// Of episodes, one of each task; what could not be scored is left out.
    pub(crate) fn of(episodes: &[Episode]) -> Self {
        let scored = episodes.iter().filter_map(|episode| {
            let key = (episode.task.source.clone(), episode.task.id.clone());
            Some((key, f64::from(u8::from(episode.score()?.solved))))
        });
        Self(scored.collect())
    }

    /// How many.
    pub(crate) fn tasks(&self) -> usize {
        self.0.len()
    }

    fn mean(&self) -> f64 {
        self.0.values().sum::<f64>() / self.0.len().max(1) as f64
    }

    /// What each task gained, in the order of the tasks.
    fn gains(&self, after: &Self) -> Vec<f64> {
        self.0.iter().filter_map(|(task, before)| Some(after.0.get(task)? - before)).collect()
    }
}

/// A run.
pub(crate) struct Row {
    preset: Preset,
    seed: u64,
    outcome: Result<Trained, String>,
}

struct Trained {
    steps: u64,
    seconds: f64,
    before: Scores,
    after: Scores,
}

impl Row {
    /// A run that ended well.
    pub(crate) fn trained(
        preset: Preset,
        seed: u64,
        (steps, seconds): (u64, f64),
        before: Scores,
        after: Scores,
    ) -> Self {
        Self { preset, seed, outcome: Ok(Trained { steps, seconds, before, after }) }
    }

    /// A run that did not.
    pub(crate) fn failed(preset: Preset, seed: u64, error: &anyhow::Error) -> Self {
        Self { preset, seed, outcome: Err(format!("{error:#}").replace('\n', "; ")) }
    }

    /// As a row of the table.
    pub(crate) fn line(&self) -> String {
        let head = format!("| `{}` | {} |", self.preset.name(), self.seed);
        match &self.outcome {
            Err(error) => format!("{head} | | | | failed: {error} | | |"),
            Ok(Trained { steps, seconds, before, after }) => {
                let gains = before.gains(after);
                let (low, high) = interval(&gains);
                format!(
                    "{head} {steps} | {seconds:.0} | {:.3} | {:.3} | {:+.3} | {low:+.3} to {high:+.3} | {} |",
                    before.mean(),
                    after.mean(),
                    mean(&gains),
                    if low > 0.0 { "yes" } else { "no" },
                )
            }
        }
    }
}

/// Every run, and each preset over its seeds: there a task gains the mean of what it gained in the runs.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text =
        "| preset | seed | steps | seconds | before | after | gain | 95 % of gain | improves |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        text += &row.line();
        text.push('\n');
    }
    text += "\nOver seeds:\n\n| preset | runs | tasks | gain | 95 % of gain | every run improves |\n|---|---|---|---|---|---|\n";
    let mut presets: Vec<Preset> = rows.iter().map(|row| row.preset).collect();
    presets.dedup();
    for preset in presets {
        let of: Vec<&Row> = rows.iter().filter(|row| row.preset == preset).collect();
        let gains: Vec<Vec<f64>> = of
            .iter()
            .filter_map(|row| row.outcome.as_ref().ok())
            .map(|run| run.before.gains(&run.after))
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
        let (low, high) = interval(&together);
        let every = runs == of.len() && gains.iter().all(|gains| interval(gains).0 > 0.0);
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {runs} of {} | {tasks} | {:+.3} | {low:+.3} to {high:+.3} | {} |",
            preset.name(),
            of.len(),
            mean(&together),
            if every { "yes" } else { "no" },
        );
    }
    text
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The 95 % interval of the mean gain: percentiles of the means of resampled tasks. The pairs are kept, so what makes a task
/// easy is in neither end.
fn interval(gains: &[f64]) -> (f64, f64) {
    if gains.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mut draw = Draw::new(20_260_211);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = (0..gains.len()).map(|_| gains[draw.below(gains.len())]);
            drawn.sum::<f64>() / gains.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    (means[RESAMPLES / 40], means[RESAMPLES - 1 - RESAMPLES / 40])
}
