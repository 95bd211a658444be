//! Paths of the interface: from a path and a query to JSON.

use serde_json::Value;

use crate::pages::events;
use crate::pages::query::{Body, Query, Request, Response};
use crate::pages::viewer::Viewer;
use crate::report::analyses::{compare, episode, groups as group, replies, search, team, tokens};
use crate::report::reading::spans;
use crate::report::rows::run::{Held, Run};
use crate::report::rows::selection::Selection;
use maverl::run_dir::{Place, read_episode, read_samples};
use maverl::trajectory::Episode;

/// Maximum size of an answer in bytes.
pub(crate) const MOST: usize = 8 << 20;

/// Result of a request: a response, or a refusal with its reason.
pub(crate) type Answer = Result<Response, Response>;

/// Answers a path below `api/`.
pub(crate) fn answer(viewer: &Viewer, request: &Request<'_>, path: &str) -> Answer {
    let query = request.query()?;
    let parts: Vec<&str> = path.split('/').collect();
    let run = |name: &str| {
        let unknown = || Response::refusal(404, "there is no such run");
        viewer.run(name).ok_or_else(unknown)
    };
    match parts[..] {
        ["runs"] => Ok(runs(viewer)),
        ["events"] => Ok(events::answer(viewer, request.last_event())),
        ["compare"] => compare::answer(viewer, &query),
        ["runs", r] => run(r).map(|run| overview(&run)),
        ["runs", r, "config"] => config(run(r)?.as_ref()),
        ["runs", r, "series"] => series(run(r)?.as_ref(), &query),
        ["runs", r, "episodes"] => episodes(run(r)?.as_ref(), &query),
        ["runs", r, "search"] => search::answer(&run(r)?, &query),
        ["runs", r, "episodes", stage, step, n] => {
            let (run, step, n) = (run(r)?, number(step)?, number(n)?);
            let (at, row, episode) = stored(&run, stage, step, n)?;
            episode::answer(&run, at, &row, &episode)
        }
        ["runs", r, "episodes", stage, step, n, "turns", turn] => {
            let (run, step, n) = (run(r)?, number(step)?, number(n)?);
            let (.., episode) = stored(&run, stage, step, n)?;
            episode::turn_answer(&episode, number(turn)? as usize)
        }
        ["runs", r, "episodes", stage, step, n, "turns", turn, "tokens"] => {
            let (run, step, n) = (run(r)?, number(step)?, number(n)?);
            let (_, row, episode) = stored(&run, stage, step, n)?;
            let whole = query.text("prompt") == Some("whole");
            tokens::answer(&run, &row, &episode, number(turn)? as usize, whole)
        }
        ["runs", r, "spans"] => spans::answer(run(r)?.as_ref(), &query),
        ["runs", r, "clock", step] => spans::clock(run(r)?.as_ref(), number(step)?),
        ["runs", r, "trace", step] => spans::trace(run(r)?.as_ref(), number(step)?),
        ["runs", r, "team"] => team::answer(run(r)?.as_ref()),
        ["runs", r, "replies"] => replies::answer(run(r)?.as_ref()),
        ["runs", r, "steps", step] => team::step(run(r)?.as_ref(), number(step)?),
        ["runs", r, "groups"] => group::largest(run(r)?.as_ref()),
        ["runs", r, "groups", step] => group::list(run(r)?.as_ref(), number(step)?),
        ["runs", r, "groups", step, id] => {
            group::answer(run(r)?.as_ref(), number(step)?, number(id)? as usize)
        }
        _ => Err(Response::refusal(404, "there is no such path")),
    }
}

fn number(text: &str) -> Result<u64, Response> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let refusal = || Response::refusal(400, "a part of the path is not a number");
    if digits { text.parse().map_err(|_| refusal()) } else { Err(refusal()) }
}

/// Lists the runs.
fn runs(viewer: &Viewer) -> Response {
    let runs = viewer.runs();
    Response::json(&runs.iter().map(|run| run.line()).collect::<Vec<Value>>())
}

/// Describes a run.
fn overview(run: &Run) -> Response {
    let validations = run.validations.of(run.path());
    let notices = run.notices();
    let mut held = run.now();
    let gain = held.gain().map(|gain| {
        let interval = gain.interval;
        object!({ "mean": interval.mean, "low": interval.low, "high": interval.high, "tasks": gain.tasks })
    });
    let line = held.line(&run.id, &run.name, &notices);
    let facts = &held.facts;
    let outcome = |report: &Value| match report {
        Value::Null => Value::Null,
        report => object!({
            "split": report["sampled"]["split"],
            "samples": report["sampled"]["samples"],
            "unscored": report["sampled"]["unscored"],
            "overall": report["sampled"]["overall"],
            "greedy": report["greedy"]["overall"]["avg"],
        }),
    };
    let samples = run.path().join("samples");
    let has_samples =
        std::fs::read_dir(samples).is_ok_and(|mut entries| entries.any(|entry| entry.is_ok()));
    let (stages, seats) = held.index.names();
    Response::json(&object!({
        "run": line,
        "measure": facts.summary["measure"],
        "summary": facts.summary,
        "provenance": facts.provenance,
        "plan": facts.plan,
        "before": outcome(&facts.before),
        "after": outcome(&facts.after),
        "gain": gain,
        "notices": notices,
        "validations": validations,
        "episodes": held.index.len(),
        "forgotten": held.index.forgotten(),
        "stages": stages,
        "seats": order(&held, seats),
        "scanning": held.scanning,
        "holds": object!({ "samples": has_samples, "rows": held.rows_file().exists() }),
    }))
}

