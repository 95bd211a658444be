//! Steps as a trace in the Chrome format, for Perfetto.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use maverl::run_dir::{SpanRecord, SpanRow, TurnTime, WorkerSample};

/// Events of a trace. Times are in microseconds from the start of its first step.
#[derive(Default)]
struct Trace {
    events: Vec<Value>,
    /// Number of each thread, and the end of its last span.
    threads: BTreeMap<String, (usize, f64)>,
    /// Number of requests.
    requests: usize,
}

fn us(seconds: f64) -> f64 {
    (seconds * 1e6).round()
}

impl Trace {
    fn add_name(&mut self, what: &str, tid: usize, name: &str) {
        let args = object!({ "name": name });
        self.events.push(object!({ "ph": "M", "pid": 1, "tid": tid, "name": what, "args": args }));
    }

    /// Adds a span to a thread, whose spans follow each other: those that overlap would not be drawn.
    fn add_span(&mut self, thread: &str, name: &str, step: u64, at: f64, lasts: f64) {
        if !self.threads.contains_key(thread) {
            let tid = self.threads.len() + 2;
            self.threads.insert(thread.to_owned(), (tid, 0.0));
            self.add_name("thread_name", tid, thread);
        }
        let Some((tid, end)) = self.threads.get_mut(thread) else { return };
        let from = us(at).max(*end);
        *end = us(at + lasts).max(from);
        self.events.push(object!({
            "ph": "X", "pid": 1, "tid": tid, "name": name, "cat": "step", "ts": from, "dur": *end - from,
            "args": object!({ "step": step }),
        }));
    }

    /// Adds a request of a seat. Requests of a seat overlap, so each is a pair of `b` and `e` with a number of its own; they are
    /// drawn together because they have one name, and among the threads because the number is local to the process. The time in
    /// which the engine generates is nested.
    fn add_request(
        &mut self,
        seat: &str,
        args: &Value,
        [asked, ended]: [f64; 2],
        began: Option<f64>,
    ) {
        self.requests += 1;
        let id = self.requests.to_string();
        let none = object!({});
        let ended = ended.max(asked);
        self.add_event(seat, &id, "b", seat, asked, args);
        if let Some(began) = began {
            self.add_event(seat, &id, "b", "generating", began.clamp(asked, ended), &none);
            self.add_event(seat, &id, "e", "generating", ended, &none);
        }
        self.add_event(seat, &id, "e", seat, ended, &none);
    }

    /// Adds the begin or the end of a part of a request.
    fn add_event(&mut self, seat: &str, id: &str, ph: &str, name: &str, at: f64, args: &Value) {
        let id = object!({ "local": id });
        self.events.push(object!({
            "ph": ph, "pid": 1, "tid": 1, "cat": seat, "id2": id, "name": name, "ts": us(at), "args": args,
        }));
    }

    fn add_counter(&mut self, name: &str, at: f64, args: &Value) {
        self.events.push(
            object!({ "ph": "C", "pid": 1, "tid": 1, "name": name, "ts": us(at), "args": args }),
        );
    }

    /// Adds the states of the workers of a step.
    fn add_workers(&mut self, row: &SpanRow, rollout: f64) {
        for (policy, samples) in &row.samples {
            for WorkerSample(at, tokens, used, blocks) in samples {
                let (at, blocks) = (rollout + at, object!({ "used": used, "all": blocks }));
                self.add_counter(&format!("cache blocks of {policy}"), at, &blocks);
                self.add_counter(
                    &format!("tokens of {policy}"),
                    at,
                    &object!({ "sampled": tokens }),
                );
            }
        }
    }

    /// Adds the requests of a step, and how many of each seat there are at once.
    fn add_turns(&mut self, step: u64, rollout: f64, turns: &[TurnTime]) {
        let seconds = |ms: u64| rollout + ms as f64 / 1e3;
        let mut changes: BTreeMap<String, BTreeSet<(u64, i32, usize)>> = BTreeMap::new();
        for (i, TurnTime(episode, turn, seat, asked, ended, began)) in turns.iter().enumerate() {
            let seat = seat.to_string();
            let args = object!({ "step": step, "episode": episode, "turn": turn });
            self.add_request(&seat, &args, [seconds(*asked), seconds(*ended)], began.map(seconds));
            if asked < ended {
                changes.entry(seat).or_default().extend([(*asked, 1, i), (*ended, -1, i)]);
            }
        }
        for (seat, changes) in changes {
            let (name, mut open) = (format!("requests of {seat}"), 0);
            for (at, change, _) in changes {
                open += change;
                self.add_counter(&name, seconds(at), &object!({ "open": open }));
            }
        }
    }
}

