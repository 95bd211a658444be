//! Every table at the widths that terminals have.

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use maverl::env::search::SearchEnvironment;
use maverl::eval::{Comparison, EvalReport};
use maverl::registry::{Entry, SourceLocation};
use maverl::train::RunSummary;

const WIDTHS: [usize; 3] = [60, 80, 120];

/// Draws at each width; no line may be wider, and all parts must be present.
#[track_caller]
fn drawn(parts: &[&str], draw: impl Fn(usize) -> String) {
    for width in WIDTHS {
        let text = draw(width);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= width, "{widest} columns at {width}\n{text}");
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(plain.contains(part), "{part} is missing at {width}\n{text}");
        }
    }
}

fn estimate(mean: f64) -> Value {
    json!({ "mean": mean, "low": mean - 0.0125, "high": mean + 0.0125 })
}

fn solved(tasks: u64) -> Value {
    let pass: serde_json::Map<String, Value> =
        ["1", "2", "4", "8", "16"].map(|k| (k.to_owned(), estimate(0.5))).into_iter().collect();
    json!({ "tasks": tasks, "episodes": 16 * tasks, "avg": estimate(0.4), "pass": pass, "score_mean": 0.4 })
}

#[test]
fn evaluations_fit() {
    let agent =
        json!({ "calls": 12, "reply_error_rate": 0.0, "truncated_rate": 0.0, "reward_mean": 0.5 });
    let report = json!({
        "split": "test", "samples": 16, "temperature": null, "unscored": 3, "overall": solved(96),
        "sources": { "mathematics/competition/algebra": solved(32), "facts/two_hop": solved(64) },
        "agents": { "search/answerer": agent },
    });
    let report: EvalReport = serde_json::from_value(report).unwrap();
    drawn(&["avg@16", "pass@8", "algebra", "all", "could not be"], |width| report.table(width));
}

#[test]
fn comparisons_fit() {
    let side = |name: &str, ahead: Value| {
        json!({
            "name": name, "samples": 4, "solved": estimate(0.5), "score_mean": 0.5, "first_ahead": ahead,
            "sampled_tokens": 1234.5, "prompt_tokens": 4321.0, "uncounted_turns": 7,
        })
    };
    let names = ["trained team", "untrained team", "single agent", "majority vote"];
    let sides: Vec<Value> = names
        .into_iter()
        .map(|name| side(name, if name == names[0] { Value::Null } else { estimate(0.25) }))
        .collect();
    let comparison = json!({ "split": "test", "tasks": 96, "left_out": 2, "sides": sides });
    let comparison: Comparison = serde_json::from_value(comparison).unwrap();
    let parts = ["ahead", "majority vote", "+0.250", "are left", "1234.5"];
    drawn(&parts, |width| comparison.table(width));
}

#[test]
fn summaries_fit() {
    let score = json!({ "exact_match": 0.5, "interval": [0.4, 0.6], "greedy": 0.5, "tasks": 512 });
    let agent = json!({ "calls": 12345, "reply_error_rate": 0.0, "truncated_rate": 0.0, "reward_mean": 0.5 });
    let summary = json!({
        "complete": true, "steps": 30, "seed": 0, "before": score, "after": score, "best": null,
        "train_seconds": 10.5,
        "agents": { "a_team_with_a_long_name/a_role_with_a_long_name": agent, "b/c": agent },
    });
    let summary: RunSummary = serde_json::from_value(summary).unwrap();
    drawn(&["before", "errors", "a_role_with_a_long_name", "30 steps in 10.5 s"], |width| {
        summary.table(Path::new("runs/a"), width)
    });
}

#[test]
fn what_is_linked_in_fits() {
    let mut registry = Registry::default();
    let place = SourceLocation { file: file!(), line: 1, item: "here" };
    if let Entry::Environment(entry) = Entry::environment::<SearchEnvironment>(place) {
        registry.environments.insert("search", entry);
    }
    drawn(&["search", "top_k = 3"], |width| info::list(&registry).draw(width));
}
