//! Texts of a judge: rubrics with values, and verdicts. Pure functions.

use std::collections::BTreeMap;

use serde_json::{Deserializer, Value};

use super::number::last_number;
use crate::config::{JudgeMode, RewardJudgeConfig, VerdictForm, next_rubric_name};

/// Verdict on a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    A,
    B,
    Tie,
}

impl Better {
    /// Returns 1 if the first answer is better, 0 if the second is. With `swapped`, B is the first.
    pub(crate) fn value(self, swapped: bool) -> f64 {
        match (self, swapped) {
            (Self::Tie, _) => 0.5,
            (Self::A, false) | (Self::B, true) => 1.0,
            (Self::A, true) | (Self::B, false) => 0.0,
        }
    }
}

/// Returns a rubric with `{{ name }}` replaced by values. Values are not searched for names.
pub(crate) fn render(rubric: &str, values: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    let mut rest = rubric;
    while let Some((before, name, after)) = next_rubric_name(rest) {
        text += before;
        text += values.get(name).map(String::as_str).unwrap_or_default();
        rest = after;
    }
    text + rest
}

/// Returns a text in a fence that is longer than any in the text.
pub(crate) fn fenced(text: &str) -> String {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(3.max(longest + 1));
    format!("{fence}\n{text}\n{fence}")
}

/// Returns the sentence that tells the judge how to answer.
pub(crate) fn instruction(config: &RewardJudgeConfig) -> String {
    let [low, high] = config.scale;
    match (config.mode, config.parse) {
        (JudgeMode::Score, VerdictForm::Json) => {
            format!("End with a score from {low} to {high} as JSON: {{\"score\": {high}}}")
        }
        (JudgeMode::Score, VerdictForm::Tag) => {
            format!("End with a score from {low} to {high}: <score>{high}</score>")
        }
        (JudgeMode::Score, VerdictForm::LastNumber) => {
            format!("End with a score, a number from {low} to {high}.")
        }
        (JudgeMode::Pairs, VerdictForm::Tag) => {
            "End with the better answer, A, B or tie: <better>A</better>".to_owned()
        }
        (JudgeMode::Pairs, _) => {
            "End with the better answer, \"A\", \"B\" or \"tie\", as JSON: {\"better\": \"A\"}"
                .to_owned()
        }
    }
}

/// Returns the score in a verdict; `None` if there is none within the scale.
pub(crate) fn read_score(config: &RewardJudgeConfig, text: &str) -> Option<f64> {
    let score = match config.parse {
        VerdictForm::Json => last_object(text, "score")?.as_f64(),
        VerdictForm::Tag => last_tag(text, "score")?.trim().parse().ok(),
        VerdictForm::LastNumber => last_number(text, config.scale),
    };
    score.filter(|score| is_in_scale(config, *score))
}

fn is_in_scale(config: &RewardJudgeConfig, score: f64) -> bool {
    let [low, high] = config.scale;
    (low..=high).contains(&score)
}

/// Returns the verdict on a pair; `None` if there is none.
pub(crate) fn read_pair(config: &RewardJudgeConfig, text: &str) -> Option<Better> {
    match config.parse {
        VerdictForm::Tag => better(last_tag(text, "better")?.trim()),
        _ => better(last_object(text, "better")?.as_str()?),
    }
}

fn better(name: &str) -> Option<Better> {
    match name.to_lowercase().as_str() {
        "a" => Some(Better::A),
        "b" => Some(Better::B),
        "tie" => Some(Better::Tie),
        _ => None,
    }
}

/// Returns true if a text has the form of a verdict, in words that a reply rarely has. An object may be part of another one.
pub(crate) fn is_verdict(config: &RewardJudgeConfig, text: &str) -> bool {
    match (config.mode, config.parse) {
        (_, VerdictForm::LastNumber) => false,
        (JudgeMode::Score, VerdictForm::Json) => {
            let score = any_object(text, "score").and_then(|score| score.as_f64());
            score.is_some_and(|score| is_in_scale(config, score))
        }
        (JudgeMode::Pairs, VerdictForm::Json) => {
            any_object(text, "better").is_some_and(|name| name.as_str().and_then(better).is_some())
        }
        (JudgeMode::Score, VerdictForm::Tag) => read_score(config, text).is_some(),
        (JudgeMode::Pairs, VerdictForm::Tag) => read_pair(config, text).is_some(),
    }
}

/// Returns the value of a key in the last JSON object that has it and is part of no other. `None` if a malformed object may contain
/// it, or names the key after it.
fn last_object(text: &str, key: &str) -> Option<Value> {
    let (mut found, mut at) = (None, 0);
    while let Some(skipped) = text[at..].find('{') {
        let begin = at + skipped;
        let mut stream = Deserializer::from_str(&text[begin..]).into_iter::<Value>();
        at = match stream.next() {
            Some(Ok(object)) => {
                let end = begin + stream.byte_offset();
                found = object.get(key).map(|value| (value.clone(), end)).or(found);
                end
            }
            _ => begin + malformed_length(&text[begin..])?,
        };
    }
    let (value, end) = found?;
    let name = format!("\"{key}\"");
    let named = text[end..].split(&name).skip(1).any(|rest| rest.trim_start().starts_with(':'));
    (!named).then_some(value)
}

/// Returns the length of what begins with a brace and is no JSON: up to its closing brace, or the brace alone if it is one of prose.
/// `None` for an object that does not end.
fn malformed_length(text: &str) -> Option<usize> {
    match text[1..].trim_start().chars().next() {
        Some('"' | '\'') => balanced_length(text),
        Some(c) if c.is_alphabetic() => Some(balanced_length(text).unwrap_or(1)),
        _ => Some(1),
    }
}

/// Returns the length of a text up to the brace that closes its first one.
fn balanced_length(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, sign) in text.match_indices(['{', '}']) {
        depth = if sign == "{" { depth + 1 } else { depth.saturating_sub(1) };
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Returns the value of a key in the last JSON object that has it, also if that is part of another one.
fn any_object(text: &str, key: &str) -> Option<Value> {
    let begins = text.rmatch_indices('{').map(|(at, _)| at);
    let mut objects = begins.filter_map(|at| {
        let mut stream = Deserializer::from_str(&text[at..]).into_iter::<Value>();
        stream.next()?.ok()
    });
    objects.find_map(|object| object.get(key).cloned())
}

/// Returns the content of the last tag.
fn last_tag<'t>(text: &'t str, tag: &str) -> Option<&'t str> {
    let (_, rest) = text.rsplit_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(content, _)| content)
}
