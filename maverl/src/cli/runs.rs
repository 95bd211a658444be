//! `maverl info` of one run, and `maverl runs` of many: their content and state.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::checkpoint::{Checkpoints, Which};
use crate::cli::failure::Failure;
use crate::cli::paths;
use crate::cli::terminal::{self, print};
use crate::output;
use crate::run_dir::disk::{entries, read_json};
use crate::run_dir::{MANIFEST, Provenance, RunDir, RunDirError, TrackerLag, tracker_lags};
use crate::table::{Table, paragraphs};
use crate::train::{Evaluation, RunSummary, SplitScore, resume_command};

/// Maximum depth at which runs are searched below a directory: sweeps have their own directories.
const DEPTH: usize = 3;

/// State of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub(super) enum State {
    /// All steps and evaluations are done.
    Complete,
    /// A process is writing the run.
    Running {
        /// Last step with metrics.
        step: u64,
    },
    /// The run stopped at this step and can be resumed.
    Stopped {
        /// Step of the newest checkpoint.
        step: u64,
        /// Last step with metrics. Steps after the checkpoint are repeated on resume.
        recorded: u64,
    },
    /// The run stopped because there was nothing to learn from.
    Flat {
        /// Step of the newest checkpoint.
        step: u64,
        /// Number of consecutive flat steps.
        flat_steps: u64,
    },
    /// Some files have changed since the run.
    Damaged {
        /// Files and their differences.
        problems: Vec<String>,
    },
}

/// Summary of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Run {
    /// Directory of the run, relative to the requested one.
    name: String,
    seed: u64,
    algorithm: &'static str,
    orchestra: String,
    /// Number of steps to run.
    steps: u64,
    state: State,
    /// The evaluation before training, which a run has before it has ended.
    #[serde(skip)]
    before: Option<SplitScore>,
    summary: Option<RunSummary>,
    /// Trackers that follow it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tracking: Vec<TrackerLag>,
}

/// Details of a run.
#[derive(Debug, Serialize)]
struct Info {
    #[serde(flatten)]
    run: Run,
    provenance: Provenance,
    /// Steps of the checkpoints.
    checkpoints: Vec<u64>,
    /// Number of unchanged files.
    verified: usize,
    /// Notices of the overview of `maverl view`; empty without the feature `view`.
    notices: Vec<String>,
}

impl Run {
    /// Reads a run directory, without its large files.
    pub(super) fn read(dir: &Path, name: String) -> Result<Self, RunDirError> {
        let run = RunDir::open(dir)?;
        let config = run.origin()?.config;
        let summary: Option<RunSummary> =
            if run.summary().exists() { Some(read_json(&run.summary())?) } else { None };
        let state = match &summary {
            _ if run.is_running() => State::Running { step: last_recorded_step(&run) },
            Some(summary) if summary.complete && summary.steps == config.steps => State::Complete,
            _ => state_of_stopped(&run, config.algorithm.max_flat_steps)?,
        };
        let before = run.read_evaluation::<Evaluation>("before")?.as_ref().map(SplitScore::from);
        Ok(Self {
            name,
            before,
            seed: config.seed,
            algorithm: config.algorithm.name.name(),
            orchestra: config.orchestra.name.unwrap_or_default(),
            steps: config.steps,
            state,
            summary,
            tracking: tracker_lags(dir),
        })
    }

    /// Summary of the run; `None` before it has ended once.
    pub(super) fn summary(&self) -> Option<&RunSummary> {
        self.summary.as_ref()
    }

    /// Returns the share of solved episodes before and after training.
    pub(super) fn scores(&self) -> [Option<&SplitScore>; 2] {
        let summary = self.summary.as_ref();
        let before = summary.and_then(|s| s.before.as_ref()).or(self.before.as_ref());
        [before, summary.and_then(|s| s.after.as_ref())]
    }

    /// Describes the state in a cell of a table, with the trackers that lack rows.
    fn state_cell(&self) -> String {
        let mut cell = self.state.brief(self.steps);
        for lag in self.tracking.iter().filter(|lag| lag.rows_behind > 0) {
            cell.push_str(&format!("; tracking: {lag}"));
        }
        cell
    }
}

