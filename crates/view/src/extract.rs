//! Parts of a run in the formats of other programs: CSV, JSON lines, Parquet, Chrome trace, logs of Inspect.
//!
//! A new format is a variant of [`ExtractFormat`], its writer here or in a file of the folder, and its help in
//! `crates/cli/src/view.rs`.

mod columns;
mod error;
mod inspect;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod rollouts;
pub(crate) mod show;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use maverl::run_dir::{EpisodeRow, RunDir, SampleRecord, StepSamples, read_rollouts, read_samples};
use maverl::trajectory::{Episode, Message};
use serde_json::{Map, Value, json};

use self::columns::TableColumns;
pub use self::error::ExtractError;
use self::error::write_failure;
use self::lines::JsonLines;
use crate::report::analyses::trace::trace_events;
use crate::report::reading::files::RunFiles;
use crate::report::rows::run::ReportedRun;

/// Part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtractPart {
    /// A row per step: metrics and times.
    Metrics,
    /// A row per episode.
    Episodes,
    /// A row per turn of training.
    Turns,
    /// An object per episode of training, with all that is recorded of its turns.
    Rollouts {
        /// The first step and the last; all steps without them.
        steps: Option<(u32, u32)>,
    },
    /// Times of steps and turns, as Chrome trace.
    Trace,
    /// An evaluation, as a log of Inspect.
    Inspect,
}

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtractFormat {
    /// Numbers and names, separated by commas. Without the texts of models.
    Csv,
    /// An object per line, with all texts.
    Jsonl,
    /// Columns with all texts.
    Parquet,
    /// Chrome trace, or a log of Inspect: one object.
    Json,
}

impl ExtractFormat {
    /// Returns the format of a part by the end of a file's name; `Err` with the ends that there are. `-`, which is standard output,
    /// gets JSON lines.
    ///
    /// # Errors
    ///
    /// If the part has no such format.
    pub fn from_path(part: ExtractPart, path: &Path) -> Result<Self, String> {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let known: &[(&str, Self)] = match part {
            ExtractPart::Trace | ExtractPart::Inspect => &[("json", Self::Json)],
            _ if path == Path::new("-") => return Ok(Self::Jsonl),
            ExtractPart::Rollouts { .. } => &[("jsonl", Self::Jsonl)],
            _ => &[("csv", Self::Csv), ("jsonl", Self::Jsonl), ("parquet", Self::Parquet)],
        };
        let found = known.iter().find(|(name, _)| *name == end).map(|(_, format)| *format);
        let names: Vec<String> = known.iter().map(|(name, _)| format!("`.{name}`")).collect();
        found.ok_or_else(|| format!("`{}` must end with {}", path.display(), names.join(" or ")))
    }
}

/// Writes a part of a run, and returns the number of rows.
///
/// `evaluation` names the evaluation of [`ExtractPart::Inspect`]: `before`, `before-greedy`, `after`, `after-greedy`, or
/// `step-000010` for a validation.
///
/// # Errors
///
/// If the run has no such part, or a file cannot be read or written.
pub fn extract_part(
    dir: &Path,
    (part, format): (ExtractPart, ExtractFormat),
    evaluation: &str,
    out: &Path,
) -> Result<usize, ExtractError> {
    let run = RunDir::open(dir)?;
    match part {
        ExtractPart::Inspect => {
            let (log, samples) = inspect::inspect_log(&run, evaluation)?;
            write_json(&log, out)?;
            Ok(samples)
        }
        ExtractPart::Trace => write_trace(dir, out),
        ExtractPart::Metrics => write_rows(&metric_rows(dir)?, format, out),
        ExtractPart::Episodes => write_rows(&episode_rows(&run)?, format, out),
        ExtractPart::Turns => write_rows(&turn_rows(&run)?, format, out),
        ExtractPart::Rollouts { steps } => rollouts::write_rollouts(&run, steps, out),
    }
}

/// Writes rows.
fn write_rows(
    rows: &[Map<String, Value>],
    format: ExtractFormat,
    out: &Path,
) -> Result<usize, ExtractError> {
    let error = write_failure(out);
    let create = || File::create(out).map_err(|e| error(e.to_string()));
    match format {
        ExtractFormat::Csv => {
            let table = TableColumns::from_rows(rows, false);
            let mut file = BufWriter::new(create()?);
            table
                .write_csv(&mut file)
                .and_then(|()| file.flush())
                .map_err(|e| error(e.to_string()))?;
        }
        ExtractFormat::Jsonl | ExtractFormat::Json => {
            write_lines(rows, out).map_err(|e| error(e.to_string()))?;
        }
        #[cfg(feature = "parquet")]
        ExtractFormat::Parquet => {
            let table = TableColumns::from_rows(rows, true);
            parquet::write_parquet(&table, create()?).map_err(|e| error(e.to_string()))?;
        }
        #[cfg(not(feature = "parquet"))]
        ExtractFormat::Parquet => {
            let reason = maverl::lacks_feature!("parquet", "maverl-cli");
            return Err(error(reason.to_owned()));
        }
    }
    Ok(rows.len())
}

/// Writes a row of JSON on each line.
fn write_lines(rows: &[Map<String, Value>], out: &Path) -> std::io::Result<()> {
    let mut lines = JsonLines::open(out)?;
    for row in rows {
        lines.write_row(row)?;
    }
    lines.finish()
}

