//! The field `maverl` of an answer, which OpenAI's protocol does not have.

use serde::{Deserialize, Serialize};

/// Seed and version, with which the same request gets the same answer, and the episodes of a team.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AnswerOrigin {
    pub(crate) seed: Seed,
    /// Version of the policy.
    pub(crate) version: u64,
    /// Outcome of each episode of a team.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Several<String>>,
    /// Turns of each episode of a team.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turns: Option<Several<Vec<TurnRecord>>>,
}

impl AnswerOrigin {
    pub(crate) fn new(seed: Seed, version: u64) -> Self {
        Self { seed, version, outcome: None, turns: None }
    }
}

/// A seed. One of more than 53 bits is a text, which every reader of JSON reads exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Seed {
    Number(u64),
    Text(String),
}

/// One value, or the list of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Several<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> FromIterator<T> for Several<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut values: Vec<T> = values.into_iter().collect();
        match values.pop() {
            Some(only) if values.is_empty() => Self::One(only),
            last => {
                values.extend(last);
                Self::Many(values)
            }
        }
    }
}

/// A turn of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TurnRecord {
    pub(crate) path: String,
    pub(crate) seat: String,
    pub(crate) policy: String,
    pub(crate) reply: String,
    /// Reason why the reply is malformed.
    pub(crate) error: Option<String>,
    pub(crate) usage: Option<TurnUsage>,
}

/// Numbers of tokens of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TurnUsage {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
}
