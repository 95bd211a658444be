//! Labeled replies for the training of a verifier: a conversation, a reply, and whether it is right.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::conversation::ConversationRow;
use super::error::DataError;
use super::file::ROW;
use super::hub::with_preset;
use super::messages::truth;
use super::preference::{PAIR, labeled_reply, pair};
use super::sources::{SourceFile, WantedRows, open_sources};
use crate::config::{TaskConfig, Unsplit};
use crate::task::question_key;
use crate::text::{ChatInput, ChatMessage};

/// File in the directory of a reward model with the keys of the questions that it was trained on.
pub(crate) const SEEN: &str = "reward_tasks.json";

/// Value of `split` of rows that are not trained on, and of the others.
const VALIDATION: &str = "validation";
const TRAIN: &str = "train";
/// Value of `split` of rows of a held-out file.
const TEST: &str = "test";
/// Keys of a row, besides those of a pair.
const READ: [&str; 7] =
    ["completion", "label", "completions", "labels", "scores", "counts", "seats"];

/// Contents of [`SEEN`].
#[derive(Deserialize)]
struct SeenLabels {
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
    let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let seen: SeenLabels =
        serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(seen.tasks)
}

/// A reply with its label.
#[derive(Debug, Clone, PartialEq)]
pub struct LabeledReply {
    /// Prompt of the model that replied.
    pub prompt: ChatInput,
    /// The reply.
    pub reply: ChatMessage,
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
    /// File and line of the row.
    pub location: String,
}

impl LabeledReply {
    /// Returns the conversation with the reply as its last message.
    pub fn conversation(&self) -> ChatInput {
        self.prompt.with_message(self.reply.clone())
    }

    /// Returns the text of the prompt.
    pub fn prompt_text(&self) -> String {
        texts(&self.prompt)
    }

    /// Returns the text of the reply, with its calls.
    pub fn reply_text(&self) -> String {
        match self.reply.get("tool_calls") {
            Some(calls) => format!("{}{calls}", self.reply.text()),
            None => self.reply.text().to_owned(),
        }
    }
}

/// Returns the contents of messages, one a line.
fn texts(chat: &ChatInput) -> String {
    let texts: Vec<&str> = chat.messages.iter().map(ChatMessage::text).collect();
    texts.join("\n")
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
pub fn labeled(path: &Path, task: &TaskConfig) -> Result<Vec<LabeledReply>, DataError> {
    all(path, task, &[TRAIN, VALIDATION])
}

/// Same as [`labeled`], for held-out rows: those of a file, which may also have `"split": "test"`, or of a split of a data set on
/// the hub. Of a data set of one split, rows that name no other are held out, too.
///
/// # Errors
///
/// Same as [`labeled`].
pub fn labeled_held_out(
    path: &Path,
    task: &TaskConfig,
    split: &str,
) -> Result<Vec<LabeledReply>, DataError> {
    let held_out = TaskConfig { split: split.to_owned(), unsplit: Unsplit::Every, ..task.clone() };
    all(path, &held_out, &[TRAIN, VALIDATION, TEST])
}

/// Returns what is wrong with the labels of rows that are trained on.
pub fn label_problem(rows: &[LabeledReply]) -> Option<&'static str> {
    let is_one = rows.iter().all(|row| Some(row.label) == rows.first().map(|first| first.label));
    is_one.then_some(
        "the rows that are trained on have one label: a verifier needs right and wrong replies",
    )
}

/// Returns what is wrong with the scores of rows, which `algorithm.verifier.labels = "soft"` reads.
pub fn score_problem<'r>(rows: impl IntoIterator<Item = &'r LabeledReply>) -> Option<String> {
    let mut scores = rows.into_iter().map(|row| row.score);
    let score = scores.find(|score| !score.is_some_and(|score| (0.0..=1.0).contains(&score)))?;
    let found = score.map_or_else(|| "missing".to_owned(), |score| score.to_string());
    Some(format!(
        "`score` of a row is {found}; `algorithm.verifier.labels = \"soft\"` takes numbers from 0 to 1"
    ))
}

