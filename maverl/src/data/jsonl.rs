//! Rows that are JSON objects: maverl's own form, verl's, TRL's, those of math data sets, and documents.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::error::DataError;
use super::file::ROW;
use super::messages::{CHATML, brief, chat_message, messages, unmarked};
use super::nli;
use super::object::KeyPath;
use super::row::Row;
use super::row::Rows;
use super::sources::SourceFile;
use crate::builtin::Document;
use crate::config::TaskConfig;
use crate::task::Task;
use crate::text::ChatMessage;
use crate::trajectory::{Message, Role};

/// Keys of reference answers; the first one present is used.
const ANSWERS: [&str; 4] = ["answers", "answer", "golden_answers", "ground_truth"];

/// Keys of ids, and of other names of a task.
const NAMES: [&str; 6] = ["id", "task_id", "unique_id", "source", "data_source", "split"];
/// Keys of a document.
const DOCUMENT: [&str; 5] = ["id", "_id", "title", "text", "contents"];

/// Returns the paths of values that are read as texts, where `keys` maps maverl's names to the file's names.
pub(super) fn texts(keys: &BTreeMap<String, String>) -> Vec<KeyPath> {
    let own = ANSWERS.iter().chain(&NAMES).chain(&["solution", "reward_model"]);
    let own: Vec<&str> = own.copied().collect();
    let renamed = keys.iter().filter(|(ours, _)| own.contains(&ours.as_str()));
    // A name with a dot is that of a key, or a path.
    let renamed =
        renamed.flat_map(|(_, theirs)| [vec![theirs.as_str()], theirs.split('.').collect()]);
    let nested = ["id", "split"].map(|key| vec!["extra_info", key]);
    let all = own.iter().map(|key| vec![*key]).chain(nested).chain(renamed);
    all.map(|path| path.into_iter().map(str::to_owned).collect()).collect()
}

/// Reads every row as a task.
pub(super) fn tasks<'f>(
    file: &'f SourceFile,
    config: &'f TaskConfig,
) -> Result<Rows<'f>, DataError> {
    let source = file.source();
    file.objects(ROW, texts(&config.keys), move |line, mut object| {
        if let Some(set) = &file.set {
            set.name_labels(&mut object);
        }
        keyed(object, line, (&source, config)).map_err(|message| file.damaged(line, message))
    })
}

/// Reads a row whose names are those that `task.keys` maps maverl's names to.
pub(super) fn keyed(
    mut object: Map<String, Value>,
    line: usize,
    (source, config): (&str, &TaskConfig),
) -> Result<Row, String> {
    named(&mut object, &config.keys)?;
    row(object, line, (source, &config.ignore))
}

