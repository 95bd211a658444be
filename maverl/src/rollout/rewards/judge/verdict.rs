//! Texts of a judge: rubrics with values, and verdicts. Pure functions.

use std::collections::BTreeMap;

use serde_json::Value;

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
    let [low, high] = config.scale;
    let score = match config.parse {
        VerdictForm::Json => last_object(text, "score")?.as_f64(),
        VerdictForm::Tag => last_tag(text, "score")?.trim().parse().ok(),
        VerdictForm::LastNumber => last_number(text, high),
    };
    score.filter(|score| (low..=high).contains(score))
}

/// Returns the verdict on a pair; `None` if there is none.
pub(crate) fn read_pair(config: &RewardJudgeConfig, text: &str) -> Option<Better> {
    let better = match config.parse {
        VerdictForm::Tag => last_tag(text, "better")?.trim().to_owned(),
        _ => last_object(text, "better")?.as_str()?.to_owned(),
    };
    match better.to_lowercase().as_str() {
        "a" => Some(Better::A),
        "b" => Some(Better::B),
        "tie" => Some(Better::Tie),
        _ => None,
    }
}

/// Returns true if a text has the form of a verdict, in words that a reply rarely has.
pub(crate) fn is_verdict(config: &RewardJudgeConfig, text: &str) -> bool {
    match (config.mode, config.parse) {
        (_, VerdictForm::LastNumber) => false,
        (JudgeMode::Score, _) => read_score(config, text).is_some(),
        (JudgeMode::Pairs, _) => read_pair(config, text).is_some(),
    }
}

/// Returns the value of a key in the last JSON object that has it.
fn last_object(text: &str, key: &str) -> Option<Value> {
    let begins = text.rmatch_indices('{').map(|(at, _)| at);
    let mut objects = begins.filter_map(|at| {
        let mut stream = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        stream.next()?.ok()
    });
    objects.find_map(|object| object.get(key).cloned())
}

/// Returns the content of the last tag.
fn last_tag<'t>(text: &'t str, tag: &str) -> Option<&'t str> {
    let (_, rest) = text.rsplit_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(content, _)| content)
}

/// Returns the last number of a text. Of a number out of the highest score, as in `3/10`, it is the first of both. A number out of
/// another one is no score.
fn last_number(text: &str, high: f64) -> Option<f64> {
    let (before, last, _) = split_number(text)?;
    let before = before.trim_end_matches(['*', '_', '`', ' ']);
    let share = ["/", "out of"].iter().find_map(|sign| before.strip_suffix(sign));
    match share.and_then(split_number) {
        Some((_, score, "")) => last.total_cmp(&high).is_eq().then_some(score),
        _ => Some(last),
    }
}

/// Returns the last number of a text, between what is before it and what follows it, without marks of Markdown.
fn split_number(text: &str) -> Option<(&str, f64, &str)> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let mut end = text.len();
    loop {
        let word_end = text[..end].trim_end_matches(|c| !is_part(c)).len();
        let begin = text[..word_end].trim_end_matches(is_part).len();
        if begin == word_end {
            return None;
        }
        let word = text[begin..word_end].trim_end_matches(['.', '-']);
        if let Ok(number) = word.parse() {
            let after = text[begin + word.len()..].trim_matches(['*', '_', '`', ' ']);
            return Some((&text[..begin], number, after));
        }
        end = begin;
    }
}