/// Returns the state of a run that is neither complete nor running.
fn state_of_stopped(run: &RunDir, max_flat_steps: u64) -> Result<State, RunDirError> {
    let checkpoints = Checkpoints::of(run.path());
    let recorded = last_recorded_step(run);
    let Some(step) = checkpoints.steps()?.pop() else {
        return Ok(State::Stopped { step: 0, recorded });
    };
    let flat_steps = checkpoints.peek(step)?.flat_steps;
    Ok(if flat_steps > 0 && flat_steps >= max_flat_steps {
        State::Flat { step, flat_steps }
    } else {
        State::Stopped { step, recorded }
    })
}

/// Returns the last step with metrics; 0 if there is none or the file is damaged, which the verification of `info` reports.
fn last_recorded_step(run: &RunDir) -> u64 {
    run.metrics().ok().and_then(|rows| rows.last_key_value().map(|(&step, _)| step)).unwrap_or(0)
}

impl State {
    /// Describes the state in a few words.
    pub(super) fn state_words(&self, steps: u64) -> String {
        match self {
            Self::Complete => "complete".to_owned(),
            Self::Running { step } => format!("running, step {step} of {steps}"),
            Self::Stopped { step, recorded } if recorded > step => format!(
                "step {step} of {steps}; steps after this checkpoint (up to {recorded}) are repeated on resume"
            ),
            Self::Stopped { step, .. } => format!("step {step} of {steps}"),
            Self::Flat { step, flat_steps } => {
                format!("step {step} of {steps}, stopped after {flat_steps} flat steps")
            }
            Self::Damaged { problems } => format!("damaged: {}", problems.join("; ")),
        }
    }

    /// Describes the state in a cell of a table.
    fn brief(&self, steps: u64) -> String {
        match self {
            Self::Stopped { step, .. } => format!("step {step} of {steps}"),
            other => other.state_words(steps),
        }
    }

    /// Returns a command to continue with, if anything remains to be done.
    fn advice(&self, dir: &Path) -> Option<String> {
        let resume = resume_command(dir);
        match self {
            Self::Stopped { .. } => Some(format!("`{resume}` goes on with it")),
            Self::Flat { flat_steps, .. } => Some(format!(
                "`{resume} --set algorithm.max_flat_steps={}` goes on with it; tasks that are neither always nor never \
                 solved would help more",
                2 * flat_steps
            )),
            Self::Complete | Self::Running { .. } | Self::Damaged { .. } => None,
        }
    }
}

