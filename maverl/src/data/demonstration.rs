//! Demonstrations for supervised training: a conversation and its next reply.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::jsonl::{ROW, named};
use super::{Bounds, DataError, File};
use crate::trajectory::{Message, Role};

/// A conversation and its target reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Demonstration {
    /// Prompt of the model.
    pub prompt: Vec<Message>,
    /// Target reply.
    pub reply: String,
}

impl Demonstration {
    /// Returns true if the prompt contains a message of the user or a tool after a reply of the assistant.
    pub fn observes(&self) -> bool {
        self.observations().next().is_some()
    }

    /// Returns the indices in the prompt of messages of the user or a tool after a reply of the assistant.
    pub fn observations(&self) -> impl Iterator<Item = usize> + '_ {
        let roles = self.prompt.windows(2).map(|pair| (pair[0].role, pair[1].role));
        let answers =
            roles.map(|roles| matches!(roles, (Role::Assistant, Role::User | Role::Tool)));
        answers.enumerate().filter(|(_, answers)| *answers).map(|(at, _)| at + 1)
    }
}

/// Columns of a question and its solution in known data sets: GSM8K, MATH.
const SOLVED: [[&str; 2]; 2] = [["question", "answer"], ["problem", "solution"]];

/// Reads demonstrations in TRL's forms, one JSON object per line: `messages`, of which the last is the assistant's; or
/// `prompt` and `completion`, each a text or messages; or the columns of GSM8K or MATH. `keys` maps these names to the
/// file's names.
///
/// # Errors
///
/// See [`DataError`]; a file without demonstrations is one.
pub fn demonstrations(
    path: &Path,
    keys: &BTreeMap<String, String>,
    bounds: Bounds,
) -> Result<Vec<Demonstration>, DataError> {
    let file = File::open(path, bounds)?;
    let rows: Vec<Demonstration> = file
        .rows(ROW)?
        .map(|object| {
            let (line, mut object) = object?;
            named(&mut object, keys)
                .and_then(|()| conversation(&object))
                .and_then(demonstration)
                .map_err(|message| file.damaged(line, message))
        })
        .collect::<Result<_, _>>()?;
    if rows.is_empty() {
        let wanted = "write one JSON object a line with `messages`, or `prompt` and `completion`";
        let place = path.display().to_string();
        return Err(DataError::Empty { place, what: "demonstrations", wanted });
    }
    Ok(rows)
}

fn conversation(object: &Map<String, Value>) -> Result<Vec<Message>, String> {
    match (object.get("messages"), object.get("prompt"), object.get("completion")) {
        (Some(all), _, _) => messages(all, "messages", Role::User),
        (None, Some(prompt), Some(completion)) => {
            let mut all = messages(prompt, "prompt", Role::User)?;
            all.extend(messages(completion, "completion", Role::Assistant)?);
            Ok(all)
        }
        _ => solved(object),
    }
}

/// Reads a question and its solution as a conversation.
fn solved(object: &Map<String, Value>) -> Result<Vec<Message>, String> {
    let texts = |[question, solution]: [&str; 2]| {
        let text = |key| object.get(key).and_then(Value::as_str).map(str::to_owned);
        Some((text(question)?, text(solution)?))
    };
    let Some((question, solution)) = SOLVED.into_iter().find_map(texts) else {
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        return Err(format!(
            "no `messages`, nor `prompt` and `completion`, among {keys:?}; `task.keys = {{ prompt = \"..\", completion = \
             \"..\" }}` names them"
        ));
    };
    let (user, assistant) = (Role::User, Role::Assistant);
    Ok(vec![
        Message { role: user, content: question },
        Message { role: assistant, content: solution },
    ])
}

/// Creates a demonstration from a conversation that ends with the target reply.
pub(super) fn demonstration(mut prompt: Vec<Message>) -> Result<Demonstration, String> {
    match prompt.pop() {
        Some(Message { role: Role::Assistant, content: reply }) if !prompt.is_empty() => {
            Ok(Demonstration { prompt, reply })
        }
        _ => Err("the conversation must end with the assistant's reply to something".to_owned()),
    }
}

/// Reads a text as a message of a role, or a list of messages.
pub(super) fn messages(value: &Value, key: &str, role: Role) -> Result<Vec<Message>, String> {
    if let Value::String(content) = value {
        return Ok(vec![Message { role, content: content.clone() }]);
    }
    serde_json::from_value(value.clone())
        .map_err(|error| format!("`{key}` is no list of `role` and `content`: {error}"))
}
