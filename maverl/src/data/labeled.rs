//! Labeled replies for the training of a verifier: a conversation, a reply, and whether it is right.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::demonstration::{demonstration, messages};
use super::jsonl::{ROW, named};
use super::preference::pair;
use super::{Bounds, DataError, Demonstration, File};
use crate::task::question_key;
use crate::trajectory::{Message, Role};

/// File in the directory of a reward model with the keys of the questions that it was trained on.
pub(crate) const SEEN: &str = "reward_tasks.json";

/// Value of `split` of rows that are not trained on.
const VALIDATION: &str = "validation";

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
    /// True if its task is one of validation: the row has `"split": "validation"`.
    pub validates: bool,
    /// Number of the row in its file, from 0. Both replies of a pair, and all steps of an episode, are of one row.
    pub row: usize,
}

impl LabeledReply {
    /// Returns the conversation with the reply as its last message.
    pub fn conversation(&self) -> Vec<Message> {
        let reply = Message { role: Role::Assistant, content: self.reply.clone() };
        self.prompt.iter().cloned().chain([reply]).collect()
    }
}

/// Reads labeled replies, one JSON object per line, in TRL's forms:
///
/// - unpaired preferences: `prompt` and `completion`, each a text or messages, and `label`, true or false, or 1 or 0, from
///   `maverl collect --as verifier`;
/// - pairs: `prompt`, `chosen` and `rejected`, of which the first is labeled right and the second wrong (`--as preference`);
/// - steps: `prompt`, and the lists `completions` and `labels` (`--as steps`). Each is a reply after those before it.
///
/// `keys` maps these names to the file's names. The origin of a row is in `maverl`. A row with `"split": "validation"` is not trained on.
///
/// # Errors
///
/// See [`DataError`]; a file without rows is one.
pub fn labeled(
    path: &Path,
    keys: &BTreeMap<String, String>,
    bounds: Bounds,
) -> Result<Vec<LabeledReply>, DataError> {
    let file = File::open(path, bounds)?;
    let mut replies = Vec::new();
    for (number, object) in file.rows(ROW)?.enumerate() {
        let (line, mut object) = object?;
        let found = named(&mut object, keys).and_then(|()| read(number, &object));
        let found = found.map_err(|message| file.damaged(line, message))?;
        let validates = object.get("split").is_some_and(|split| split == VALIDATION);
        replies.extend(found.into_iter().map(|reply| LabeledReply { validates, ..reply }));
    }
    if replies.is_empty() {
        let wanted = "write one JSON object a line with `prompt`, `completion` and `label`";
        let place = path.display().to_string();
        return Err(DataError::Empty { place, what: "labeled replies", wanted });
    }
    Ok(replies)
}

/// Returns the replies of a row.
fn read(number: usize, object: &Map<String, Value>) -> Result<Vec<LabeledReply>, String> {
    if object.contains_key("chosen") {
        let found = pair(object)?;
        let origin = origin(object);
        let other = origin.get("rejected").unwrap_or(&origin);
        let score = |key: &str| object.get(key).and_then(Value::as_f64);
        let better = unlabeled(number, &origin, found.prompt.clone(), found.chosen);
        let worse = unlabeled(number, other, found.prompt, found.rejected);
        return Ok(vec![
            LabeledReply { label: true, score: score("score_chosen"), ..better },
            LabeledReply { score: score("score_rejected"), ..worse },
        ]);
    }
    if object.contains_key("completions") {
        return steps(number, object);
    }
    let (Some(prompt), Some(completion)) = (object.get("prompt"), object.get("completion")) else {
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        return Err(format!("no `prompt` and `completion` among {keys:?}"));
    };
    let mut all = messages(prompt, "prompt", Role::User)?;
    all.extend(messages(completion, "completion", Role::Assistant)?);
    let Demonstration { prompt, reply } = demonstration(all)?;
    let label = object.get("label").ok_or("there is no `label`; write true or false")?;
    let label = truth(label).ok_or_else(|| format!("`label` is {label}; write true or false"))?;
    let score = object.get("score").and_then(Value::as_f64);
    Ok(vec![LabeledReply { label, score, ..unlabeled(number, &origin(object), prompt, reply) }])
}

