//! Times of steps and of turns, and both as a trace for Perfetto.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use super::api::{self, Answer};
use super::http::{Body, Query, Response};
use super::run::Run;
use crate::run_dir::{SpanRecord, SpanRow, TurnTime, WorkerSample, read_clock};

/// Maximum number of steps of an answer.
const STEPS: usize = 5000;

/// Returns the spans of steps; the last ones if there are many.
pub(super) fn answer(run: &Run, query: &Query) -> Answer {
    let (from, to) = (query.parse("from")?.unwrap_or(0), query.parse("to")?.unwrap_or(u64::MAX));
    let mut rows = rows(run);
    rows.retain(|row| (from..=to).contains(&row.step));
    let steps = &rows[rows.len().saturating_sub(STEPS)..];
    api::bounded(&json!({ "steps": steps, "of": rows.len() }))
}

/// Returns the times of the turns of a step.
pub(super) fn clock(run: &Run, step: u64) -> Answer {
    let turns = turns(run, step)?;
    let unknown = || Response::refusal(404, "the run has no times of the turns of this step");
    api::bounded(&json!({ "step": step, "turns": turns.ok_or_else(unknown)? }))
}

/// Returns a step as a trace.
pub(super) fn trace(run: &Run, step: u64) -> Answer {
    let row = rows(run).into_iter().find(|row| row.step == step);
    let unknown = || Response::refusal(404, "the run has no times of this step");
    let row = row.ok_or_else(unknown)?;
    let turns = turns(run, step)?.unwrap_or_default();
    let text = json!({ "traceEvents": events(&[(row, turns)]) }).to_string();
    Ok(Response::new(200, "application/json", Body::Whole(text.into_bytes())))
}

/// Reads the rows of `spans.jsonl`. An incomplete last line is skipped, and so is a run without times.
pub(super) fn rows(run: &Run) -> Vec<SpanRow> {
    let Ok(file) = std::fs::File::open(run.path().join("spans.jsonl")) else { return Vec::new() };
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
}

/// Returns the times of the turns of a step; `None` if there are none.
pub(super) fn turns(run: &Run, step: u64) -> Result<Option<Vec<TurnTime>>, Response> {
    let path = run.path().join(format!("clock/step-{step:06}.jsonl.zst"));
    if !path.is_file() {
        return Ok(None);
    }
    let read = read_clock(&path);
    read.map(Some).map_err(|error| Response::refusal(500, &error.to_string()))
}

/// Returns steps as events of the Chrome trace format. Spans are pairs of `b` and `e`, because those of one track
/// overlap: a track for the step, for each policy and for each seat, and a counter of the requests of each seat.
pub(super) fn events(steps: &[(SpanRow, Vec<TurnTime>)]) -> Vec<Value> {
    let mut events =
        vec![json!({ "ph": "M", "pid": 1, "name": "process_name", "args": { "name": "maverl" } })];
    let first = steps.first().map_or(0.0, |(row, _)| row.start);
    let us = |seconds: f64| (seconds * 1e6).round();
    let mut id = 0;
    let mut pair = |events: &mut Vec<Value>, track: &str, name: &str, at: f64, lasts: f64| {
        id += 1;
        for (ph, ts) in [("b", at), ("e", at + lasts)] {
            events.push(json!({
                "ph": ph, "pid": 1, "tid": 1, "cat": track, "id": id, "name": name, "ts": us(ts),
            }));
        }
    };
    let counter = |events: &mut Vec<Value>, name: &str, at: f64, args: Value| {
        events.push(json!({ "ph": "C", "pid": 1, "name": name, "ts": us(at), "args": args }));
    };
    for (row, turns) in steps {
        let start = row.start - first;
        for SpanRecord(name, policy, begin, lasts) in &row.spans {
            let track = policy.as_deref().unwrap_or("step");
            let name = format!("{name}, step {}", row.step);
            pair(&mut events, track, &name, start + begin, *lasts);
        }
        let rollout = row.spans.iter().find(|span| span.0 == "rollout").map_or(0.0, |span| span.2);
        let ms = |ms: u64| start + rollout + ms as f64 / 1e3;
        let mut changes: BTreeMap<String, BTreeSet<(u64, i32, usize)>> = BTreeMap::new();
        for (policy, samples) in &row.samples {
            for WorkerSample(at, tokens, used, blocks) in samples {
                let at = start + rollout + at;
                let name = format!("cache blocks of {policy}");
                counter(&mut events, &name, at, json!({ "used": used, "all": blocks }));
                let name = format!("tokens of {policy}");
                counter(&mut events, &name, at, json!({ "sampled": tokens }));
            }
        }
        for (i, TurnTime(episode, turn, seat, asked, ended, began)) in turns.iter().enumerate() {
            let seat = seat.to_string();
            let name = format!("episode {episode}, turn {turn}");
            let lasts = |from: &u64| (ended - from.min(ended)) as f64 / 1e3;
            pair(&mut events, &seat, &name, ms(*asked), lasts(asked));
            if let Some(began) = began {
                let name = format!("{name}: generating");
                pair(&mut events, &seat, &name, ms(*began), lasts(began));
            }
            changes.entry(seat).or_default().extend([(*asked, 1, i), (*ended, -1, i)]);
        }
        for (seat, changes) in changes {
            let mut running = 0;
            for (at, change, _) in changes {
                running += change;
                let name = format!("requests of {seat}");
                counter(&mut events, &name, ms(at), json!({ "open": running }));
            }
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::Seat;

    #[test]
    fn a_trace_has_pairs_of_events_and_counters_that_end_at_0() {
        let row = SpanRow {
            step: 2,
            start: 100.0,
            spans: vec![
                SpanRecord("rollout".to_owned(), None, 1.0, 2.0),
                SpanRecord("update".to_owned(), Some("small".to_owned()), 3.0, 0.5),
            ],
            samples: BTreeMap::from([("small".to_owned(), vec![WorkerSample(0.5, 90, 3, 8)])]),
        };
        let turn =
            |turn, asked, ended, began| TurnTime(0, turn, Seat::only("a/b"), asked, ended, began);
        let events = events(&[(row, vec![turn(0, 0, 250, Some(50)), turn(1, 100, 500, None)])]);
        let of = |ph: &str| events.iter().filter(|event| event["ph"] == ph).collect::<Vec<_>>();
        assert_eq!((of("b").len(), of("e").len(), of("C").len()), (5, 5, 6));
        for begin in of("b") {
            let ends = of("e");
            let end = ends.iter().find(|end| end["id"] == begin["id"]).map(|end| &end["ts"]);
            assert!(end.and_then(Value::as_f64) >= begin["ts"].as_f64(), "{begin}");
        }
        let running: Vec<i64> =
            of("C").iter().filter_map(|event| event["args"]["open"].as_i64()).collect();
        assert_eq!(running, [1, 2, 1, 0]);
        assert_eq!(of("b")[2]["ts"], 1e6, "turns are counted from the start of the rollout");
        assert_eq!((&of("C")[0]["args"]["used"], &of("C")[0]["ts"]), (&json!(3), &json!(1.5e6)));
        assert_eq!(of("b")[3]["ts"], 1.05e6, "the request waited for 50 ms");
    }
}