/// Returns the seats of a run in the order of the plan; those of episodes if the run has no plan.
pub(crate) fn order(held: &Held, found: &[String]) -> Vec<String> {
    let plan = &held.facts.plan;
    let names = |list: &Value| -> Vec<String> {
        let seats = list.as_array().into_iter().flatten();
        seats.filter_map(|seat| seat["seat"].as_str()).map(str::to_owned).collect()
    };
    let mut seats = names(&plan["summary"]["seats"]);
    seats.extend(names(&plan["endpoints"]));
    let mut others: Vec<String> =
        found.iter().filter(|seat| !seats.contains(seat)).cloned().collect();
    others.sort();
    seats.extend(others);
    seats
}

/// Returns both configurations as text.
fn config(run: &Run) -> Answer {
    let text = |file: &str| std::fs::read_to_string(run.path().join(file)).unwrap_or_default();
    let (given, resolved) = (text("config.toml"), text("resolved.toml"));
    Ok(Response::json(&object!({ "given": given, "resolved": resolved })))
}

/// Returns metrics by step, with the step at which the next answer continues if there are too many for one.
fn series(run: &Run, query: &Query) -> Answer {
    let names: Vec<&str> =
        query.text("names").map_or(Vec::new(), |names| names.split(',').collect());
    let from = query.parse("from")?.unwrap_or(0);
    bounded(&run.now().series.json(&names, from))
}

/// Returns selected rows of episodes.
fn episodes(run: &Run, query: &Query) -> Answer {
    let selection = Selection::new(query)?;
    let held = run.now();
    let (found, total) = held.index.select(&selection);
    let rows = held.index.read(held.rows_file(), &found);
    let rows = rows.map_err(|error| Response::refusal(500, &error.to_string()))?;
    let all = held.index.len();
    bounded(&object!({ "total": total, "of": all, "rows": rows, "scanning": held.scanning }))
}

/// Reads an episode with the index of its row and its row. The episode must be the one that the row names.
pub(crate) fn stored(
    run: &Run,
    stage: &str,
    step: u64,
    n: u64,
) -> Result<(usize, Value, Episode), Response> {
    let unknown = || Response::refusal(404, "there is no such episode");
    let file = run.episodes(stage, step).ok_or_else(unknown)?;
    let (at, row) = {
        let held = run.now();
        let at = held.index.find(stage, step, n).ok_or_else(unknown)?;
        let row = held.index.read(held.rows_file(), &[at]);
        let row = row.map_err(|error| Response::refusal(500, &error.to_string()))?;
        (at, row.into_iter().next().ok_or_else(unknown)?)
    };
    let place: Place = serde_json::from_value(row["at"].clone())
        .map_err(|error| Response::refusal(500, &error.to_string()))?;
    let episode =
        read_episode(&file, place).map_err(|error| Response::refusal(500, &error.to_string()))?;
    let named = (row["source"].as_str(), row["task"].as_str(), row["index"].as_u64());
    let task = &episode.task;
    let found = (Some(&*task.source), Some(&*task.id), Some(u64::from(episode.index)));
    if named != found {
        let reason = "the row in `episodes.jsonl` names another episode than its file has there";
        return Err(Response::refusal(500, reason));
    }
    Ok((at, row, episode))
}

/// Returns the samples of a step; `None` if the run has no record of them.
pub(crate) fn samples(
    run: &Run,
    step: u64,
) -> Result<Option<maverl::run_dir::StepSamples>, Response> {
    let path = run.samples(step);
    if !path.is_file() {
        return Ok(None);
    }
    let read = read_samples(&path).map(Some);
    read.map_err(|error| Response::refusal(500, &error.to_string()))
}

/// Returns a response of JSON within the limit of an answer.
pub(crate) fn bounded(value: &Value) -> Answer {
    let response = Response::json(value);
    match &response.body {
        Body::Whole(bytes) if bytes.len() > MOST => {
            let reason = format!("the answer has more than {} MiB", MOST >> 20);
            Err(Response::refusal(413, &reason))
        }
        _ => Ok(response),
    }
}