/// Renames values to maverl's names.
pub(super) fn named(
    object: &mut Map<String, Value>,
    keys: &BTreeMap<String, String>,
) -> Result<(), String> {
    for (ours, theirs) in keys {
        match taken(object, theirs) {
            Some(value) => drop(object.insert(ours.clone(), value)),
            // Another file of the data set may already use maverl's name.
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

/// Removes a value by its key, or by a path of keys, and objects that are empty without it.
fn taken(object: &mut Map<String, Value>, key: &str) -> Option<Value> {
    if let Some(value) = object.remove(key) {
        return Some(value);
    }
    let (first, rest) = key.split_once('.')?;
    let inner = object.get_mut(first)?.as_object_mut()?;
    let value = taken(inner, rest)?;
    if inner.is_empty() {
        object.remove(first);
    }
    Some(value)
}

/// Reads one row as a task, without its file; `number` is its id if the row has none.
pub(super) fn task(object: Map<String, Value>, number: usize) -> Result<Task, String> {
    row(object, number, ("rows", &[])).map(|row| row.task)
}

/// Reads a row. `data` of the task keeps every key of the row that is not used otherwise.
fn row(
    mut object: Map<String, Value>,
    line: usize,
    (source, ignored): (&str, &[String]),
) -> Result<Row, String> {
    let AskedQuestion { question, system, history } = match nli::task(&mut object)? {
        Some(question) => AskedQuestion { question, ..AskedQuestion::default() },
        None => asked(&mut object, ignored)?,
    };
    columns_before(&mut object, ignored)?;
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
    let before = [
        (Task::SYSTEM, Some(Value::String(system)).filter(|system| system != "")),
        (Task::HISTORY, Some(json!(history)).filter(|_| !history.is_empty())),
    ];
    for (key, value) in before {
        let Some(value) = value else { continue };
        if data.insert(key.to_owned(), value).is_some() {
            return Err(format!(
                "`prompt` has messages that become the task's `{key}`, which is a column of the row too; rename it, or make \
                 `prompt` a text"
            ));
        }
    }
    let named = id.is_some();
    let id = id.unwrap_or_else(|| line.to_string());
    Ok(Row { task: Task { id, source, question, data: without_room(data) }, split, line, named })
}

/// Returns a map without room for other keys, which that of a whole row has. There may be millions of tasks.
fn without_room(map: Map<String, Value>) -> Map<String, Value> {
    let mut exact = Map::with_capacity(map.len());
    exact.extend(map);
    exact
}

/// Removes a value by its key, ignoring case: some data sets have columns `Problem` and `Answer`.
fn take(object: &mut Map<String, Value>, key: &str) -> Option<Value> {
    let found = object.keys().find(|found| found.eq_ignore_ascii_case(key))?.clone();
    object.remove(&found)
}

/// A question, and the messages before it.
#[derive(Default)]
struct AskedQuestion {
    question: String,
    system: String,
    history: Vec<Message>,
}

/// Reads the question from `question`; or MATH's `problem`; or `prompt`, a text or messages, of which the last is the
/// question; or, for a row with tests as in MBPP, `text`.
fn asked(object: &mut Map<String, Value>, ignored: &[String]) -> Result<AskedQuestion, String> {
    let found = ["question", "problem"].iter().find_map(|key| Some((key, take(object, key)?)));
    if let Some((key, question)) = found {
        let other = object.get("prompt").filter(|prompt| prompt.is_array());
        if other.is_some() && !ignored.iter().any(|name| name == "prompt") {
            return Err(format!(
                "the row has `{key}`, and messages in `prompt`; give one of them: name the other in `task.ignore`"
            ));
        }
        return match question {
            Value::String(question) => Ok(AskedQuestion { question, ..AskedQuestion::default() }),
            other => Err(format!("`{key}` is {other}; write a text")),
        };
    }
    let mut prompt = object.remove("prompt").or_else(|| asked_messages(object));
    let tested = ["test_list", "tests"].iter().any(|key| object.contains_key(*key));
    if prompt.is_none() && tested {
        prompt = object.remove("text").filter(Value::is_string);
    }
    match prompt {
        Some(Value::String(question)) => Ok(AskedQuestion { question, ..AskedQuestion::default() }),
        Some(prompt @ Value::Array(_)) => conversation(&prompt, ignored),
        Some(other) => Err(format!("`prompt` is {other}; write a text or a list of messages")),
        None => {
            let keys: Vec<&str> = object.keys().map(String::as_str).collect();
            Err(format!("no `question`, `problem` or `prompt` among the keys {keys:?}"))
        }
    }
}

/// Takes the messages of a whole conversation up to the last one of the user, which is the question.
fn asked_messages(object: &mut Map<String, Value>) -> Option<Value> {
    let key = ["messages", CHATML]
        .into_iter()
        .find(|key| object.get(*key).is_some_and(Value::is_array))?;
    let Some(Value::Array(mut list)) = object.remove(key) else { return None };
    list.iter_mut().for_each(chat_message);
    let end = list.iter().rposition(|message| message["role"] == "user")?;
    list.truncate(end + 1);
    Some(Value::Array(list))
}

/// Checks the columns `system` and `history` of a row, which are messages before the question, and leaves out those that are
/// ignored or empty.
fn columns_before(object: &mut Map<String, Value>, ignored: &[String]) -> Result<(), String> {
    for key in [Task::SYSTEM, Task::HISTORY] {
        let given = object.remove(key).filter(|value| {
            !ignored.iter().any(|name| name == key)
                && !value.is_null()
                && value != ""
                && *value != json!([])
        });
        let Some(given) = given else { continue };
        let value = match (key, given) {
            (Task::SYSTEM, text @ Value::String(_)) => text,
            (Task::HISTORY, list @ Value::Array(_)) => {
                json!(plain(&list, key, ignored)?.iter().map(message_of).collect::<Vec<_>>())
            }
            (_, other) => {
                let wanted = if key == Task::SYSTEM { "a text" } else { "a list of messages" };
                let found = brief(&other);
                return Err(format!(
                    "`{key}` is {found}; write {wanted}, or name the column in `task.ignore`"
                ));
            }
        };
        object.insert(key.to_owned(), value);
    }
    Ok(())
}

/// Reads messages of `role` and `content` alone.
fn plain(value: &Value, key: &str, ignored: &[String]) -> Result<Vec<ChatMessage>, String> {
    let messages = unmarked(messages(value, key, "user", ignored)?, key)?;
    for (i, message) in messages.iter().enumerate() {
        let mut parts = ChatMessage::CALLS.iter().chain(&ChatMessage::THOUGHTS);
        if let Some(part) = parts.find(|part| message.get(part).is_some()) {
            return Err(format!(
                "`{key}[{i}]` has `{part}`; messages before a question have `role` and `content` alone"
            ));
        }
    }
    match messages.iter().position(|message| message.get("content").is_none()) {
        Some(i) => Err(format!("`{key}[{i}]` has no `content`; write a text")),
        None => Ok(messages),
    }
}

fn message_of(message: &ChatMessage) -> Message {
    let role = match message.role() {
        "system" => Role::System,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => Role::User,
    };
    Message { role, content: message.text().to_owned() }
}

/// Reads the messages of a prompt: the system messages at its beginning, those between, and the question.
fn conversation(prompt: &Value, ignored: &[String]) -> Result<AskedQuestion, String> {
    let messages = plain(prompt, "prompt", ignored)?;
    let Some((question, before)) = messages.split_last().filter(|(last, _)| last.role() == "user")
    else {
        let role = messages.last().map_or("nobody", |last| last.role());
        return Err(format!(
            "`prompt` ends with a message of {role}; the last message is the question, with `role` \"user\""
        ));
    };
    let first = before.iter().position(|it| it.role() != "system").unwrap_or(before.len());
    let system: Vec<&str> = before[..first].iter().map(ChatMessage::text).collect();
    Ok(AskedQuestion {
        question: question.text().to_owned(),
        system: system.join("\n\n"),
        history: before[first..].iter().map(message_of).collect(),
    })
}

/// Reads the reference answers, if the row has any; a row may be judged otherwise. The fallback is the answer in
/// `solution`, which stays in the row. For a programming task `solution` is not an answer.
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
        // The form of Search-R1, and of SQuAD's rows on the hub.
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

/// Reads a text, or a number or truth value as its text in JSON.
fn text(value: Option<Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// Reads every row as a document, with its number, which is the key of those without an id.
pub(super) fn documents(file: &SourceFile) -> Result<Vec<(usize, Document)>, DataError> {
    let texts = DOCUMENT.map(|key| vec![key.to_owned()]).to_vec();
    let documents = file.rows_as_written(ROW, texts)?.map(|object| {
        let (line, object) = object?;
        let number = file.document_key(format!("{line:08}"));
        let document = document(object, number).map_err(|message| file.damaged(line, message))?;
        Ok((line, document))
    });
    documents.collect()
}

/// Reads a document. In Search-R1's form, `contents` begins with the quoted title on a line of its own.
fn document(mut object: Map<String, Value>, number: String) -> Result<Document, String> {
    let key = text(object.remove("id").or_else(|| object.remove("_id"))).unwrap_or(number);
    let title = text(object.remove("title"));
    if let Some(body) = text(object.remove("text")) {
        let title = title.unwrap_or_default();
        let document = Document { key, title, text: body, contents: None };
        return Ok(match text(object.remove("contents")) {
            Some(contents) => document.with_contents(&contents),
            None => document,
        });
    }
    let Some(contents) = text(object.remove("contents")) else {
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        return Err(format!("no `text` or `contents` among the keys {keys:?}"));
    };
    Ok(match title {
        Some(title) => Document::from_titled_contents(key, title, &contents),
        None => Document::from_contents(key, &contents),
    })
}