/// Returns the steps of a row, each as a reply to the question and the steps before it.
fn steps(number: usize, object: &Map<String, Value>) -> Result<Vec<LabeledReply>, String> {
    let list = |key: &str| object.get(key).and_then(Value::as_array);
    let (Some(replies), Some(labels)) = (list("completions"), list("labels")) else {
        return Err("`completions` and `labels` are not both lists".to_owned());
    };
    if replies.len() != labels.len() {
        let (n, found) = (replies.len(), labels.len());
        return Err(format!("{n} `completions` have {found} `labels`; write one for each"));
    }
    let prompt = object.get("prompt").ok_or("there is no `prompt`")?;
    let mut before = messages(prompt, "prompt", Role::User)?;
    let row = unlabeled(number, &origin(object), before.clone(), String::new());
    let of = |key: &str, step: usize| list(key).and_then(|values| values.get(step));
    let mut steps = Vec::new();
    for (step, (reply, label)) in replies.iter().zip(labels).enumerate() {
        let reply =
            reply.as_str().ok_or_else(|| format!("a completion is {reply}; write a text"))?;
        let label =
            truth(label).ok_or_else(|| format!("a label is {label}; write true or false"))?;
        let seat = of("seats", step).and_then(Value::as_str).unwrap_or_default();
        steps.push(LabeledReply {
            prompt: before.clone(),
            reply: reply.to_owned(),
            label,
            score: of("scores", step).and_then(Value::as_f64),
            place: format!("{seat} {step}"),
            ..row.clone()
        });
        before.push(Message { role: Role::Assistant, content: reply.to_owned() });
    }
    Ok(steps)
}

fn truth(label: &Value) -> Option<bool> {
    match label {
        Value::Bool(label) => Some(*label),
        Value::Number(n) if n.as_f64() == Some(1.0) => Some(true),
        Value::Number(n) if n.as_f64() == Some(0.0) => Some(false),
        _ => None,
    }
}

/// Returns the column `maverl`, which is a text in Parquet files.
fn origin(object: &Map<String, Value>) -> Value {
    match object.get("maverl") {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        other => other.cloned().unwrap_or_default(),
    }
}

/// Returns a reply of a row with what its origin tells.
fn unlabeled(row: usize, origin: &Value, prompt: Vec<Message>, reply: String) -> LabeledReply {
    let text = |key: &str| origin.get(key)?.as_str().map(str::to_owned);
    let task = text("question").unwrap_or_else(|| {
        let texts: Vec<&str> = prompt.iter().map(|message| message.content.as_str()).collect();
        question_key(&texts.join("\n"))
    });
    let place = text("seat").zip(text("path")).map(|(seat, path)| format!("{seat} {path}"));
    LabeledReply {
        prompt,
        reply,
        label: false,
        score: None,
        task,
        policy: text("policy").unwrap_or_default(),
        place: place.unwrap_or_default(),
        validates: false,
        row,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn all(row: &Value) -> Result<Vec<LabeledReply>, String> {
        super::read(0, row.as_object().unwrap())
    }

    fn read(row: &Value) -> Result<LabeledReply, String> {
        all(row).map(|mut replies| replies.remove(0))
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
    fn pairs_are_a_right_and_a_wrong_reply_and_steps_follow_each_other() {
        let rejected = json!({"question": "00ab", "policy": "weak"});
        let origin = json!({"question": "00ab", "policy": "strong", "rejected": rejected});
        let pair = json!({"prompt": "2 + 2?", "chosen": "4", "rejected": "5", "score_chosen": 1.0, "maverl": origin});
        let pair = all(&pair).unwrap();
        let found: Vec<_> = pair.iter().map(|it| (it.reply.as_str(), it.label, it.score)).collect();
        assert_eq!(found, [("4", true, Some(1.0)), ("5", false, None)]);
        assert_eq!((pair[0].policy.as_str(), pair[1].policy.as_str()), ("strong", "weak"));
        assert!(pair.iter().all(|reply| reply.task == "00ab" && reply.prompt.len() == 1));
        let steps = json!({
            "prompt": "2 + 2 + 2?", "completions": ["4", "7"], "labels": [true, false], "scores": [0.5, 0.0],
            "seats": ["a/b", "a/c"],
        });
        let steps = all(&steps).unwrap();
        let found: Vec<_> =
            steps.iter().map(|it| (it.place.as_str(), it.label, it.score)).collect();
        assert_eq!(found, [("a/b 0", true, Some(0.5)), ("a/c 1", false, Some(0.0))]);
        assert_eq!(steps[1].prompt, steps[0].conversation());
        assert_eq!((steps[0].task.as_str(), steps[0].row), (steps[1].task.as_str(), steps[1].row));
        let wrong = all(&json!({"prompt": "a", "completions": ["b", "c"], "labels": [true]}));
        assert_eq!(wrong.unwrap_err(), "2 `completions` have 1 `labels`; write one for each");
        let wrong = all(&json!({"prompt": "a", "completions": ["b"], "labels": ["yes"]}));
        assert_eq!(wrong.unwrap_err(), "a label is \"yes\"; write true or false");
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