/// Returns the metrics and times of each step; a row has all names.
fn metric_rows(dir: &Path) -> Result<Vec<Map<String, Value>>, ExtractError> {
    let run = ReportedRun::new(dir.to_owned(), String::new());
    let all = run.lock_content().series.select_columns(&[], 0, usize::MAX);
    let steps = all["steps"].as_array().cloned().unwrap_or_default();
    let columns = all["columns"].as_object().cloned().unwrap_or_default();
    if steps.is_empty() {
        let path = dir.display().to_string();
        return Err(ExtractError::Missing { path, part: "metrics", reason: "it has done no step" });
    }
    Ok(steps
        .iter()
        .enumerate()
        .map(|(i, step): (usize, &Value)| {
            let mut row = Map::from_iter([("step".to_owned(), step.clone())]);
            row.extend(columns.iter().map(|(name, values)| (name.clone(), values[i].clone())));
            row
        })
        .collect())
}

/// Returns the rows of `episodes.jsonl`, with a column for each count of each seat.
fn episode_rows(run: &RunDir) -> Result<Vec<Map<String, Value>>, ExtractError> {
    let path = run.path().join("episodes.jsonl");
    let text = std::fs::read_to_string(&path).map_err(|_| ExtractError::Missing {
        path: run.path().display().to_string(),
        part: "rows of episodes",
        reason: "it was made by an older version; extract `turns` instead",
    })?;
    let rows =
        text.lines().filter_map(|line| serde_json::from_slice::<EpisodeRow>(line.as_bytes()).ok());
    Ok(rows.map(|row| episode_row(&row)).collect())
}

fn episode_row(row: &EpisodeRow) -> Map<String, Value> {
    let mut object = object(&object!({
        "step": row.step, "stage": row.stage, "n": row.n, "source": row.source, "task": row.task,
        "index": row.index, "solved": row.solved, "score": row.score, "fault": row.fault,
        "tokens": row.tokens, "answer": row.answer,
    }));
    for (seat, counts) in &row.seats {
        let of = [
            ("turns", json!(counts.0)),
            ("malformed", json!(counts.1)),
            ("truncated", json!(counts.2)),
            ("tokens", json!(counts.3)),
            ("reward_sum", json!(counts.4)),
        ];
        object.extend(of.into_iter().map(|(name, value)| (format!("{seat}/{name}"), value)));
    }
    object
}

/// Returns a row for each turn of each training step.
fn turn_rows(run: &RunDir) -> Result<Vec<Map<String, Value>>, ExtractError> {
    let mut rows = Vec::new();
    for step in run.rollout_steps()? {
        let path = run.samples(step);
        let samples = path.is_file().then(|| read_samples(&path)).transpose()?;
        for (n, episode) in read_rollouts(&run.rollouts(step))?.iter().enumerate() {
            let its = samples.as_ref().map(|samples: &StepSamples| samples.of_episode(n));
            for i in 0..episode.turns.len() {
                let sample = its.as_ref().and_then(|its| its.get(&i).copied());
                rows.push(turn_row(step, (n, i), episode, sample));
            }
        }
    }
    if rows.is_empty() {
        return Err(ExtractError::Missing {
            path: run.path().display().to_string(),
            part: "turns",
            reason: "it has done no step, or its rollouts were removed",
        });
    }
    Ok(rows)
}

fn turn_row(
    step: u64,
    (n, i): (usize, usize),
    episode: &Episode,
    sample: Option<&SampleRecord>,
) -> Map<String, Value> {
    let turn = &episode.turns[i];
    let tokens = turn.tokens.as_ref();
    let messages = turn.prompt.iter().map(|Message { role, content, .. }| {
        format!("{}: {content}", json!(role).as_str().unwrap_or_default())
    });
    let prompt: Vec<String> = messages.collect();
    object(&object!({
        "step": step, "n": n, "source": episode.task.source, "task": episode.task.id,
        "index": episode.index, "turn": i, "path": turn.path.to_string(),
        "seat": turn.seat, "policy": turn.policy,
        "reward": episode.turn_reward(i),
        "advantage": sample.map(SampleRecord::loss_advantage),
        "group": sample.and_then(|sample| sample.group),
        "solved": episode.score().map(|score| score.solved),
        "malformed": turn.error.is_some(), "truncated": turn.truncated,
        "prompt_tokens": tokens.map(|tokens| tokens.prompt.len()),
        "reply_tokens": tokens.map(|tokens| tokens.completion.len()),
        "logprob_sum": tokens.map(|tokens| tokens.logprobs.iter().map(|l| f64::from(*l)).sum::<f64>()),
        "prompt": prompt.join("\n\n"), "reply": turn.reply, "error": turn.error,
    }))
}

/// Writes all steps as a Chrome trace, and returns the number of events.
fn write_trace(dir: &Path, out: &Path) -> Result<usize, ExtractError> {
    let run = RunFiles::new(dir.to_owned());
    let rows = run.read_spans();
    let missing =
        |reason| ExtractError::Missing { path: dir.display().to_string(), part: "times", reason };
    if rows.is_empty() {
        return Err(missing("`record.clock` is off, or it was made by an older version"));
    }
    let mut steps = Vec::new();
    for row in rows {
        let turns =
            run.read_clock(row.step).map_err(|_| missing("a file in `clock` is damaged"))?;
        steps.push((row, turns.unwrap_or_default()));
    }
    let events = trace_events(&steps);
    write_json(&object!({ "traceEvents": events }), out)?;
    Ok(events.len())
}

/// Writes one object.
fn write_json(value: &Value, out: &Path) -> Result<(), ExtractError> {
    let error = write_failure(out);
    let mut file = BufWriter::new(File::create(out).map_err(|e| error(e.to_string()))?);
    serde_json::to_writer(&mut file, value).map_err(|e| error(e.to_string()))?;
    file.flush().map_err(|e| error(e.to_string()))
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
