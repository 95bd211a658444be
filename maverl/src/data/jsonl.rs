//! Rows that are JSON objects: our own, verl's, TRL's, those of mathematical data sets, and documents.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{DataError, File, Row, Rows, nli};
use crate::builtin::Document;
use crate::task::Task;

/// A row, for messages.
pub(super) const ROW: &str = "JSON object";

/// Keys that hold reference answers, the first found counts.
const ANSWERS: [&str; 4] = ["answers", "answer", "golden_answers", "ground_truth"];

/// Every row as a task. `keys` gives names of ours, and what the file calls them.
pub(super) fn tasks<'f>(
    file: &'f File,
    keys: &'f BTreeMap<String, String>,
) -> Result<Rows<'f>, DataError> {
    let source = file.stem();
    Ok(Box::new(file.rows(ROW)?.map(move |object| {
        let (line, mut object) = object?;
        named(&mut object, keys)
            .and_then(|()| row(object, line, &source))
            .map_err(|message| file.damaged(line, message))
    })))
}

/// Gives values the names that they are known by.
fn named(object: &mut Map<String, Value>, keys: &BTreeMap<String, String>) -> Result<(), String> {
    for (ours, theirs) in keys {
        match taken(object, theirs) {
            Some(value) => drop(object.insert(ours.clone(), value)),
            // As in another file of the data set, which has it by our name.
            None if object.contains_key(ours) => {}
            None => {
                let keys: Vec<&String> = object.keys().collect();
                return Err(format!(
                    "no `{theirs}`, which `task.keys` gives for `{ours}`, among the keys {keys:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Takes a value out by its key, or by the path of keys to it.
fn taken(object: &mut Map<String, Value>, key: &str) -> Option<Value> {
    if let Some(value) = object.remove(key) {
        return Some(value);
    }
    let (first, rest) = key.split_once('.')?;
    taken(object.get_mut(first)?.as_object_mut()?, rest)
}

/// One row as a task, without a file around it; `number` is its id where it has none.
pub(super) fn task(object: Map<String, Value>, number: usize) -> Result<Task, String> {
    row(object, number, "rows").map(|row| row.task)
}

/// `data` of the task keeps every key of the row that is not read as something else.
fn row(mut object: Map<String, Value>, line: usize, source: &str) -> Result<Row, String> {
    let question = match nli::task(&mut object)? {
        Some(question) => question,
        None => question(&mut object)?,
    };
    let answers = answers(&mut object)?;
    let mut extra = match object.remove("extra_info") {
        Some(Value::Object(extra)) => extra,
        _ => Map::new(),
    };
    let id = ["id", "task_id", "unique_id"].iter().find_map(|key| take(&mut object, key));
    let id = text(id.or_else(|| extra.remove("id")));
    let own_source = text(object.remove("source").or_else(|| object.remove("data_source")));
    let source = own_source.unwrap_or_else(|| source.to_owned());
    let split = text(object.remove("split").or_else(|| extra.remove("split")));
    let mut data = object;
    data.extend(extra);
    if let Some(answers) = answers {
        data.insert("answers".to_owned(), json!(answers));
    }
    let id = id.unwrap_or_else(|| line.to_string());
    Ok(Row { task: Task { id, source, question, data }, split, line })
}

/// A value by its key, in capitals or not: some publish their columns as `Problem` and `Answer`.
fn take(object: &mut Map<String, Value>, key: &str) -> Option<Value> {
    let found = object.keys().find(|found| found.eq_ignore_ascii_case(key))?.clone();
    object.remove(&found)
}

/// `question`, or MATH's `problem`; or `prompt`, a text or messages of which the last user's counts; or, of a row with tests
/// as MBPP has them, `text`.
fn question(object: &mut Map<String, Value>) -> Result<String, String> {
    let found = ["question", "problem"].iter().find_map(|key| Some((key, take(object, key)?)));
    if let Some((key, question)) = found {
        return match question {
            Value::String(question) => Ok(question),
            other => Err(format!("`{key}` is {other}; write a text")),
        };
    }
    let prompt = object.remove("prompt");
    let tested = ["test_list", "tests"].iter().any(|key| object.contains_key(*key));
    let text = || if tested { object.remove("text").filter(Value::is_string) } else { None };
    match prompt.or_else(text) {
        Some(Value::String(prompt)) => Ok(prompt),
        Some(Value::Array(messages)) => messages
            .iter()
            .rev()
            .find(|message| message["role"] == "user")
            .and_then(|message| message["content"].as_str())
            .map(str::to_owned)
            .ok_or_else(|| {
                "`prompt` has no message with `role` \"user\" and a `content`".to_owned()
            }),
        Some(other) => Err(format!("`prompt` is {other}; write a text or a list of messages")),
        None => {
            let keys: Vec<&str> = object.keys().map(String::as_str).collect();
            Err(format!("no `question`, `problem` or `prompt` among the keys {keys:?}"))
        }
    }
}

/// Reference answers, if the row has any; a row may be judged by something else. Where there is no other, it is the one in
/// `solution`, which stays in the row: of a program it is not the answer.
fn answers(object: &mut Map<String, Value>) -> Result<Option<Vec<String>>, String> {
    let found = ANSWERS.iter().find_map(|key| Some((*key, take(object, key)?)));
    let (key, value) = match (found, object.remove("reward_model")) {
        (Some(found), _) => found,
        (None, Some(Value::Object(mut model))) => match model.remove("ground_truth") {
            Some(truth) => ("reward_model.ground_truth", truth),
            None => return Err("`reward_model` has no `ground_truth`".to_owned()),
        },
        (None, _) => match object.iter().find(|(key, _)| key.eq_ignore_ascii_case("solution")) {
            Some((_, solution)) => ("solution", solution.clone()),
            None => return Ok(None),
        },
    };
    let value = match value {
        // As Search-R1 has it, and as SQuAD's rows have it on the hub.
        Value::Object(mut truth) => ["target", "text"]
            .iter()
            .find_map(|key| truth.remove(*key))
            .ok_or_else(|| format!("`{key}` is an object without `target` or `text`"))?,
        value => value,
    };
    let values = match value {
        Value::Array(values) => values,
        value => vec![value],
    };
    let answers: Option<Vec<String>> = values.into_iter().map(|value| text(Some(value))).collect();
    match answers {
        Some(answers) if !answers.is_empty() => Ok(Some(answers)),
        Some(_) => Err(format!("`{key}` is empty; write at least one answer")),
        None => Err(format!("`{key}` holds something that is neither text nor a number")),
    }
}

/// A text, or a number as one.
fn text(value: Option<Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(if truth { "yes" } else { "no" }.to_owned()),
        _ => None,
    }
}

/// Every row as a document, with its number.
pub(super) fn documents(file: &File) -> Result<Vec<(usize, Document)>, DataError> {
    let document = |object: Result<(usize, Map<String, Value>), DataError>| {
        let (line, object) = object?;
        let document = document(object, line).map_err(|message| file.damaged(line, message))?;
        Ok((line, document))
    };
    file.rows(ROW)?.map(document).collect()
}

/// `contents`, as Search-R1 has it, begins with the title in quotes on a line of its own.
fn document(mut object: Map<String, Value>, line: usize) -> Result<Document, String> {
    let key = text(object.remove("id").or_else(|| object.remove("_id")));
    let key = key.unwrap_or_else(|| format!("{line:08}"));
    let title = text(object.remove("title"));
    if let Some(body) = text(object.remove("text")) {
        return Ok(Document { key, title: title.unwrap_or_default(), text: body });
    }
    let Some(contents) = text(object.remove("contents")) else {
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        return Err(format!("no `text` or `contents` among the keys {keys:?}"));
    };
    Ok(match title {
        Some(title) => Document { key, title, text: contents },
        None => Document::from_contents(key, &contents),
    })
}
