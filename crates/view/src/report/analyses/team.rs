//! The seats of a team over steps: who fails, who is rewarded without a solved task, and who the others wait for. One
//! step compared with the one before it.

use std::collections::BTreeMap;

use maverl::run_dir::{SpanRecord, TRAIN, TurnTime};
use serde::Serialize;
use serde_json::Value;

use super::change::ScoreChange;
use super::fall::explain_change;
use crate::compact::sort_by;
use crate::report::problem::ReportProblem;
use crate::report::reading::files::RunFiles;
use crate::report::rows::index::RowIndex;
use crate::report::rows::index::counts::TaskSums;
use crate::report::rows::run::ReportedRun;

/// Number of steps whose sums are shown, at either end of a run.
pub(crate) const WINDOW: usize = 5;
/// Number of steps before a step whose mean score is shown.
const BEFORE: usize = 10;
/// Maximum number of tasks of an answer.
const TASKS: usize = 100;

/// Times of the requests of a seat in rollouts, in seconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
struct SeatBusy {
    /// Time in which a request of the seat was open.
    busy: f64,
    /// Time in which requests of the seat were open, and none of another.
    alone: f64,
    /// Sum over its requests whose begin is known.
    open: f64,
    /// Sum over the same requests until the engine began with them.
    waited: f64,
}

/// Times of the requests of all seats.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
struct Occupancy {
    /// Time in which any request was open.
    seconds: f64,
    seats: BTreeMap<String, SeatBusy>,
}

impl Occupancy {
    /// Adds the turns of a step.
    fn add_turns(&mut self, turns: &[TurnTime]) {
        let mut changes: Vec<(u64, i32, String)> = Vec::with_capacity(2 * turns.len());
        for TurnTime(_, _, seat, asked, ended, began) in turns.iter().filter(|turn| turn.3 < turn.4)
        {
            if let Some(began) = began {
                let times = self.seats.entry(seat.to_string()).or_default();
                times.open += (ended - asked) as f64 / 1e3;
                times.waited += began.saturating_sub(*asked) as f64 / 1e3;
            }
            changes.push((*asked, 1, seat.to_string()));
            changes.push((*ended, -1, seat.to_string()));
        }
        sort_by(&mut changes, Ord::cmp);
        let mut open: BTreeMap<String, i32> = BTreeMap::new();
        let mut last = 0;
        for (at, change, seat) in changes {
            let seconds = (at - last.min(at)) as f64 / 1e3;
            if !open.is_empty() {
                self.seconds += seconds;
            }
            for seat in open.keys() {
                let times = self.seats.entry(seat.clone()).or_default();
                times.busy += seconds;
                times.alone += if open.len() == 1 { seconds } else { 0.0 };
            }
            let count = open.entry(seat.clone()).or_default();
            *count += change;
            if *count <= 0 {
                open.remove(&seat);
            }
            last = at;
        }
    }
}

/// Returns the first and the last of the last steps of a run.
pub(crate) fn last_steps(index: &RowIndex) -> Option<[u32; 2]> {
    let steps = index.stage_steps(TRAIN);
    Some([steps[steps.len().saturating_sub(WINDOW)..].first().copied()?, *steps.last()?])
}

/// Returns the parts of steps with their seconds, the longest first.
fn step_parts(run: &RunFiles, steps: &[u32]) -> Vec<(String, f64)> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut rows = run.read_spans();
    rows.retain(|row| steps.iter().any(|step| u64::from(*step) == row.step));
    for row in &rows {
        for SpanRecord(name, policy, _, lasts) in &row.spans {
            // Those of a policy are within a part of the step.
            if policy.is_none() {
                *sums.entry(name.clone()).or_default() += lasts;
            }
        }
    }
    let mut parts: Vec<(String, f64)> = sums.into_iter().collect();
    sort_by(&mut parts, |(_, a), (_, b)| b.total_cmp(a));
    parts
}

/// Returns the sums of the seats over the first and the last steps, with the times of the last ones.
pub(crate) fn team_summary(run: &ReportedRun) -> Result<Value, ReportProblem> {
    let (early, late, steps) = {
        let content = run.lock_content();
        let steps = content.index.stage_steps(TRAIN);
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return Ok(
                object!({ "early": Value::Null, "late": Value::Null, "times": Value::Null, "parts": [0; 0] }),
            );
        };
        let late = steps[steps.len().saturating_sub(WINDOW)];
        let early = steps[WINDOW.min(steps.len()) - 1];
        let early = (early < late).then(|| content.index.team_sums(TRAIN, [*first, early]));
        let sums = content.index.team_sums(TRAIN, [late, *last]);
        (early, sums, steps[steps.len().saturating_sub(WINDOW)..].to_vec())
    };
    let mut times = Occupancy::default();
    for step in &steps {
        times.add_turns(&run.files.read_clock(u64::from(*step))?.unwrap_or_default());
    }
    let times = (!times.seats.is_empty()).then_some(times);
    let parts = step_parts(&run.files, &steps);
    Ok(object!({ "early": early, "late": late, "times": times, "parts": parts }))
}

