//! The sampled tokens of a turn as lines, and episodes as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::report::analyses::tokens::sampled_tokens;
use crate::report::problem::ReportProblem;
use crate::report::reading::files::RunFiles;
use maverl::run_dir::SampleRecord;
use maverl::trajectory::{Episode, Turn};

/// Parts of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Turns, actions, rewards and advantages.
    Turns,
    /// The same, with every sampled token.
    Tokens,
}

/// Quantities of a token, as the pages name them, and their widths.
const QUANTITIES: [(&str, usize); 6] = [
    ("logprob", 9),
    ("entropy", 8),
    ("advantage", 10),
    ("moved", 9),
    ("mismatch", 9),
    ("reference", 10),
];

/// Returns a line for each sampled token of a turn: its id, what is recorded of it, and its text.
pub(crate) fn token_lines(
    run: &RunFiles,
    step: u64,
    at: (usize, usize),
    turn: &Turn,
) -> Result<String, ReportProblem> {
    let of = sampled_tokens(run, step, at, turn)?;
    let Some(ids) = of["ids"].as_array() else {
        return Ok("  tokens    (none: an endpoint or a script replied)\n".to_owned());
    };
    let known: Vec<&(&str, usize)> =
        QUANTITIES.iter().filter(|(name, _)| of[name].is_array()).collect();
    let mut text = format!("  tokens    {:>7}", "id");
    // Writing to a `String` cannot fail.
    for (name, width) in &known {
        let _ = write!(text, " {name:>width$}");
    }
    text.push('\n');
    for (i, id) in ids.iter().enumerate() {
        let _ = write!(text, "  {i:<9} {:>7}", id.to_string());
        for (name, width) in &known {
            let value = of[name][i].as_f64();
            let value = value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
            let _ = write!(text, " {value:>width$}");
        }
        let word = of["texts"][i].as_str().map(|word| format!("{word:?}"));
        let half = of["bytes"][i.to_string()].as_str().map(|bytes| format!("<{bytes}>"));
        let _ = writeln!(text, "  {}", half.or(word).unwrap_or_default());
    }
    Ok(text)
}

/// Returns an episode as JSON: all that its rollout has, with the reward and the advantage of each turn.
pub(crate) fn episode_json(
    run: &RunFiles,
    (step, n, episode): (u64, usize, &Episode),
    samples: Option<&BTreeMap<usize, &SampleRecord>>,
    detail: Detail,
) -> Result<Value, ReportProblem> {
    let mut turns = Vec::new();
    for (i, turn) in episode.turns.iter().enumerate() {
        let reward = episode.turn_reward(i);
        let mut line = turn_json(turn, reward, samples.and_then(|its| its.get(&i).copied()));
        if detail == Detail::Tokens {
            line["prompt_ids"] = json!(turn.tokens.as_ref().map(|tokens| &tokens.prompt));
            line["completion"] = sampled_tokens(run, step, (n, i), turn)?;
        }
        turns.push(line);
    }
    Ok(json!({
        "step": step,
        "name": format!("{step}/{}/{}", episode.task.id, episode.index),
        "task": episode.task,
        "index": episode.index,
        "answer": episode.answer,
        "outcome": episode.outcome,
        "rewards": episode.rewards,
        "acts": episode.acts,
        "turns": turns,
    }))
}

/// Returns a turn as JSON, with its reward and its sample, without tokens.
fn turn_json(turn: &Turn, reward: Option<f64>, sample: Option<&SampleRecord>) -> Value {
    let tokens = turn.tokens.as_ref();
    json!({
        "path": turn.path.0, "seat": turn.seat, "policy": turn.policy, "prompt": turn.prompt,
        "tools": turn.tools, "reply": turn.reply, "error": turn.error,
        "truncated": turn.truncated, "shortened": turn.shortened, "forked": turn.forked,
        "masked": turn.masked, "finish": tokens.map(|tokens| tokens.finish),
        "temperature": tokens.map(|tokens| tokens.temperature),
        "version": tokens.map(|tokens| tokens.version),
        "reward": reward, "sample": sample,
    })
}
