//! Verdicts on programs.

use std::time::Duration;

use maverl_sandbox::Limits;
use rayon::prelude::*;
use serde_json::{Map, Value, json};

use crate::cli::Failure;
use crate::data;
use crate::env::code::{Judge, Problem, program};

/// A row with its task, understood.
pub(super) struct Row {
    object: Map<String, Value>,
    completion: String,
    problem: Problem,
}

/// Reads `{"completion": "..", "task": {..}}`; the task is a row as training reads it.
pub(super) fn row(object: Map<String, Value>) -> Result<Row, String> {
    let keys: Vec<&String> = object.keys().collect();
    let value =
        |key: &str| object.get(key).ok_or_else(|| format!("no `{key}` among the keys {keys:?}"));
    let completion = match value("completion")? {
        Value::String(completion) => completion.clone(),
        other => return Err(format!("`completion` is {other}; write a text")),
    };
    let task = match value("task")? {
        Value::Object(task) => data::task(task.clone(), 1)?,
        other => return Err(format!("`task` is {other}; write a task's row, an object")),
    };
    let problem = Problem::read(&task).map_err(|what| format!("`task`: {what}"))?;
    Ok(Row { completion, problem, object })
}

/// Judges every row, as many at once as there are cores.
pub(super) fn graded(
    rows: Vec<Row>,
    python: &str,
    strict: bool,
    seconds: f64,
) -> Result<Vec<Map<String, Value>>, Failure> {
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|error| Failure(format!("`--seconds` is {seconds}: {error}")))?;
    let limits = Limits { wall: time, cpu: time, ..Limits::default() };
    let failed = |error: maverl_sandbox::SandboxError| Failure(error.to_string());
    let judge = Judge::new(python, strict, limits, true).map_err(failed)?;
    for missing in judge.sandbox().missing() {
        eprintln!("the sandbox of programs lacks {missing}; the other layers hold alone");
    }
    rows.into_par_iter().map(|row| grade(row, &judge).map_err(failed)).collect()
}

fn grade(row: Row, judge: &Judge) -> Result<Map<String, Value>, maverl_sandbox::SandboxError> {
    let Row { mut object, completion, problem } = row;
    let verdict = judge.judge(&problem, &completion)?;
    let reason = match verdict.detail.as_str() {
        "" => verdict.reason.text().to_owned(),
        detail => format!("{}: {detail}", verdict.reason.text()),
    };
    object.extend([
        ("verdict".to_owned(), json!(if verdict.passed() { "passed" } else { "failed" })),
        ("extracted".to_owned(), json!(program(&completion))),
        ("reason".to_owned(), json!(reason)),
        ("points".to_owned(), json!(verdict.points)),
        ("of".to_owned(), json!(verdict.of)),
        ("reward".to_owned(), json!(if verdict.passed() { 1.0 } else { 0.0 })),
    ]);
    Ok(object)
}
