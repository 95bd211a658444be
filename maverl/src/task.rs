//! What a team is asked: a task, what it does in its world, what the world answers, and how an answer is scored.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One question for a team, and everything the environment needs to judge the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique within its source; part of every seed and sort key.
    pub id: String,
    /// The data set it comes from; statistics of an evaluation are kept per source.
    pub source: String,
    /// What the team is asked.
    pub question: String,
    /// What the environment needs besides (reference answers, files, hidden tests); never shown to an agent by itself.
    #[serde(default)]
    pub data: Map<String, Value>,
}

impl Task {
    /// The first part of its source: the name of its world, in a run of several.
    pub fn component(&self) -> &str {
        self.source.split('/').next().unwrap_or_default()
    }

    /// How hard it is: `level` of its data, a number or, as MATH has it, `Level 3`.
    pub fn level(&self) -> Option<u64> {
        let level = self.data.get("level")?;
        level.as_u64().or_else(|| level.as_str()?.strip_prefix("Level ")?.parse().ok())
    }
}

/// What a team does in its environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Free text: a query, a program, an utterance.
    Text(String),
    /// A call of a named tool with JSON arguments.
    Tool {
        /// The tool's name.
        name: String,
        /// Its arguments, an object.
        arguments: Value,
    },
}

/// What the environment answers to an [`Action`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Shown to the agents.
    pub text: String,
    /// The environment accepts no further action.
    #[serde(default)]
    pub done: bool,
}

impl Observation {
    /// An observation after which the episode may go on.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), done: false }
    }
}

/// A judged answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The episode's reward, before any reward parts and penalties.
    pub reward: f64,
    /// Whether the task counts as solved; what avg@k and pass@k count.
    pub solved: bool,
    /// Named quantities worth logging (`f1`, `tests_passed`), mean over episodes.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metrics: Map<String, Value>,
}

impl Score {
    /// Reward 1 if solved, else 0.
    pub fn binary(solved: bool) -> Self {
        Self { reward: if solved { 1.0 } else { 0.0 }, solved, metrics: Map::new() }
    }
}
