//! `[rewards.NAME.judge]`: a language model that judges replies.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::MANY;
use super::reward_unit::{OnRewardError, RewardUnit};
use crate::settings::Settings;

/// `[rewards.NAME.judge]`: a language model behind an endpoint that judges replies by a rubric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct RewardJudgeConfig {
    /// Name of the endpoint that judges, in `[endpoints]`.
    #[setting(default = "judge")]
    pub endpoint: String,
    /// File of the prompt, with `{{ reply }}`, or `{{ a }}` and `{{ b }}` for pairs. A run whose rubric has changed is not resumed.
    #[setting(default = "rubric.md")]
    pub rubric: String,
    /// Judgement: the score of a unit, or comparisons of the answers to a task.
    pub mode: JudgeMode,
    /// Unit that gets a value: each turn, or the answer of the episode.
    pub of: RewardUnit,
    /// Seats whose turns are scored, such as `debate/debater#0`; the name of an agent stands for all of its seats; an empty
    /// list scores all turns.
    pub seats: Vec<String>,
    /// Lowest and highest score of the judge; the value is the score scaled to 0 to 1.
    #[setting(default = [1.0, 10.0])]
    pub scale: [f64; 2],
    /// Number of verdicts whose mean is the score; several are sampled at temperature 1, one at temperature 0.
    #[setting(default = 1, range = 1..=MANY)]
    pub samples: NonZeroUsize,
    /// Orders in which the answers of a pair are shown: both, or one by a hash.
    pub orders: JudgeOrders,
    /// Form of a verdict, which the judge is told.
    pub parse: VerdictForm,
    /// Maximum number of tokens of a verdict.
    #[setting(default = 512, range = 1..=MANY)]
    pub max_tokens: NonZeroUsize,
    /// Keys of the task's data that the rubric may show, as `{{ task.KEY }}`.
    pub send: Vec<String>,
    /// File of verdicts that several runs share; by default each run has its own in its directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "run", example = "\"judge.jsonl\"")]
    pub cache: Option<String>,
    /// Outcome if the judge gives no verdict: the episode is unscored, or this part of the reward is skipped.
    pub on_error: OnRewardError,
}

/// Judgement of a language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JudgeMode {
    /// A score of each unit.
    #[default]
    Score,
    /// Comparisons of the answers to a task, each with each.
    Pairs,
}

/// Orders in which a pair is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JudgeOrders {
    /// Both; verdicts that contradict each other count one half.
    #[default]
    Both,
    /// One of them, by a hash.
    One,
}

/// Form of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictForm {
    /// `{"score": 7}` or `{"better": "A"}`.
    #[default]
    Json,
    /// `<score>7</score>` or `<better>A</better>`.
    Tag,
    /// The last number of the text.
    LastNumber,
}

/// Returns the names of a rubric, `{{ name }}`, in their order.
pub fn rubric_names(rubric: &str) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), rubric);
    while let Some((_, name, after)) = next_rubric_name(rest) {
        names.push(name.to_owned());
        rest = after;
    }
    names
}

/// Returns the text before the first `{{ name }}` of a rubric, the name, and the text after it.
pub fn next_rubric_name(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{{")?;
    let (name, after) = rest.split_once("}}")?;
    Some((before, name.trim(), after))
}
