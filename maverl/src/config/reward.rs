//! `[rewards.NAME]`: parts of the reward in addition to the score: declared functions, servers, Python files, judges,
//! verifiers, prices.

use std::num::{NonZeroU32, NonZeroUsize};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::judge::RewardJudgeConfig;
use super::limits::MANY;
use super::reward_unit::{OnRewardError, RewardUnit};
use crate::settings::Settings;

/// Beginning of the path of a verifier that an earlier stage trains; the name of the stage follows.
pub(crate) const STAGE: &str = "stage:";

/// `[rewards.NAME]`: a declared function of that name, or a part that a server, a Python file, a judge, a verifier or prices give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct RewardConfig {
    /// Factor of the values.
    #[setting(default = 1.0, range = ..)]
    pub weight: f64,
    /// A server that gives the values, in place of a declared function.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table)]
    pub server: Option<RewardServerConfig>,
    /// A function of a Python file that gives the values, in place of a declared function.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table)]
    pub python: Option<RewardPythonConfig>,
    /// A language model that gives the values, in place of a declared function.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table)]
    pub judge: Option<RewardJudgeConfig>,
    /// A verifier that gives the values, in place of a declared function.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table)]
    pub verifier: Option<RewardVerifierConfig>,
    /// Prices of tokens, turns and actions, in place of a declared function.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(table)]
    pub usage: Option<RewardUsageConfig>,
}

/// `[rewards.NAME.usage]`: a price for what an episode used, which every turn pays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct RewardUsageConfig {
    /// Price of a sampled token.
    #[setting(default = 0.0, range = 0.0..)]
    pub token: f64,
    /// Price of a turn.
    #[setting(default = 0.0, range = 0.0..)]
    pub turn: f64,
    /// Price of an action in an environment, such as a call of a tool.
    #[setting(default = 0.0, range = 0.0..)]
    pub call: f64,
    /// Episodes that pay: those that solved their task, or all.
    pub after: UsageAfter,
    /// Seats whose tokens and turns have a price, such as `debate/debater#0`; the name of an agent stands for all of its seats; an
    /// empty list stands for all seats.
    pub seats: Vec<String>,
}

/// Episodes that pay for what they used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageAfter {
    /// Those that solved their task: where nothing is solved, doing nothing is not better.
    #[default]
    Solved,
    /// All of them.
    Always,
}

/// `[rewards.NAME.server]`: a server that scores replies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct RewardServerConfig {
    /// URL to which requests are sent by `POST`.
    #[setting(default = "http://127.0.0.1:8501/v1/score", level = "run")]
    pub url: String,
    /// Format of the messages: `score` is that of maverl, `predict` of MAPoRL, `get_reward` of OpenRLHF, `rm` of slime.
    pub protocol: RewardProtocol,
    /// Unit that gets a value: each turn, or the answer of the episode.
    pub of: RewardUnit,
    /// Seats whose turns are scored, such as `debate/debater#0`; the name of an agent stands for all of its seats; an empty
    /// list scores all turns.
    pub seats: Vec<String>,
    /// Maximum number of units in a request.
    #[setting(default = 32, range = 1..=256, level = "run")]
    pub batch: NonZeroUsize,
    /// Milliseconds that a unit waits for other units, which are sent in the same request.
    #[setting(default = 5, level = "run")]
    pub wait_ms: u64,
    /// Timeout of an attempt, in seconds.
    #[setting(default = 30.0, range = above(0.0)..=1e9, level = "run")]
    pub timeout_s: f64,
    /// Maximum number of retries if the server is busy, fails or is unreachable.
    #[setting(default = 3, level = "run")]
    pub retries: u32,
    /// Maximum number of concurrent requests.
    #[setting(default = 8, range = 1..=MANY, level = "run")]
    pub max_requests: NonZeroUsize,
    /// Number of consecutive failed requests after which, for ten seconds, no request is sent and each counts as failed.
    #[setting(default = 5, range = 1..=MANY, level = "run")]
    pub give_up_after: NonZeroU32,
    /// Environment variable that holds the API key of the server; the key is never written to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(level = "run", example = "\"REWARD_KEY\"")]
    pub key_env: Option<String>,
    /// Keys of the task's data that are sent with a unit; reference answers leave the process only if they are named here.
    pub send: Vec<String>,
    /// Outcome if the server does not score a unit: the episode is unscored, or this part of the reward is skipped.
    pub on_error: OnRewardError,
}

