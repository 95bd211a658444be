//! An evaluation of a run as a log of Inspect (`inspect view`): a sample per episode, a model event per turn.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::columns::value_text;
use super::error::ExtractError;
use maverl::eval::{EvalReport, EvalSpec};
use maverl::run_dir::disk::read_json;
use maverl::run_dir::{RunDir, read_rollouts};
use maverl::trajectory::{Act, Episode, Finish, Outcome, Turn};

/// Version of the format of the log.
const VERSION: u32 = 2;
/// Keys of a task's data that may hold the reference answer, in order.
const TARGETS: [&str; 4] = ["answers", "answer", "target", "label"];

/// Returns the log of an evaluation and its number of samples. `name` is that of its file of episodes.
pub(crate) fn inspect_log(run: &RunDir, name: &str) -> Result<(Value, usize), ExtractError> {
    let path = run.evaluation_episodes(name);
    if !path.is_file() {
        return Err(ExtractError::Missing {
            path: run.path().display().to_string(),
            part: "episodes of this evaluation",
            reason: "it was not run yet, `record.evaluations` is off, or an older version made the run",
        });
    }
    let episodes = read_rollouts(&path)?;
    let samples = episodes.iter().map(|episode| episode.index + 1).max().unwrap_or(1);
    let spec = EvalSpec { split: name.to_owned(), samples, temperature: None, ask: None };
    let report = EvalReport::of(&spec, &episodes);
    let summary: Value = read_json(&run.path().join("summary.json")).unwrap_or_default();
    let measure = summary["measure"].as_str().unwrap_or("solved").to_owned();
    let at = std::fs::metadata(&path).and_then(|found| found.modified()).unwrap_or(UNIX_EPOCH);
    let at = format_timestamp(at);
    let seconds = object!({ "started_at": at, "completed_at": at });
    let lines: Vec<Value> = episodes.iter().map(|one| log_sample(one, &measure, &at)).collect();
    let results = report.as_ref().map(|report| log_results(report, &measure, episodes.len()));
    let value = object!({
        "version": VERSION,
        "status": "success",
        "eval": spec_of(run, name, &episodes, samples, &at)?,
        "plan": object!({ "name": "plan", "steps": Value::Array(Vec::new()), "config": object!({}) }),
        "results": results,
        "stats": seconds,
        "samples": lines,
    });
    Ok((value, episodes.len()))
}

/// Returns the description of the evaluation.
fn spec_of(
    run: &RunDir,
    name: &str,
    episodes: &[Episode],
    samples: u32,
    at: &str,
) -> Result<Value, ExtractError> {
    let config = run.origin()?.config;
    let mut tasks: Vec<&str> = episodes.iter().map(|one| one.task.id.as_str()).collect();
    tasks.dedup();
    let mut policies: Vec<&str> =
        episodes.iter().flat_map(|one| &one.turns).map(|turn| turn.policy.as_str()).collect();
    policies.sort_unstable();
    policies.dedup();
    let run_name = maverl::run_dir::disk::name(run.path());
    let orchestra = config.orchestra.name.clone().unwrap_or_else(|| "maverl".to_owned());
    Ok(object!({
        "eval_id": short_hash(&[&run_name, name, "eval"]),
        "run_id": short_hash(&[&run_name, name, "run"]),
        "task_id": short_hash(&[&run_name, name, "task"]),
        "created": at,
        "task": format!("{orchestra} {name}"),
        "task_version": 0,
        "task_attribs": object!({}),
        "task_args": object!({}),
        "dataset": object!({ "name": name, "samples": tasks.len(), "sample_ids": tasks, "shuffled": false }),
        "model": format!("maverl/{}", policies.join("+")),
        "model_args": object!({}),
        "config": object!({ "epochs": samples }),
        "packages": object!({ "maverl": env!("CARGO_PKG_VERSION") }),
        "metadata": object!({ "run": run_name, "seed": config.seed, "algorithm": config.algorithm.name }),
    }))
}

fn metric_json(name: &str, value: f64) -> Value {
    object!({ "name": name, "value": value, "params": object!({}) })
}

/// Returns the statistics: means over tasks.
fn log_results(report: &EvalReport, measure: &str, all: usize) -> Value {
    let overall = &report.overall;
    object!({
        "total_samples": all,
        "completed_samples": overall.episodes,
        "scores": [object!({
            "name": measure,
            "scorer": "maverl",
            "scored_samples": overall.episodes,
            "unscored_samples": report.unscored,
            "params": object!({}),
            "metrics": object!({
                "accuracy": metric_json("accuracy", overall.avg.mean),
                "low": metric_json("low", overall.avg.low),
                "high": metric_json("high", overall.avg.high),
                "score_mean": metric_json("score_mean", overall.score_mean),
            }),
        })],
    })
}