fn all(path: &Path, task: &TaskConfig, splits: &[&str]) -> Result<Vec<LabeledReply>, DataError> {
    let task = &*with_preset(task);
    // Rows of a file say themselves whether they are of training; a data set has splits.
    let files = open_sources(path, &WantedRows::of_split(task, &task.split))?;
    let (mut replies, mut number, mut others) = (Vec::new(), 0, false);
    for file in &files {
        for object in file.rows::<Map<String, Value>>(ROW)? {
            let (line, object) = object?;
            let location = file.location(line);
            let found = ConversationRow::new(object, task, &[&PAIR[..], &READ].concat())
                .and_then(|row| Ok(is_read(file, &row, (task, splits))?.then_some(row)))
                .and_then(|row| row.map(|row| read(number, &row, &location)).transpose());
            let found = found.map_err(|message| file.damaged(line, message))?;
            others |= found.is_none();
            replies.extend(found.unwrap_or_default());
            number += 1;
        }
    }
    if !replies.is_empty() {
        return Ok(replies);
    }
    let place = path.display().to_string();
    if others {
        let (split, found) = (task.split.clone(), "rows of other splits".to_owned());
        return Err(DataError::NoTasks { place, split, found });
    }
    let wanted = "write one JSON object a line with `prompt`, `completion` and `label`";
    Err(DataError::Empty { place, what: "labeled replies", wanted })
}

/// Returns true if a row is read: every row of a file, whose splits are checked; in a data set, those of the task's split, and
/// those of validation beside rows that are trained on.
fn is_read(
    file: &SourceFile,
    row: &ConversationRow<'_>,
    (task, splits): (&TaskConfig, &[&str]),
) -> Result<bool, String> {
    let Some(set) = &file.set else { return one_of(splits, row).map(|()| true) };
    let trains = !splits.contains(&TEST);
    Ok(set.has_row(row.split(), &task.split, task.unsplit)
        || trains && set.has_row(row.split(), VALIDATION, task.unsplit))
}

