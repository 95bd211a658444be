//! Verdicts on programs.

use std::time::Duration;

use maverl_sandbox::{ProgramLimits, SandboxError};
use rayon::prelude::*;
use serde_json::{Map, Value, json};

use crate::{Failure, tell};
use maverl::data;
use maverl::env::code::{Judge, Problem, SECONDS, program};

/// A row with its parsed task.
pub(super) struct Row {
    object: Map<String, Value>,
    completion: String,
    problem: Problem,
}

pub(super) fn required_value<'o>(
    object: &'o Map<String, Value>,
    key: &str,
) -> Result<&'o Value, String> {
    object.get(key).ok_or_else(|| {
        let keys: Vec<&String> = object.keys().collect();
        format!("no `{key}` among the keys {keys:?}")
    })
}

/// Reads `{"completion": "..", "task": {..}}`; the task is a row in the format of training.
pub(super) fn row(object: Map<String, Value>) -> Result<Row, String> {
    let completion = match required_value(&object, "completion")? {
        Value::String(completion) => completion.clone(),
        other => return Err(format!("`completion` is {other}; write a text")),
    };
    let task = match required_value(&object, "task")? {
        Value::Object(task) => data::task(task.clone(), 1)?,
        other => return Err(format!("`task` is {other}; write a task's row, an object")),
    };
    let problem = Problem::read(&task).map_err(|what| format!("`task`: {what}"))?;
    Ok(Row { completion, problem, object })
}

/// The row with its result, and the reason if it could not be graded.
type GradedProgram = (Map<String, Value>, Option<String>);

/// Grades every row, in parallel on all cores. A row that cannot be graded is returned with the reason.
pub(super) fn grade_programs(
    rows: Vec<Row>,
    python: &str,
    strict: bool,
    seconds: f64,
) -> Result<Vec<GradedProgram>, Failure> {
    let (least, most) = (SECONDS.start(), SECONDS.end());
    if !SECONDS.contains(&seconds) {
        return Err(Failure(format!("`--seconds` is {seconds}; write {least} to {most}")));
    }
    let time = Duration::from_secs_f64(seconds);
    let limits = ProgramLimits { wall: time, cpu: time, ..ProgramLimits::default() };
    let judge = Judge::new(python, strict, limits, true)
        .map_err(|error: SandboxError| Failure(error.to_string()))?;
    for warning in judge.sandbox().protection_gaps() {
        tell(format_args!("the sandbox of programs {warning}"));
    }
    Ok(rows.into_par_iter().map(|row| grade(row, &judge)).collect())
}

fn grade(row: Row, judge: &Judge) -> GradedProgram {
    let Row { mut object, completion, problem } = row;
    let (said, trouble) = match judge.judge(&problem, &completion) {
        Ok(verdict) => {
            let (word, reward) = if verdict.passed() { ("passed", 1.0) } else { ("failed", 0.0) };
            let (points, of) = (json!(verdict.points), json!(verdict.of));
            ([json!(word), json!(verdict.text()), points, of, json!(reward)], None)
        }
        Err(error) => {
            let what = error.to_string();
            ([json!("ungraded"), json!(what), Value::Null, Value::Null, Value::Null], Some(what))
        }
    };
    object.insert("extracted".to_owned(), json!(program(&completion)));
    let keys = ["verdict", "reason", "points", "of", "reward"].map(str::to_owned);
    object.extend(keys.into_iter().zip(said));
    (object, trouble)
}
