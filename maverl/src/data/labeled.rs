//! Labeled replies for the training of a verifier: a conversation, a reply, and whether it is right.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::demonstration::{demonstration, messages};
use super::jsonl::ROW;
use super::{Bounds, DataError, Demonstration, File};
use crate::task::question_key;
use crate::trajectory::{Message, Role};

/// File in the directory of a reward model with the keys of the questions that it was trained on.
pub(crate) const SEEN: &str = "reward_tasks.json";

/// Contents of [`SEEN`].
#[derive(Deserialize)]
struct Seen {
    tasks: BTreeSet<String>,
}

/// Returns the keys of the questions that a reward model was trained on; none if its directory does not say.
///
/// # Errors
///
/// If the file cannot be read.
pub(crate) fn seen(dir: &Path) -> Result<BTreeSet<String>, String> {
    let path = dir.join(SEEN);
    if !path.is_file() {
        return Ok(BTreeSet::new());
    }
    let failed = |what: String| format!("{}: {what}", path.display());
    let bytes = std::fs::read(&path).map_err(|error| failed(error.to_string()))?;
    let seen: Seen = serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))?;
    Ok(seen.tasks)
}

/// A reply with its label.
#[derive(Debug, Clone, PartialEq)]
pub struct LabeledReply {
    /// Prompt of the model that replied.
    pub prompt: Vec<Message>,
    /// The reply.
    pub reply: String,
    /// True if it is right.
    pub label: bool,
    /// The recorded score, if there is one.
    pub score: Option<f64>,
    /// Key of the task: the hash of its question, or of the prompt where the row does not have it.
    pub task: String,
    /// Name of the policy that replied; empty where the row does not have it.
    pub policy: String,
    /// Seat and path of the turn; empty where the row does not have them.
    pub place: String,
}

impl LabeledReply {
    /// Returns the conversation with the reply as its last message.
    pub fn conversation(&self) -> Vec<Message> {
        let reply = Message { role: Role::Assistant, content: self.reply.clone() };
        self.prompt.iter().cloned().chain([reply]).collect()
    }
}

/// Reads labeled replies, one JSON object per line, in TRL's form of unpaired preferences: `prompt` and `completion`, each a
/// text or messages, and `label`, true or false, or 1 or 0. `maverl collect --as verifier` writes such rows, with their
/// origin as `maverl`.
///
/// # Errors
///
/// See [`DataError`]; a file without rows is one.
pub fn labeled(path: &Path, bounds: Bounds) -> Result<Vec<LabeledReply>, DataError> {
    let file = File::open(path, bounds)?;
    let rows: Vec<LabeledReply> = file
        .rows(ROW)?
        .map(|object| {
            let (line, object) = object?;
            row(&object).map_err(|message| file.damaged(line, message))
        })
        .collect::<Result<_, _>>()?;
    if rows.is_empty() {
        let wanted = "write one JSON object a line with `prompt`, `completion` and `label`";
        let place = path.display().to_string();
        return Err(DataError::Empty { place, what: "labeled replies", wanted });
    }
    Ok(rows)
}

fn row(object: &Map<String, Value>) -> Result<LabeledReply, String> {
    let (Some(prompt), Some(completion)) = (object.get("prompt"), object.get("completion")) else {
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        return Err(format!("no `prompt` and `completion` among {keys:?}"));
    };
    let mut all = messages(prompt, "prompt", Role::User)?;
    all.extend(messages(completion, "completion", Role::Assistant)?);
    let Demonstration { prompt, reply } = demonstration(all)?;
    let label = match object.get("label") {
        Some(Value::Bool(label)) => *label,
        Some(Value::Number(n)) if n.as_f64() == Some(1.0) => true,
        Some(Value::Number(n)) if n.as_f64() == Some(0.0) => false,
        Some(other) => return Err(format!("`label` is {other}; write true or false")),
        None => return Err("there is no `label`; write true or false".to_owned()),
    };
    // In Parquet files it is a text.
    let origin = match object.get("maverl") {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        other => other.cloned().unwrap_or_default(),
    };
    let origin = origin.as_object();
    let text = |key: &str| origin?.get(key)?.as_str().map(str::to_owned);
    let task = text("question").unwrap_or_else(|| {
        let texts: Vec<&str> = prompt.iter().map(|message| message.content.as_str()).collect();
        question_key(&texts.join("\n"))
    });
    let place = text("seat").zip(text("path")).map(|(seat, path)| format!("{seat} {path}"));
    Ok(LabeledReply {
        prompt,
        reply,
        label,
        score: object.get("score").and_then(Value::as_f64),
        task,
        policy: text("policy").unwrap_or_default(),
        place: place.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn read(row: &Value) -> Result<LabeledReply, String> {
        super::row(row.as_object().unwrap())
    }

    #[test]
    fn rows_of_collect_and_of_trl_are_read() {
        let origin = json!({"question": "00ab", "policy": "tiny", "seat": "a/b", "path": "0.1"});
        let full = json!({
            "prompt": [{"role": "user", "content": "2 + 2?"}],
            "completion": [{"role": "assistant", "content": "4"}],
            "label": true, "score": 0.5, "maverl": origin,
        });
        let found = read(&full).unwrap();
        assert_eq!((found.label, found.score, found.reply.as_str()), (true, Some(0.5), "4"));
        assert_eq!((found.task.as_str(), found.place.as_str()), ("00ab", "a/b 0.1"));
        assert_eq!(found.conversation().len(), 2);
        let plain = read(&json!({"prompt": "2 + 2?", "completion": "5", "label": 0})).unwrap();
        assert_eq!((plain.label, plain.policy.as_str()), (false, ""));
        // Capitals, signs and blanks make no other task.
        let same = read(&json!({"prompt": "2  + 2", "completion": "4", "label": 1})).unwrap();
        assert_eq!(plain.task, same.task);
    }

    #[test]
    fn a_row_without_a_label_is_an_error() {
        let wrong = |row: Value| read(&row).unwrap_err();
        assert!(wrong(json!({"prompt": "a", "completion": "b"})).contains("there is no `label`"));
        let found = wrong(json!({"prompt": "a", "completion": "b", "label": 0.5}));
        assert_eq!(found, "`label` is 0.5; write true or false");
        assert!(
            wrong(json!({"prompt": "a", "label": true})).contains("no `prompt` and `completion`")
        );
    }
}
