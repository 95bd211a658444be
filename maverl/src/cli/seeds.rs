//! `maverl train --seeds`: the same run from several seeds, one after the other.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::arguments::{BuiltinConfig, RunArgs, Seeds};
use crate::cli::failure::Failure;
use crate::cli::process::{STOPPED, report_stop, train_until_signal};
use crate::cli::run_options::{is_follower, ready_plan, resume_or_start};
use crate::cli::runs::share_text;
use crate::cli::terminal::{self, print, tell};
use crate::cli::tracking::check_packages;
use crate::config::source::Sources;
use crate::eval::over_runs;
use crate::registry::Registry;
use crate::run_dir::next;
use crate::table::Table;
use crate::train::{Launch, Options, Report, RunSummary, TrainError};

/// Result of the run with a seed.
type SeedOutcome = (u64, Result<RunSummary, String>);

/// Trains with each seed. Existing runs are resumed. A failed run does not stop the others, unless it failed because a rank
/// is lost. All ranks of a launch train with each seed; rank 0 alone prints.
pub(super) fn train(
    args: &RunArgs,
    given: Option<&BuiltinConfig<'_>>,
    Seeds(seeds): &Seeds,
    (registry, launch): (&Registry, Option<&Launch>),
) -> Result<ExitCode, Failure> {
    let leads = !is_follower(launch);
    let dir = match &args.out {
        Some(dir) => dir.clone(),
        None => next(&PathBuf::from("runs"), &format!("{}-seeds", args.stem(given))),
    };
    let mut outcomes: Vec<SeedOutcome> = Vec::new();
    for (i, &seed) in seeds.iter().enumerate() {
        if leads {
            tell(format_args!("seed {seed}, run {} of {}", i + 1, seeds.len()));
        }
        let run = dir.join(format!("seed-{seed}"));
        let (sources, options) =
            resume_or_start(args, args.config.base_sources(given), &run, &over(args, seed, &dir))?;
        // An error of the configuration is one of all seeds.
        let plan = ready_plan(&sources, registry, launch)?;
        check_packages(&plan.config.track, &options.place)?;
        let options = Options { launch: launch.cloned(), again: i + 1 < seeds.len(), ..options };
        match train_until_signal(&plan, registry, options)? {
            Ok(Report { interrupted: true, dir: run, .. }) => {
                if leads {
                    report_stopped(&outcomes, &run, &dir)?;
                }
                return Ok(ExitCode::from(STOPPED));
            }
            Ok(report) => outcomes.push((seed, Ok(report.summary))),
            Err(error @ TrainError::StoppedJoining { .. }) => return Ok(report_stop(&error)),
            Err(error) if error.is_of_ranks() => return Err(error.into()),
            Err(error) => {
                if leads {
                    tell(format_args!("error: {error}"));
                }
                outcomes.push((seed, Err(error.to_string())));
            }
        }
    }
    if leads {
        print(&format!("{}\n{}", table(&outcomes).draw(terminal::width()), dir.display()))?;
    }
    let failed = outcomes.iter().any(|(_, outcome)| outcome.is_err());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the sources of the first run: an error of them is one of all seeds.
pub(super) fn first_sources(
    args: &RunArgs,
    given: Option<&BuiltinConfig<'_>>,
    Seeds(seeds): &Seeds,
) -> Result<Sources, Failure> {
    let new = args.config.base_sources(given);
    match (&args.out, seeds.first()) {
        (Some(dir), Some(seed)) => {
            let (run, set) = (dir.join(format!("seed-{seed}")), format!("seed={seed}"));
            resume_or_start(args, new, &run, &[set]).map(|(sources, _)| sources)
        }
        _ => Ok(args.over(new)),
    }
}

/// Returns the assignments of the run of a seed. Trackers show the runs of all seeds as a group.
fn over(args: &RunArgs, seed: u64, dir: &Path) -> Vec<String> {
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let group = name.filter(|_| !args.track.is_empty());
    let group = group.map(|name| format!("track.group={name:?}"));
    [format!("seed={seed}")].into_iter().chain(group).collect()
}

/// Prints the results so far, and how the runs of a directory go on.
fn report_stopped(outcomes: &[SeedOutcome], run: &Path, dir: &Path) -> Result<(), Failure> {
    print(&table(outcomes).draw(terminal::width()))?;
    tell(format_args!(
        "stopped in `{}`; the same command with `--out {}` goes on",
        run.display(),
        dir.display()
    ));
    Ok(())
}

/// Returns a table with a row for each seed, and one for all.
fn table(outcomes: &[SeedOutcome]) -> Table {
    let measure = outcomes.iter().find_map(|(_, run)| Some(run.as_ref().ok()?.measure.as_str()));
    let [before, after] =
        ["before", "after"].map(|when| format!("{} {when}", measure.unwrap_or("solved")));
    let mut table = Table::with_frame(["seed", &before, &after, "gain", "steps"]);
    let (mut befores, mut afters, mut gains) = (Vec::new(), Vec::new(), Vec::new());
    for (seed, outcome) in outcomes {
        let Ok(summary) = outcome else {
            table.row([seed.to_string().as_str(), "-", "-", "-", "failed"]);
            continue;
        };
        let scores = [&summary.before, &summary.after];
        let [before, after] = scores.map(|score| score.as_ref().map(|score| score.exact_match));
        let gain = before.zip(after).map(|(before, after)| after - before);
        befores.extend(before);
        afters.extend(after);
        gains.extend(gain);
        let gain = gain.map_or("-".to_owned(), |gain| format!("{gain:+.3}"));
        let steps = summary.steps.to_string();
        table.row([seed.to_string(), share_text(before), share_text(after), gain, steps]);
    }
    let [before, after, gain] = [befores, afters, gains].map(|values| mean_text(&values));
    table.row(["mean (95 %)".to_owned(), before, after, gain, String::new()]);
    table
}

/// Formats the mean of values, of several with its interval.
fn mean_text(values: &[f64]) -> String {
    match over_runs(values) {
        Some(interval) if values.len() > 1 => interval.to_string(),
        interval => share_text(interval.map(|interval| interval.mean)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::train::SplitScore;

    #[test]
    fn the_table_has_a_row_a_seed_and_a_mean_with_its_interval() {
        let summary = |before: f64, after: f64| {
            let score = |share| SplitScore {
                exact_match: share,
                interval: (0.0, 1.0),
                greedy: share,
                tasks: 8,
            };
            RunSummary {
                complete: true,
                steps: 40,
                seed: 0,
                measure: "accuracy".to_owned(),
                before: Some(score(before)),
                after: Some(score(after)),
                best: None,
                train_seconds: 1.0,
                agents: Default::default(),
            }
        };
        let outcomes = [
            (0, Ok(summary(0.5, 0.7))),
            (1, Err("the weights have blown up".to_owned())),
            (2, Ok(summary(0.5, 0.8))),
            (3, Ok(summary(0.5, 0.9))),
        ];
        let text = table(&outcomes).draw(80);
        // s = 0.1 and t = 4.303 with 2 degrees of freedom: 0.8 -+ 0.248.
        for part in ["accuracy before", "0.800 (0.552 to 1.048)", "+0.400", "failed", "mean (95 %)"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
}
