//! Times of steps and of turns.

use serde_json::Value;

use super::trace::trace_events;
use crate::report::problem::ReportProblem;
use crate::report::reading::files::RunFiles;

/// Maximum number of steps of an answer.
const STEPS: usize = 5000;

/// Returns the spans of steps; the last ones if there are many.
pub(crate) fn step_times(run: &RunFiles, from: u64, to: u64) -> Value {
    let mut rows = run.read_spans();
    rows.retain(|row| (from..=to).contains(&row.step));
    let steps = &rows[rows.len().saturating_sub(STEPS)..];
    object!({ "steps": steps, "of": rows.len() })
}

/// Returns the times of the turns of a step.
pub(crate) fn turn_times(run: &RunFiles, step: u64) -> Result<Value, ReportProblem> {
    let turns = run
        .read_clock(step)?
        .ok_or_else(|| ReportProblem::missing("the run has no times of the turns of this step"))?;
    Ok(object!({ "step": step, "turns": turns }))
}

/// Returns a step as a trace.
pub(crate) fn step_trace(run: &RunFiles, step: u64) -> Result<Value, ReportProblem> {
    let row = run.read_spans().into_iter().find(|row| row.step == step);
    let row = row.ok_or_else(|| ReportProblem::missing("the run has no times of this step"))?;
    let turns = run.read_clock(step)?.unwrap_or_default();
    Ok(object!({ "traceEvents": trace_events(&[(row, turns)]) }))
}
