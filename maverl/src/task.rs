//! Tasks, actions, observations and scores.

use maverl_engine::message::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// One question for a team, with all data that the environment needs to judge the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Id, unique within its source; part of every seed and sort key.
    pub id: String,
    /// Data set of the task; statistics of an evaluation are kept per source.
    pub source: String,
    /// Question for the team.
    pub question: String,
    /// Further data of the environment (reference answers, files, hidden tests); never shown to an agent implicitly.
    #[serde(default)]
    pub data: Map<String, Value>,
}

impl Task {
    /// Returns a list of texts in the data, such as `answers` or `support`; empty if it is missing.
    pub fn texts(&self, field: &str) -> Vec<String> {
        let values = self.data.get(field).and_then(|value| value.as_array());
        values.into_iter().flatten().filter_map(|value| value.as_str()).map(str::to_owned).collect()
    }

    /// Key of `data` with the system message of a prompt, and that with the messages between it and the question.
    pub(crate) const SYSTEM: &str = "system";
    pub(crate) const HISTORY: &str = "history";

    /// Returns the system message before the question; empty without one. No agent gets it implicitly.
    pub fn system(&self) -> &str {
        self.data.get(Self::SYSTEM).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the messages between the system message and the question; empty without any. No agent gets them implicitly.
    pub fn history(&self) -> Vec<Message> {
        let list = self.data.get(Self::HISTORY).filter(|list| list.is_array());
        list.and_then(|list| Vec::deserialize(list).ok()).unwrap_or_default()
    }

    /// Returns the first part of the source: the name of the component, in a mixture.
    pub fn component(&self) -> &str {
        self.source.split('/').next().unwrap_or_default()
    }

    /// Returns difficulty: `level` of its data, a number or, as in MATH, `Level 3`.
    pub fn level(&self) -> Option<u64> {
        let level = self.data.get("level")?;
        level.as_u64().or_else(|| level.as_str()?.strip_prefix("Level ")?.parse().ok())
    }
}

/// Returns a hash of a question without its capitals, signs and blanks, as 16 hexadecimal digits: the key of a task across
/// data sets.
pub(crate) fn question_key(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let normalized = words.map(str::to_lowercase).collect::<Vec<_>>().join(" ");
    let digest = Sha256::digest(normalized.as_bytes());
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Action of a team in its environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Free text: a query, a program, an utterance.
    Text(String),
    /// A call of a named tool with JSON arguments.
    Tool {
        /// Name of the tool.
        name: String,
        /// Arguments of the call, an object.
        arguments: Value,
    },
}

/// Answer of the environment to an [`Action`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Text for the agents.
    pub text: String,
    /// True if the environment accepts no further action.
    #[serde(default)]
    pub done: bool,
}

impl Observation {
    /// Creates an observation after which the episode may continue.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), done: false }
    }
}

/// Score of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Reward of the episode, before any reward parts and penalties.
    pub reward: f64,
    /// True if the task counts as solved; avg@n and pass@k count this.
    pub solved: bool,
    /// Named metrics (`f1`, `tests_passed`), averaged over episodes.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metrics: Map<String, Value>,
}

impl Score {
    /// Largest absolute value of a reward, and of those of an episode together. The square of a larger one is no number in the
    /// arithmetic of a GPU, and the others of its group would teach nothing beside it.
    pub const LIMIT: f64 = 1e9;

    /// Returns a reward, or what is wrong with it: it is no number, or beyond [`Score::LIMIT`].
    pub fn bounded(what: &str, reward: f64) -> Result<f64, String> {
        if reward.abs() <= Self::LIMIT {
            return Ok(reward);
        }
        Err(format!("{what} is {reward:?}; a reward is a number from -1e9 to 1e9"))
    }

    /// Creates a score with reward 1 if solved, else 0.
    pub fn binary(solved: bool) -> Self {
        Self { reward: if solved { 1.0 } else { 0.0 }, solved, metrics: Map::new() }
    }
}
