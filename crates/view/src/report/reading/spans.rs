//! Times of steps and of turns.

use std::io::{BufRead, BufReader};

use crate::pages::api::{self, Answer};
use crate::pages::query::{Body, Query, Response};
use crate::report::analyses::trace;
use crate::report::rows::run::Run;
use maverl::run_dir::{SpanRow, TurnTime, read_clock};

/// Maximum number of steps of an answer.
const STEPS: usize = 5000;

/// Returns the spans of steps; the last ones if there are many.
pub(crate) fn answer(run: &Run, query: &Query) -> Answer {
    let (from, to) = (query.parse("from")?.unwrap_or(0), query.parse("to")?.unwrap_or(u64::MAX));
    let mut rows = rows(run);
    rows.retain(|row| (from..=to).contains(&row.step));
    let steps = &rows[rows.len().saturating_sub(STEPS)..];
    api::bounded(&object!({ "steps": steps, "of": rows.len() }))
}

/// Returns the times of the turns of a step.
pub(crate) fn clock(run: &Run, step: u64) -> Answer {
    let turns = turns(run, step)?;
    let unknown = || Response::refusal(404, "the run has no times of the turns of this step");
    api::bounded(&object!({ "step": step, "turns": turns.ok_or_else(unknown)? }))
}

/// Returns a step as a trace.
pub(crate) fn trace(run: &Run, step: u64) -> Answer {
    let row = rows(run).into_iter().find(|row| row.step == step);
    let unknown = || Response::refusal(404, "the run has no times of this step");
    let row = row.ok_or_else(unknown)?;
    let turns = turns(run, step)?.unwrap_or_default();
    let text = object!({ "traceEvents": trace::events(&[(row, turns)]) }).to_string();
    Ok(Response::new(200, "application/json", Body::Whole(text.into_bytes())))
}

/// Reads the rows of `spans.jsonl`. An incomplete last line is skipped, and so is a run without times.
pub(crate) fn rows(run: &Run) -> Vec<SpanRow> {
    let Ok(file) = std::fs::File::open(run.path().join("spans.jsonl")) else { return Vec::new() };
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_slice(line.as_bytes()).ok()).collect()
}

/// Returns the times of the turns of a step; `None` if there are none.
pub(crate) fn turns(run: &Run, step: u64) -> Result<Option<Vec<TurnTime>>, Response> {
    let path = run.path().join(format!("clock/step-{step:06}.jsonl.zst"));
    if !path.is_file() {
        return Ok(None);
    }
    let read = read_clock(&path);
    read.map(Some).map_err(|error| Response::refusal(500, &error.to_string()))
}