/// Compares a step with the step before it.
pub(crate) fn step_comparison(run: &ReportedRun, step: u64) -> Result<Value, ReportProblem> {
    let content = run.lock_content();
    let steps = content.index.stage_steps(TRAIN);
    let step = u32::try_from(step).ok().filter(|step| steps.contains(step));
    let step =
        step.ok_or_else(|| ReportProblem::missing("the run has no episodes of this step"))?;
    let at = steps.partition_point(|&earlier| earlier < step);
    let previous = at.checked_sub(1).map(|last| steps[last]);
    let earlier = previous.map(|last| [steps[at.saturating_sub(BEFORE)], last]);
    let usual = earlier.map(|steps| content.index.team_sums(TRAIN, steps).mean_score());
    let before = previous.map(|step| content.index.team_sums(TRAIN, [step; 2]));
    let next = steps
        .get(at + 1)
        .map(|next| (*next, content.index.team_sums(TRAIN, [*next; 2]).mean_score()));
    let tasks = content.index.task_sums(TRAIN, step);
    let now = content.index.team_sums(TRAIN, [step; 2]);
    drop(content);
    let explained = previous.and_then(|from| explain_change(run, step, from));
    let (change, failure) = explained.unzip();
    let mut text = change.as_ref().map_or(Vec::new(), |change: &ScoreChange| change.text.clone());
    text.extend(failure.flatten());
    text.extend(change.as_ref().and(task_context(&tasks, next)));
    let estimator = run.files.read_samples(step.into())?.map(|samples| samples.estimator);
    Ok(object!({
        "step": step,
        "estimator": estimator,
        "now": now,
        "before": before,
        "usual": usual,
        "earlier": earlier,
        "change": change,
        "text": text,
        "tasks": &tasks[..tasks.len().min(TASKS)],
        "of": tasks.len(),
    }))
}

/// Says how the tasks of a step that earlier steps had too scored there, and how the next step scored.
fn task_context(tasks: &[TaskSums], next: Option<(u32, f64)>) -> Option<String> {
    let next = next.map_or_else(String::new, |(step, score)| {
        format!(" Step {step}, with other tasks, scores {score:.3}.")
    });
    let Some((n, now, before)) = known_tasks(tasks) else {
        return Some(format!(
            "No task of this step was in an earlier one, so harder tasks of the same kinds and a worse team cannot be told apart.{next}"
        ));
    };
    let same = if n == 1 { "task".to_owned() } else { format!("{n} tasks") };
    let team = match now - before {
        by if by < -0.05 => "does worse",
        by if by > 0.05 => "does better",
        _ => "is about as good",
    };
    Some(format!(
        "The same {same} scored {before:.3} in earlier steps and {now:.3} now: the team {team} on equal tasks.{next}"
    ))
}

/// Returns the number of the tasks of a step that earlier steps had too, and their mean score now and then.
fn known_tasks(tasks: &[TaskSums]) -> Option<(usize, f64, f64)> {
    let seen: Vec<&TaskSums> = tasks.iter().filter(|task| task.before.episodes > 0).collect();
    let now: f64 = seen.iter().map(|task| task.now.mean_score()).sum();
    let before: f64 = seen.iter().map(|task| task.before.mean_score()).sum();
    let n = seen.len();
    (n > 0).then(|| (n, now / n as f64, before / n as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use maverl::trajectory::Seat;

    #[test]
    fn a_seat_is_alone_while_no_other_has_a_request() {
        let turn = |seat: &str, asked, ended| TurnTime(0, 0, Seat::only(seat), asked, ended, None);
        let mut times = Occupancy::default();
        // a: 0 to 1000 twice; b: 500 to 3000; nothing until 4000; a: 4000 to 4250.
        times.add_turns(&[
            turn("t/a", 0, 1000),
            turn("t/a", 250, 1000),
            turn("t/b", 500, 3000),
            turn("t/a", 4000, 4250),
        ]);
        assert_eq!(times.seconds, 3.25);
        assert_eq!(times.seats["t/a"], SeatBusy { busy: 1.25, alone: 0.75, ..SeatBusy::default() });
        assert_eq!(times.seats["t/b"], SeatBusy { busy: 2.5, alone: 2.0, ..SeatBusy::default() });
        times.add_turns(&[turn("t/b", 100, 100)]);
        assert_eq!(times.seconds, 3.25, "another step, and a request without a duration");
        times.add_turns(&[TurnTime(0, 0, Seat::only("t/c"), 500, 1500, Some(750))]);
        let found = times.seats["t/c"];
        assert_eq!((found.open, found.waited, found.alone), (1.0, 0.25, 1.0));
    }
}