/// Returns steps as events: a thread for the parts of the steps and one for each policy, the requests of each seat, and counters
/// of requests, cache blocks and tokens.
pub(crate) fn trace_events(steps: &[(SpanRow, Vec<TurnTime>)]) -> Vec<Value> {
    let mut trace = Trace::default();
    trace.add_name("process_name", 1, "maverl");
    trace.add_name("thread_name", 1, "requests");
    let first = steps.first().map_or(0.0, |(row, _)| row.start);
    for (row, turns) in steps {
        let start = row.start - first;
        for SpanRecord(name, policy, begin, lasts) in &row.spans {
            trace.add_span(
                policy.as_deref().unwrap_or("step"),
                name,
                row.step,
                start + begin,
                *lasts,
            );
        }
        let rollout = row.spans.iter().find(|span| span.0 == "rollout").map_or(0.0, |span| span.2);
        trace.add_workers(row, start + rollout);
        trace.add_turns(row.step, start + rollout, turns);
    }
    trace.events
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use maverl::trajectory::Seat;

    /// Asserts that each event has the keys that the Trace Event format requires of its phase, that spans of a thread are in
    /// the order of their times, and that processes and threads have names.
    fn complete(events: &[Value]) {
        let is_time =
            |value: &Value| value.as_f64().is_some_and(|us| us >= 0.0 && us.fract() == 0.0);
        let mut named: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        let mut last: BTreeMap<u64, f64> = BTreeMap::new();
        for event in events {
            let tid = event["tid"].as_u64().unwrap();
            assert!(event["pid"] == 1 && event["name"].is_string(), "{event}");
            match event["ph"].as_str().unwrap() {
                "M" => {
                    assert!(event["args"]["name"].is_string(), "{event}");
                    named.entry(event["name"].as_str().unwrap()).or_default().insert(tid);
                    continue;
                }
                "X" => {
                    assert!(is_time(&event["dur"]) && event["cat"].is_string(), "{event}");
                    let ts = event["ts"].as_f64().unwrap();
                    assert!(last.insert(tid, ts).is_none_or(|last| last <= ts), "{event}: order");
                }
                "b" | "e" => {
                    assert!(
                        event["id2"]["local"].is_string() && event["cat"].is_string(),
                        "{event}"
                    )
                }
                "C" => assert!(event["args"].as_object().is_some_and(|args| !args.is_empty())),
                other => panic!("{other}"),
            }
            assert!(is_time(&event["ts"]), "{event}");
            assert!(
                named["thread_name"].contains(&tid),
                "{event}: its thread has no name before it"
            );
        }
        assert!(named["process_name"].len() == 1, "{named:?}");
    }

    /// Returns the open spans of each track after all events, as Perfetto reads them: a track of `b` and `e` is a category with a
    /// number, an `e` ends the last `b` of its name, and spans of a thread do not overlap.
    pub(crate) fn replayed(events: &[Value]) -> BTreeMap<(String, String), Vec<String>> {
        complete(events);
        let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
        let track = |event: &Value| (text(event, "cat"), text(&event["id2"], "local"));
        let mut sorted: Vec<&Value> = events.iter().filter(|event| event["ph"] != "M").collect();
        sorted.sort_by(|a, b| a["ts"].as_f64().unwrap().total_cmp(&b["ts"].as_f64().unwrap()));
        let mut open: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        let mut ends: BTreeMap<u64, f64> = BTreeMap::new();
        for event in sorted {
            let (name, ts) = (text(event, "name"), event["ts"].as_f64().unwrap());
            assert!(event["pid"].is_u64() && event["tid"].is_u64() && ts >= 0.0, "{event}");
            match event["ph"].as_str().unwrap() {
                "b" => open.entry(track(event)).or_default().push(name),
                "e" => {
                    let stack = open.get_mut(&track(event)).unwrap();
                    assert_eq!(stack.pop(), Some(name), "{event}");
                }
                "X" => {
                    let end = ends.entry(event["tid"].as_u64().unwrap()).or_default();
                    assert!(ts >= *end, "{event} overlaps");
                    *end = ts + event["dur"].as_f64().unwrap();
                }
                "C" => assert!(event["args"].as_object().unwrap().values().all(Value::is_number)),
                other => panic!("{other}"),
            }
        }
        open
    }

    #[test]
    fn a_trace_keeps_the_rules_of_its_format_and_counters_end_at_0() {
        let span = |name: &str, policy: Option<&str>, at, lasts| {
            SpanRecord(name.to_owned(), policy.map(str::to_owned), at, lasts)
        };
        let row = |step, start| SpanRow {
            step,
            start,
            spans: vec![
                span("files", None, 0.0, 1.000_000_6),
                span("rollout", None, 1.0, 2.0),
                span("update", Some("small"), 3.0, 0.5),
            ],
            samples: BTreeMap::from([("small".to_owned(), vec![WorkerSample(0.5, 90, 3, 8)])]),
        };
        let turn =
            |turn, asked, ended, began| TurnTime(0, turn, Seat::only("a/b"), asked, ended, began);
        let turns =
            vec![turn(0, 0, 250, Some(50)), turn(1, 100, 500, None), turn(2, 500, 500, Some(500))];
        let events = trace_events(&[(row(2, 100.0), turns), (row(3, 104.0), Vec::new())]);
        let open = replayed(&events);
        assert!(open.len() == 3 && open.values().all(Vec::is_empty), "{open:?}");
        let of = |ph: &str| events.iter().filter(|event| event["ph"] == ph).collect::<Vec<_>>();
        assert_eq!((of("b").len(), of("X").len(), of("C").len()), (5, 6, 8));
        let running: Vec<i64> =
            of("C").iter().filter_map(|event| event["args"]["open"].as_i64()).collect();
        assert_eq!(running, [1, 2, 1, 0]);
        assert_eq!(of("b")[0]["ts"], 1e6, "turns are counted from the start of the rollout");
        assert_eq!(of("b")[1]["ts"], 1.05e6, "the request waited for 50 ms");
        assert_eq!((&of("b")[0]["name"], &of("b")[2]["name"]), (&json!("a/b"), &json!("a/b")));
        assert_eq!((&of("C")[0]["args"]["used"], &of("C")[0]["ts"]), (&json!(3), &json!(1.5e6)));
        let threads = of("M").iter().map(|event| event["args"]["name"].clone()).collect::<Vec<_>>();
        assert_eq!(threads, ["maverl", "requests", "step", "small"]);
    }
}