/// Prints the content of a run directory, its results, and all changed files; fails if any file has changed.
/// `notices_of` returns the notices of the pages on the run in a directory.
pub fn info(
    dir: &Path,
    json: bool,
    notices_of: fn(&Path) -> Vec<String>,
) -> Result<ExitCode, Failure> {
    let opened = paths::run(dir)?;
    let mut run = Run::read(dir, dir.display().to_string())?;
    let checkpoints = Checkpoints::of(dir);
    let steps = checkpoints.steps()?;
    let problems = problems(&opened, &checkpoints, steps.last().copied())?;
    let verified = opened.listed_files();
    let advice = run.state.advice(dir);
    let sound = problems.is_empty();
    if !sound {
        run.state = State::Damaged { problems };
    }
    let provenance = opened.origin()?.provenance;
    let notices = notices_of(dir);
    let info = Info { run, provenance, checkpoints: steps, verified, notices };
    print(&if json {
        output::json(&info)?
    } else {
        info.text(dir, advice.as_deref(), terminal::width())
    })?;
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns all changed files of a run.
fn problems(
    run: &RunDir,
    checkpoints: &Checkpoints,
    newest: Option<u64>,
) -> Result<Vec<String>, RunDirError> {
    let differences = run.differences(newest.unwrap_or(0))?;
    let mut problems: Vec<String> =
        differences.iter().map(|it| format!("`{}`: {}", it.path.display(), it.reason)).collect();
    match newest.map(|_| checkpoints.open(Which::Last)) {
        Some(Err(error @ (RunDirError::Damaged { .. } | RunDirError::Altered { .. }))) => {
            problems.push(error.to_string());
        }
        Some(Err(error)) => return Err(error),
        Some(Ok(_)) | None => {}
    }
    Ok(problems)
}

impl Info {
    fn text(&self, dir: &Path, advice: Option<&str>, width: usize) -> String {
        let Self { run, provenance, checkpoints, verified, notices } = self;
        let steps: Vec<String> = checkpoints.iter().map(ToString::to_string).collect();
        let state = match &run.state {
            State::Damaged { problems } => format!("damaged\n  {}", problems.join("\n  ")),
            state => state.state_words(run.steps),
        };
        let lines = [
            ("run", dir.display().to_string()),
            ("maverl", provenance.version.clone()),
            ("device", format!("{}, {} threads", provenance.device, provenance.threads)),
            ("orchestra", run.orchestra.clone()),
            ("algorithm", run.algorithm.to_owned()),
            ("seed", run.seed.to_string()),
            (
                "checkpoints",
                if steps.is_empty() {
                    "(none)".to_owned()
                } else {
                    format!("steps {}", steps.join(", "))
                },
            ),
            ("verified", format!("{verified} files and the newest checkpoint")),
            ("state", state),
        ];
        let sound = !matches!(run.state, State::Damaged { .. });
        let tracking = run.tracking.iter().map(|lag| ("tracking", lag.to_string()));
        let lines =
            lines.into_iter().filter(|(name, _)| sound || *name != "verified").chain(tracking);
        let text: String = lines.map(|(name, value)| format!("{name:<12} {value}\n")).collect();
        let mut text = paragraphs(&text, width);
        match &run.summary {
            Some(summary) => text.push_str(&summary.results(width)),
            None => text.push_str("the run has no summary yet"),
        }
        if !notices.is_empty() {
            let lines: String = notices.iter().map(|notice| format!("\n- {notice}")).collect();
            text.push_str(&paragraphs(&format!("\nlook here first{lines}"), width));
        }
        if let Some(advice) = advice.filter(|_| sound) {
            text.push('\n');
            text.push_str(&paragraphs(advice, width));
        }
        text
    }
}

/// Prints the runs in a directory.
pub fn runs(dir: &Path, json: bool) -> Result<ExitCode, Failure> {
    let mut found = Vec::new();
    find(dir, DEPTH, &mut found)?;
    if found.is_empty() {
        return Err(Failure(format!(
            "there is no run in `{}`; `maverl train` writes one",
            dir.display()
        )));
    }
    let runs: Vec<Result<Run, (String, String)>> = found
        .iter()
        .map(|path| {
            let name = path.strip_prefix(dir).unwrap_or(path);
            let name = if name.as_os_str().is_empty() { path } else { name };
            let name = name.display().to_string();
            Run::read(path, name.clone()).map_err(|error| (name, error.to_string()))
        })
        .collect();
    print(&if json { lines(&runs)? } else { table(&runs).draw(terminal::width()) })
}

/// Finds the run directories in a directory and below it, sorted. Run directories are not searched.
fn find(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), RunDirError> {
    if dir.join(MANIFEST).is_file() {
        found.push(dir.to_owned());
        return Ok(());
    }
    let inner = entries(dir)?.into_iter().filter(|path| path.is_dir());
    if depth > 0 {
        for path in inner {
            find(&path, depth - 1, found)?;
        }
    }
    Ok(())
}

/// Formats a list of JSON objects, one per run.
fn lines(runs: &[Result<Run, (String, String)>]) -> Result<String, serde_json::Error> {
    let mut values = Vec::new();
    for run in runs {
        values.push(match run {
            Ok(run) => serde_json::to_value(run)?,
            Err((name, error)) => {
                let state = State::Damaged { problems: vec![error.clone()] };
                serde_json::json!({ "name": name, "state": state })
            }
        });
    }
    output::json(&values)
}

/// Returns a table with a row for each run.
fn table(runs: &[Result<Run, (String, String)>]) -> Table {
    let header = ["run", "seed", "algorithm", "before", "after", "state"];
    let mut table = Table::with_frame(header).prose(&[5]);
    for run in runs {
        match run {
            Ok(run) => {
                let shares = run.scores().map(|score| score.map(|score| score.exact_match));
                let [before, after] = shares.map(share_text);
                table.row([
                    run.name.clone(),
                    run.seed.to_string(),
                    run.algorithm.to_owned(),
                    before,
                    after,
                    run.state_cell(),
                ]);
            }
            Err((name, error)) => {
                let state = State::Damaged { problems: vec![error.clone()] }.state_words(0);
                table.row([name.as_str(), "-", "-", "-", "-", &state]);
            }
        }
    }
    table
}

/// Formats the share of solved tasks; `-` without one.
pub(super) fn share_text(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{share:.3}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::run_dir::tests::origin;

    #[test]
    fn runs_are_found_below_a_directory_and_each_has_a_line() {
        let home = tempfile::tempdir().unwrap();
        for name in ["a-1", "sweep/seed-0", "sweep/seed-1"] {
            RunDir::create(&home.path().join(name), &origin()).unwrap();
        }
        std::fs::create_dir(home.path().join("notes")).unwrap();
        std::fs::write(home.path().join("sweep/seed-1/resolved.toml"), "seed = 8\n").unwrap();
        let tracked = home.path().join("sweep/seed-0");
        std::fs::create_dir(tracked.join("track")).unwrap();
        std::fs::write(tracked.join("metrics.jsonl"), "{\"step\":1}\n").unwrap();
        std::fs::write(tracked.join("timing.jsonl"), "{\"step\":1,\"time/step_s\":1}\n").unwrap();
        let cursor = r#"{"protocol":1,"last_step":0,"evaluated":[]}"#;
        std::fs::write(tracked.join("track/mlflow.json"), cursor).unwrap();
        let mut found = Vec::new();
        find(home.path(), DEPTH, &mut found).unwrap();
        let runs: Vec<_> = found
            .iter()
            .map(|path| {
                let name = path.strip_prefix(home.path()).unwrap().display().to_string();
                Run::read(path, name.clone()).map_err(|error| (name, error.to_string()))
            })
            .collect();
        let text = table(&runs).draw(300);
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
        let words: Vec<&str> = line("a-1").split_whitespace().collect();
        let expected = ["|", "a-1", "0", "drmas", "-", "-", "step", "0", "of", "100", "|"];
        assert_eq!(words, expected, "{text}");
        let behind = "step 0 of 100; tracking: mlflow is 1 row behind";
        assert!(line("seed-0").contains(behind), "{text}");
        assert!(line("seed-1").contains("damaged: ") && text.contains("resolved.toml"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&lines(&runs).unwrap()).unwrap();
        assert_eq!(
            json[0]["state"],
            serde_json::json!({ "is": "stopped", "step": 0, "recorded": 0 })
        );
        let lag = serde_json::json!([{ "tracker": "mlflow", "rows_behind": 1 }]);
        assert_eq!((&json[1]["tracking"], json[0].get("tracking")), (&lag, None));
        assert_eq!(json[2]["state"]["is"], "damaged");
    }

    #[test]
    fn a_run_that_ends_after_its_checkpoint_says_which_steps_are_repeated() {
        let words = |step, recorded| State::Stopped { step, recorded }.state_words(40);
        assert_eq!(words(10, 10), "step 10 of 40");
        let repeated =
            "step 10 of 40; steps after this checkpoint (up to 13) are repeated on resume";
        assert_eq!(words(10, 13), repeated);
        assert_eq!(State::Running { step: 13 }.state_words(40), "running, step 13 of 40");
    }

    #[test]
    fn a_run_that_was_interrupted_is_described_with_one_command_that_goes_on_with_it() {
        let summary = serde_json::json!({
            "complete": false, "steps": 3, "seed": 7, "before": null, "after": null, "best": null,
            "train_seconds": 1.5, "agents": {},
        });
        let run = Run {
            name: "a-1".to_owned(),
            seed: 7,
            algorithm: "drmas",
            orchestra: "duo/relay".to_owned(),
            steps: 40,
            state: State::Stopped { step: 3, recorded: 3 },
            before: None,
            summary: Some(serde_json::from_value(summary).unwrap()),
            tracking: Vec::new(),
        };
        let provenance = origin().provenance;
        let notices = vec!["tiny: 50 % of tokens clipped in step 4".to_owned()];
        let info = Info { run, provenance, checkpoints: vec![3], verified: 9, notices };
        let dir = Path::new("runs/a-1");
        let text = info.text(dir, info.run.state.advice(dir).as_deref(), 80);
        assert_eq!(text.matches("--resume").count(), 1, "{text}");
        assert!(text.contains("3 steps in 1.5 s\n"), "{text}");
        assert!(text.contains("\nlook here first\n- tiny: 50 % of tokens clipped"), "{text}");
    }

    #[test]
    fn a_run_that_stopped_flat_says_what_goes_on_with_it() {
        let flat = State::Flat { step: 12, flat_steps: 10 };
        assert_eq!(flat.state_words(40), "step 12 of 40, stopped after 10 flat steps");
        let advice = flat.advice(Path::new("runs/a-1")).unwrap();
        let command = "`maverl train --resume runs/a-1 --set algorithm.max_flat_steps=20` goes on";
        assert!(advice.starts_with(command), "{advice}");
    }
}