/// Refuses a row of a split that is not trained on.
fn one_of(splits: &[&str], row: &ConversationRow<'_>) -> Result<(), String> {
    match row.get("split") {
        Some(split) if !split.as_str().is_some_and(|split| splits.contains(&split)) => {
            Err(format!(
                "`split` is {split}; a verifier is trained on rows of \"{TRAIN}\" and calibrated on those of \"{VALIDATION}\": put \
             held-out ones into the file of `eval.data`"
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the replies of a row.
fn read(
    number: usize,
    row: &ConversationRow<'_>,
    location: &str,
) -> Result<Vec<LabeledReply>, String> {
    let validates = row.get("split").is_some_and(|split| split == VALIDATION);
    let base = Base { row: number, validates, location };
    if row.has("chosen") {
        return of_pair(row, &base);
    }
    if row.has("completions") {
        return steps(row, &base);
    }
    let (prompt, reply, label) = labeled_reply(row)?;
    let score = row.get("score").and_then(Value::as_f64);
    let reply = base.reply(&origin(row), prompt, reply);
    Ok(vec![LabeledReply { label, score, ..reply }])
}

fn of_pair(row: &ConversationRow<'_>, base: &Base<'_>) -> Result<Vec<LabeledReply>, String> {
    let (prompt, [chosen, rejected]) = pair(row)?;
    let origin = origin(row);
    let other = origin.get("rejected").unwrap_or(&origin);
    let scores = ["score_chosen", "score_rejected"];
    let [of_chosen, of_rejected] = scores.map(|key| row.get(key).and_then(Value::as_f64));
    let better = base.reply(&origin, prompt.clone(), chosen);
    let worse = base.reply(other, prompt, rejected);
    Ok(vec![
        LabeledReply { label: true, score: of_chosen, ..better },
        LabeledReply { score: of_rejected, ..worse },
    ])
}

/// Returns the steps of a row, each as a reply to the question and the steps before it.
fn steps(row: &ConversationRow<'_>, base: &Base<'_>) -> Result<Vec<LabeledReply>, String> {
    let lists = ["completions", "labels"].map(|key| row.get(key).and_then(Value::as_array));
    let [Some(replies), Some(labels)] = lists else {
        return Err("`completions` and `labels` are not both lists".to_owned());
    };
    if replies.len() != labels.len() {
        let (n, found) = (replies.len(), labels.len());
        return Err(format!("{n} `completions` have {found} `labels`; write one for each"));
    }
    if !row.has("prompt") {
        return Err("there is no `prompt`".to_owned());
    }
    let prompt = row.chat(row.messages("prompt", "user")?)?;
    let mut before = base.reply(&origin(row), prompt, ChatMessage::new("assistant", ""));
    let mut steps = Vec::new();
    for (step, (reply, label)) in replies.iter().zip(labels).enumerate() {
        let reply =
            reply.as_str().ok_or_else(|| format!("a completion is {reply}; write a text"))?;
        let label =
            truth(label).ok_or_else(|| format!("a label is {label}; write true or false"))?;
        let seat = row.get("seats").and_then(|seats| seats.get(step)?.as_str());
        before.reply = ChatMessage::new("assistant", reply);
        steps.push(LabeledReply {
            label,
            score: row.get("scores").and_then(|scores| scores.get(step)?.as_f64()),
            place: format!("{} {step}", seat.unwrap_or_default()),
            ..before.clone()
        });
        before.prompt = before.conversation();
    }
    Ok(steps)
}

/// Returns the column `maverl`, which is a text in Parquet files.
fn origin(row: &ConversationRow<'_>) -> Value {
    match row.get("maverl") {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        other => other.cloned().unwrap_or_default(),
    }
}

/// Values that all replies of a row have in common.
struct Base<'r> {
    row: usize,
    validates: bool,
    location: &'r str,
}

impl Base<'_> {
    /// Returns a reply with what its origin says, labeled wrong.
    fn reply(&self, origin: &Value, prompt: ChatInput, reply: ChatMessage) -> LabeledReply {
        let keys = ["question", "policy", "seat", "path"];
        let [question, policy, seat, path] = keys.map(|key| origin[key].as_str());
        let place = seat.zip(path).map(|(seat, path)| format!("{seat} {path}"));
        LabeledReply {
            task: question.map_or_else(|| question_key(&texts(&prompt)), str::to_owned),
            prompt,
            reply,
            label: false,
            score: None,
            policy: policy.unwrap_or_default().to_owned(),
            place: place.unwrap_or_default(),
            validates: self.validates,
            row: self.row,
            location: self.location.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn replies(row: &Value) -> Result<Vec<LabeledReply>, String> {
        let (task, keys) = (TaskConfig::default(), [&PAIR[..], &READ].concat());
        let row = ConversationRow::new(row.as_object().unwrap().clone(), &task, &keys)?;
        super::read(0, &row, "rows.jsonl:1")
    }

    fn read(row: &Value) -> Result<LabeledReply, String> {
        replies(row).map(|mut replies| replies.remove(0))
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
        assert_eq!((found.label, found.score, found.reply_text().as_str()), (true, Some(0.5), "4"));
        assert_eq!((found.task.as_str(), found.place.as_str()), ("00ab", "a/b 0.1"));
        assert_eq!(found.conversation().messages.len(), 2);
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
        let pair = replies(&pair).unwrap();
        let found: Vec<_> = pair.iter().map(|it| (it.reply.text(), it.label, it.score)).collect();
        assert_eq!(found, [("4", true, Some(1.0)), ("5", false, None)]);
        assert_eq!((pair[0].policy.as_str(), pair[1].policy.as_str()), ("strong", "weak"));
        assert!(pair.iter().all(|reply| reply.task == "00ab" && reply.prompt.messages.len() == 1));
        let steps = json!({
            "prompt": "2 + 2 + 2?", "completions": ["4", "7"], "labels": [true, false], "scores": [0.5, 0.0],
            "seats": ["a/b", "a/c"],
        });
        let steps = replies(&steps).unwrap();
        let found: Vec<_> =
            steps.iter().map(|it| (it.place.as_str(), it.label, it.score)).collect();
        assert_eq!(found, [("a/b 0", true, Some(0.5)), ("a/c 1", false, Some(0.0))]);
        assert_eq!(steps[1].prompt, steps[0].conversation());
        assert_eq!((steps[0].task.as_str(), steps[0].row), (steps[1].task.as_str(), steps[1].row));
        let wrong = replies(&json!({"prompt": "a", "completions": ["b", "c"], "labels": [true]}));
        assert_eq!(wrong.unwrap_err(), "2 `completions` have 1 `labels`; write one for each");
        let wrong = replies(&json!({"prompt": "a", "completions": ["b"], "labels": ["yes"]}));
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
