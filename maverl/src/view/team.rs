//! The seats of a team over steps: who fails, who is rewarded without a solved task, and who the others wait for. One
//! step beside those before it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::api::{self, Answer};
use super::http::Response;
use super::index::counts::{Attempts, TaskSums};
use super::run::Run;
use super::spans;
use crate::run_dir::{TRAIN, TurnTime};

/// Number of steps whose sums are shown, at either end of a run.
pub(super) const WINDOW: usize = 5;
/// Number of steps before a step that it is compared with.
const BEFORE: u32 = 10;
/// Maximum number of tasks of an answer.
const TASKS: usize = 100;

/// Times of the requests of a seat in rollouts, in seconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
struct Busy {
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
    seats: BTreeMap<String, Busy>,
}

impl Occupancy {
    /// Adds the turns of a step.
    fn add(&mut self, turns: &[TurnTime]) {
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
        changes.sort();
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

/// Returns the sums of the seats over the first and the last steps, with the times of the last ones.
pub(super) fn answer(run: &Run) -> Answer {
    let (early, late, steps) = {
        let held = run.now();
        let steps = held.index.steps(TRAIN);
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return Ok(Response::json(&json!({ "early": null, "late": null, "times": null })));
        };
        let late = steps[steps.len().saturating_sub(WINDOW)];
        let early = steps[WINDOW.min(steps.len()) - 1];
        let sums = |steps| held.index.team(TRAIN, steps);
        let early = (early < late).then(|| sums([*first, early]));
        (early, sums([late, *last]), steps[steps.len().saturating_sub(WINDOW)..].to_vec())
    };
    let mut times = Occupancy::default();
    for step in steps {
        times.add(&spans::turns(run, u64::from(step))?.unwrap_or_default());
    }
    let times = (!times.seats.is_empty()).then_some(times);
    Ok(Response::json(&json!({ "early": early, "late": late, "times": times })))
}

/// Compares a step with the steps before it.
pub(super) fn step(run: &Run, step: u64) -> Answer {
    let missing = || Response::refusal(404, "the run has no episodes of this step");
    let step = u32::try_from(step).map_err(|_| missing())?;
    let held = run.now();
    let steps = held.index.steps(TRAIN);
    if !steps.contains(&step) {
        return Err(missing());
    }
    let before: Vec<u32> = steps.iter().copied().filter(|&earlier| earlier < step).collect();
    let earlier = before.len().checked_sub(1).map(|last| {
        let first = before.len().saturating_sub(BEFORE as usize);
        [before[first], before[last]]
    });
    let before = earlier.map(|steps| held.index.team(TRAIN, steps));
    let sources = held.index.sources(TRAIN, step, earlier);
    let tasks = held.index.tasks(TRAIN, step);
    let now = held.index.team(TRAIN, [step; 2]);
    drop(held);
    let estimator = api::samples(run, step.into())?.map(|samples| samples.estimator);
    api::bounded(&json!({
        "step": step,
        "estimator": estimator,
        "now": now,
        "before": before,
        "known": known(&tasks),
        "sources": &sources[..sources.len().min(TASKS)],
        "tasks": &tasks[..tasks.len().min(TASKS)],
        "of": tasks.len(),
    }))
}

/// Returns the mean score of the tasks of a step that earlier steps had too, now and then; null if there are none.
fn known(tasks: &[TaskSums]) -> Value {
    let seen: Vec<&TaskSums> = tasks.iter().filter(|task| task.before.episodes > 0).collect();
    if seen.is_empty() {
        return Value::Null;
    }
    let mean = |of: fn(&TaskSums) -> Attempts| {
        seen.iter().map(|task| of(task).mean()).sum::<f64>() / seen.len() as f64
    };
    json!({ "tasks": seen.len(), "now": mean(|task| task.now), "before": mean(|task| task.before) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::Seat;

    #[test]
    fn a_seat_is_alone_while_no_other_has_a_request() {
        let turn = |seat: &str, asked, ended| TurnTime(0, 0, Seat::only(seat), asked, ended, None);
        let mut times = Occupancy::default();
        // a: 0 to 1000 twice; b: 500 to 3000; nothing until 4000; a: 4000 to 4250.
        times.add(&[
            turn("t/a", 0, 1000),
            turn("t/a", 250, 1000),
            turn("t/b", 500, 3000),
            turn("t/a", 4000, 4250),
        ]);
        assert_eq!(times.seconds, 3.25);
        assert_eq!(times.seats["t/a"], Busy { busy: 1.25, alone: 0.75, ..Busy::default() });
        assert_eq!(times.seats["t/b"], Busy { busy: 2.5, alone: 2.0, ..Busy::default() });
        times.add(&[turn("t/b", 100, 100)]);
        assert_eq!(times.seconds, 3.25, "another step, and a request without a duration");
        times.add(&[TurnTime(0, 0, Seat::only("t/c"), 500, 1500, Some(750))]);
        let found = times.seats["t/c"];
        assert_eq!((found.open, found.waited, found.alone), (1.0, 0.25, 1.0));
    }
}
