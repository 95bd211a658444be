//! Tasks, actions, observations and scores.

mod list;
mod packed;

pub use list::TaskList;

use std::cell::Cell;

use maverl_engine::message::Message;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Serialize};
use serde_json::{Error, Map, Value};
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
        Self::component_of(&self.source)
    }

    /// Returns the first part of a source.
    pub(crate) fn component_of(source: &str) -> &str {
        source.split('/').next().unwrap_or_default()
    }

    /// Returns difficulty: `level` of its data, a number or, as in MATH, `Level 3`.
    pub fn level(&self) -> Option<u64> {
        let level = self.data.get("level")?;
        level.as_u64().or_else(|| level.as_str()?.strip_prefix("Level ")?.parse().ok())
    }

    /// Reads the row of the task as a struct. Its fields are keys of the row: those of `data`, and `id`, `source` and `question`.
    ///
    /// An environment or orchestra that declares the type (`#[environment(task = Row)]`) has it read from every row before a run
    /// starts, so a missing key is an error with its file and line, and never a lower score.
    ///
    /// ```
    /// use maverl::prelude::*;
    /// # use maverl::tools::serde;
    ///
    /// #[derive(serde::Deserialize)]
    /// # #[serde(crate = "maverl::tools::serde")]
    /// struct Row {
    ///     letters: String,
    /// }
    ///
    /// fn wanted(task: &Task) -> Result<usize, EnvError> {
    ///     let Row { letters } = task.parse()?;
    ///     Ok(letters.len())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The first key that is missing or has another type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, TaskError> {
        let own = [("id", &self.id), ("source", &self.source), ("question", &self.question)];
        let own = own.map(|(key, text)| (key, Value::from(text.as_str())));
        let own = own.iter().filter(|(key, _)| !self.data.contains_key(*key));
        let own = own.map(|(key, value)| (*key, value));
        let rows = self.data.iter().map(|(key, value)| (key.as_str(), value)).chain(own);
        // The key whose value is being read; none after the last one.
        let at = Cell::new("");
        let end = std::iter::from_fn(|| {
            at.set("");
            None
        });
        let keys = rows.inspect(|(key, _)| at.set(key)).chain(end);
        T::deserialize(MapDeserializer::<_, Error>::new(keys))
            .map_err(|error| self.error(at.get(), &error))
    }

    fn error(&self, key: &str, error: &Error) -> TaskError {
        let (Self { id, source, .. }, error) = (self, error.to_string());
        let missing = error.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
        TaskError(match missing {
            Some((missing, _)) if key.is_empty() => {
                format!("the task `{id}` of `{source}` has no `{missing}`; add this key to its row")
            }
            _ if key.is_empty() => format!("the task `{id}` of `{source}`: {error}"),
            _ => format!("`{key}` of the task `{id}` of `{source}`: {error}"),
        })
    }
}

/// Reason that a task is not of the type that its team reads: the task, and the key that is missing or has another type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TaskError(String);

/// Reads every task with `read`.
///
/// # Errors
///
/// The error of the first task, with the number of other tasks that have one.
pub(crate) fn parse_all(
    read: fn(&Task) -> Result<(), TaskError>,
    tasks: &TaskList,
) -> Result<(), TaskError> {
    let mut errors = tasks.iter().filter_map(|task| read(&task).err());
    let Some(first) = errors.next() else { return Ok(()) };
    Err(match errors.count() {
        0 => first,
        1 => TaskError(format!("{first} (another task has such an error, too)")),
        others => TaskError(format!("{first} ({others} other tasks have such errors, too)")),
    })
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
    pub fn check_bounds(what: &str, reward: f64) -> Result<f64, String> {
        if reward.abs() <= Self::LIMIT {
            return Ok(reward);
        }
        Err(format!("{what} is {reward:?}; a reward is a number from -1e9 to 1e9"))
    }

    /// Creates a score with reward 1 if solved, else 0.
    pub fn binary(solved: bool) -> Self {
        Self { reward: if solved { 1.0 } else { 0.0 }, solved, metrics: Map::new() }
    }

    /// Creates a score whose reward is the share `part / whole`: solved if it is 1. The share of nothing is 0.
    pub fn share(part: usize, whole: usize) -> Self {
        let reward = part as f64 / whole.max(1) as f64;
        Self { reward, ..Self::binary(reward == 1.0) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Row {
        question: String,
        letters: String,
        level: Option<u8>,
    }

    fn task(data: &Value) -> Task {
        let data = data.as_object().unwrap().clone();
        Task { id: "a".to_owned(), source: "words".to_owned(), question: "?".to_owned(), data }
    }

    #[test]
    fn a_row_is_read_as_a_struct_of_some_of_its_keys() {
        let row = task(&json!({"letters": "ao", "answers": ["x"]})).parse::<Row>().unwrap();
        assert_eq!(row, Row { question: "?".to_owned(), letters: "ao".to_owned(), level: None });
        let row = task(&json!({"letters": "ao", "question": "!", "level": 3})).parse::<Row>();
        assert_eq!(row.unwrap().question, "!");
    }

    #[test]
    fn a_key_that_is_missing_or_has_another_type_is_named() {
        let error = |data: Value| task(&data).parse::<Row>().unwrap_err().to_string();
        let missing = "the task `a` of `words` has no `letters`; add this key to its row";
        assert_eq!(error(json!({"leters": "ao"})), missing);
        let other =
            "`letters` of the task `a` of `words`: invalid type: integer `3`, expected a string";
        assert_eq!(error(json!({"level": 1, "letters": 3, "x": 1})), other);
    }

    #[test]
    fn the_tasks_with_errors_are_counted_after_the_first() {
        let read: fn(&Task) -> Result<(), TaskError> = |task| task.parse::<Row>().map(drop);
        let (good, bad) = (task(&json!({"letters": "ao"})), task(&json!({})));
        assert_eq!(parse_all(read, &[&good, &good].into_iter().collect()), Ok(()));
        let tasks = [&good, &bad, &bad, &bad].into_iter().collect();
        let error = parse_all(read, &tasks).unwrap_err().to_string();
        assert!(error.ends_with("to its row (2 other tasks have such errors, too)"), "{error}");
    }
}