/// `[rewards.NAME.python]`: a function of a Python file that scores replies, in processes of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct RewardPythonConfig {
    /// File of the function. A run whose file has changed is not resumed.
    #[setting(default = "rewards.py")]
    pub file: String,
    /// Name of the function; by default that of the part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setting(example = "\"compute_score\"")]
    pub function: Option<String>,
    /// Form of the function: `maverl` is f(item) or f(items), `trl` and `trl_chat` that of TRL with texts or conversations, `verl`
    /// that of verl, `auto` is one of these by the names of the parameters.
    pub style: PythonStyle,
    /// Further files that the values depend on; `*` stands for any part of a file's name.
    #[setting(example = "[\"lib/*.py\"]")]
    pub watch: Vec<String>,
    /// Interpreter, Python 3.9 or newer: a program of the `PATH`, or a path with a `/`, such as `.venv/bin/python`.
    #[setting(default = "python3", level = "run")]
    pub python: String,
    /// Unit that gets a value: each turn, or the answer of the episode.
    pub of: RewardUnit,
    /// Seats whose turns are scored, such as `debate/debater#0`; the name of an agent stands for all of its seats; an empty
    /// list scores all turns.
    pub seats: Vec<String>,
    /// Number of processes.
    #[setting(default = 2, range = 1..=MANY, level = "run")]
    pub workers: NonZeroUsize,
    /// Maximum number of units in a request.
    #[setting(default = 8, range = 1..=MANY, level = "run")]
    pub batch: NonZeroUsize,
    /// Timeout of a request, in seconds. After it the process is killed, and each unit is scored alone.
    #[setting(default = 10.0, range = above(0.0)..=1e9, level = "run")]
    pub timeout_s: f64,
    /// Time limit for loading the file, in seconds.
    #[setting(default = 60.0, range = above(0.0)..=1e9, level = "run")]
    pub start_timeout_s: f64,
    /// Maximum number of further attempts of a unit, alone in a new process.
    #[setting(default = 1, level = "run")]
    pub retries: u32,
    /// Number of failures of processes in a row after which every unit fails at once.
    #[setting(default = 5, range = 1..=MANY, level = "run")]
    pub give_up_after: NonZeroU32,
    /// Environment variables that are passed on, beside `PATH` and `HOME`.
    #[setting(level = "run", example = "[\"LD_LIBRARY_PATH\"]")]
    pub env: Vec<String>,
    /// Keys of the task's data that the function gets; reference answers are among them only if they are named here.
    pub send: Vec<String>,
    /// Outcome if the function does not score a unit: the episode is unscored, or this part of the reward is skipped.
    pub on_error: OnRewardError,
}

/// Form of a Python function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PythonStyle {
    /// By the names of its parameters.
    #[default]
    Auto,
    /// `f(item)` or `f(items)`.
    Maverl,
    /// `f(prompts, completions, **columns)`, with texts.
    Trl,
    /// `f(prompts, completions, **columns)`, with conversations.
    TrlChat,
    /// `compute_score(data_source, solution_str, ground_truth, extra_info)`.
    Verl,
}

/// `[rewards.NAME.verifier]`: a model with a head that scores replies, in this process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct RewardVerifierConfig {
    /// Directory that `maverl export --verifier` wrote; `stage:NAME` is the verifier of the earlier stage `NAME.toml` of a file of
    /// stages (docs/src/supervised.md).
    #[setting(default = "verifier")]
    pub path: String,
    /// Unit that gets a value: each turn, or the answer of the episode.
    pub of: RewardUnit,
    /// Seats whose turns are scored, such as `debate/debater#0`; the name of an agent stands for all of its seats; an empty
    /// list scores all turns.
    pub seats: Vec<String>,
    /// Score replies to tasks that the verifier was trained on.
    pub allow_seen: bool,
}

/// Messages of a server of rewards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RewardProtocol {
    /// `{"items": [..]}` of maverl.
    #[default]
    Score,
    /// `{"query_responses": [[message, ..], ..]}` to `{"result": [..]}`: MAPoRL.
    Predict,
    /// `{"query": [text, ..]}` to `{"rewards": [..]}`: OpenRLHF.
    GetReward,
    /// `{"prompt", "response", "label"}` to a number, one item a request: slime.
    Rm,
}