/// Returns an episode.
fn log_sample(episode: &Episode, measure: &str, at: &str) -> Value {
    let Episode { task, index, answer, outcome, .. } = episode;
    let answer = answer.as_deref().unwrap_or_default();
    let mut value = object!({
        "id": format!("{}/{}", task.source, task.id),
        "epoch": index + 1,
        "input": task.question,
        "target": reference_answers(&task.data),
        "messages": conversation_messages(episode),
        "output": model_output("maverl", answer, Finish::Stop),
        "metadata": object!({ "seed": episode.seed, "data": task.data, "rewards": episode.rewards }),
        "store": object!({}),
        "events": log_events(episode, at),
        "model_usage": object!({}),
        "attachments": object!({}),
    });
    match outcome {
        Outcome::Scored(score) => {
            let value_of = if score.solved { "C" } else { "I" };
            let metadata = object!({ "score": score.reward, "metrics": score.metrics });
            let of = object!({ "value": value_of, "answer": answer, "metadata": metadata });
            value["scores"] = object!({ measure: of });
        }
        Outcome::Unscored(fault) => {
            let error =
                object!({ "message": fault.to_string(), "traceback": "", "traceback_ansi": "" });
            value["error"] = error;
        }
    }
    value
}

/// Returns the reference answers of a task; empty if its data has none that is known.
fn reference_answers(data: &Map<String, Value>) -> Value {
    match TARGETS.iter().find_map(|key| data.get(*key)) {
        Some(Value::Array(values)) => values.iter().map(value_text).collect::<Vec<_>>().into(),
        Some(value) => value_text(value).into(),
        None => "".into(),
    }
}

/// Returns the turns as one conversation: of each prompt its last message, with the name of the seat.
fn conversation_messages(episode: &Episode) -> Vec<Value> {
    episode.turns.iter().flat_map(|turn: &Turn| {
        let given = turn.prompt.last().map_or("", |message| message.content.as_str());
        let seat = format!("[{}]", turn.seat);
        [
            object!({ "role": "user", "content": format!("{seat}\n{given}") }),
            object!({ "role": "assistant", "content": format!("{seat}\n{}", turn.reply), "model": turn.policy }),
        ]
    }).collect()
}

/// Returns the turns and the actions, in the order of their paths: an action is before the turn that was asked next.
fn log_events(episode: &Episode, at: &str) -> Vec<Value> {
    let mut acts = episode.acts.iter().peekable();
    let mut events = Vec::new();
    for (i, turn) in episode.turns.iter().enumerate() {
        while let Some(act) = acts.next_if(|act| act.path <= turn.path) {
            events.push(act_event(act, at));
        }
        events.push(turn_event(episode, i, turn, at));
    }
    events.extend(acts.map(|act| act_event(act, at)));
    events
}

fn act_event(act: &Act, at: &str) -> Value {
    let source = act.environment.as_deref().unwrap_or("environment");
    object!({
        "event": "info",
        "timestamp": at,
        "working_start": 0.0,
        "source": source,
        "data": object!({ "action": act.action, "observation": act.observation, "done": act.done }),
    })
}

fn turn_event(episode: &Episode, i: usize, turn: &Turn, at: &str) -> Value {
    let finish = turn.tokens.as_ref().map_or(Finish::Stop, |tokens| tokens.finish);
    let mut output = model_output(&turn.policy, &turn.reply, finish);
    let config = match &turn.tokens {
        Some(tokens) => {
            let (given, sampled) = (tokens.prompt.len(), tokens.completion.len());
            output["usage"] = object!({
                "input_tokens": given, "output_tokens": sampled, "total_tokens": given + sampled,
            });
            object!({ "temperature": tokens.temperature })
        }
        None => object!({}),
    };
    let metadata = object!({
        "turn": turn.path.to_string(),
        "reward": episode.turn_reward(i),
        "malformed": turn.error,
        "truncated": turn.truncated,
    });
    object!({
        "event": "model",
        "timestamp": at,
        "working_start": 0.0,
        "model": turn.policy,
        "role": turn.seat,
        "input": turn.prompt,
        "tools": Value::Array(Vec::new()),
        "tool_choice": "none",
        "config": config,
        "output": output,
        "metadata": metadata,
    })
}

fn model_output(model: &str, text: &str, finish: Finish) -> Value {
    let reason = if finish == Finish::Length { "max_tokens" } else { "stop" };
    let message =
        object!({ "role": "assistant", "content": text, "source": "generate", "model": model });
    object!({
        "model": model,
        "choices": [object!({ "message": message, "stop_reason": reason })],
        "completion": text,
    })
}

/// Returns a time as ISO 8601 in UTC. Days are counted in eras of 400 years from March 1st, so that a leap day is the
/// last day of its year.
fn format_timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let date = day - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = year + 400 * era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}+00:00")
}

/// Returns the beginning of the hash of some texts, as an id.
fn short_hash(parts: &[&str]) -> String {
    let hash = Sha256::digest(parts.join("/"));
    hash.iter().take(11).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_written_as_its_date() {
        let text = |seconds| format_timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(text(0), "1970-01-01T00:00:00+00:00");
        assert_eq!(text(951_782_400), "2000-02-29T00:00:00+00:00");
        assert_eq!(text(1_709_251_199), "2024-02-29T23:59:59+00:00");
        assert_eq!(text(1_709_251_200), "2024-03-01T00:00:00+00:00");
        assert_eq!(text(1_798_761_599), "2026-12-31T23:59:59+00:00");
        assert_eq!(text(1_800_000_000), "2027-01-15T08:00:00+00:00");
    }
}
