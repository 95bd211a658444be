//! Demonstrations for supervised training: conversations with the replies that are trained on.

use std::path::Path;

use serde_json::{Map, Value};

use super::conversation::{ConversationRow, follows};
use super::error::DataError;
use super::file::ROW;
use super::hub::with_preset;
use super::messages::Marked;
use super::sources::{SourceFile, WantedRows, open_sources};
use crate::config::TaskConfig;
use crate::text::{ChatInput, ChatMessage};

/// Keys of a demonstration; then those of [`SOLVED`], and two of MATH that are not used.
const READ: [&str; 9] = [
    "messages",
    "prompt",
    "completion",
    "question",
    "answer",
    "problem",
    "solution",
    "level",
    "type",
];
/// Columns of a question and its solution in known data sets: GSM8K, MATH.
const SOLVED: [[&str; 2]; 2] = [["question", "answer"], ["problem", "solution"]];

/// A conversation that ends with a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Demonstration {
    /// The conversation.
    pub chat: ChatInput,
    /// For each message, true or false if the row says whether it is trained on.
    pub marks: Vec<Option<bool>>,
    /// File and line of the row.
    pub location: String,
}

impl Demonstration {
    /// Returns the indices of the replies that are trained on: the last one; in a row with marks, every one whose mark is not
    /// false.
    pub fn replies(&self) -> Vec<usize> {
        let last = self.chat.messages.len() - 1;
        let marked = self.marks.iter().any(Option::is_some);
        let replies = (0..=last).filter(|i| self.role(*i) == "assistant");
        replies.filter(|i| self.marks[*i].unwrap_or(marked || *i == last)).collect()
    }

    /// Returns the indices of all replies, except those whose mark is false.
    pub fn all_replies(&self) -> Vec<usize> {
        let replies = (0..self.chat.messages.len()).filter(|i| self.role(*i) == "assistant");
        replies.filter(|i| self.marks[*i] != Some(false)).collect()
    }

    /// Returns the indices of messages of the user or a tool after a reply, except those whose mark is false.
    pub fn observations(&self) -> Vec<usize> {
        let answers = (1..self.chat.messages.len()).filter(|i| {
            self.role(*i - 1) == "assistant" && matches!(self.role(*i), "user" | "tool")
        });
        answers.filter(|i| self.marks[*i] != Some(false)).collect()
    }

    fn role(&self, i: usize) -> &str {
        self.chat.messages[i].role()
    }
}

/// Reads the demonstrations of a split in TRL's forms, one JSON object per line: `messages` (or ShareGPT's `conversations`), of
/// which the last is the assistant's; or `prompt` and `completion`, each a text or messages; or the columns of GSM8K or MATH.
///
/// # Errors
///
/// See [`DataError`]; a file without demonstrations is one.
pub fn demonstrations(path: &Path, task: &TaskConfig) -> Result<Vec<Demonstration>, DataError> {
    let wanted = "write one JSON object a line with `messages`, or `prompt` and `completion`";
    conversations(path, task, (&READ, "demonstrations", wanted), demonstration)
}

/// Same as [`demonstrations`], for self-play, which compares last replies.
///
/// # Errors
///
/// Same as [`demonstrations`]; a row whose marks choose other replies than the last one is one.
pub fn self_play(path: &Path, task: &TaskConfig) -> Result<Vec<Demonstration>, DataError> {
    let rows = demonstrations(path, task)?;
    match rows.iter().find(|row| row.replies() != [row.chat.messages.len() - 1]) {
        Some(row) => Err(DataError::Unfit {
            location: row.location.clone(),
            message: "self-play compares the last reply of a row with that of the opponent, and the marks of this row choose \
                      others; leave the marks out"
                .to_owned(),
        }),
        None => Ok(rows),
    }
}

fn demonstration(row: &ConversationRow<'_>, location: String) -> Result<Demonstration, String> {
    let (messages, marks) =
        messages_of(row)?.into_iter().map(|one| (one.message, one.mark)).unzip();
    let row = Demonstration { chat: row.chat(messages)?, marks, location };
    let roles: Vec<&str> = row.chat.messages.iter().map(|message| message.role()).collect();
    match roles.as_slice() {
        [.., _, "assistant"] => {}
        _ => {
            return Err(
                "the conversation must end with the assistant's reply to something".to_owned()
            );
        }
    }
    if row.replies().is_empty() {
        Err("every reply has a mark that leaves it out; leave the row out".to_owned())
    } else {
        Ok(row)
    }
}

fn messages_of(row: &ConversationRow<'_>) -> Result<Vec<Marked>, String> {
    if row.has("messages") && !row.has("prompt") && !row.has("completion") {
        return row.marked_messages("messages", "user");
    }
    if row.has("messages") {
        let message = "a row has `messages` beside `prompt` or `completion`; name those that are not read in `task.ignore`";
        return Err(message.to_owned());
    }
    let solved = SOLVED.into_iter().find(|keys| keys.iter().all(|key| row.has(key)));
    let [prompt, completion] = match solved {
        _ if row.has("prompt") && row.has("completion") => ["prompt", "completion"],
        Some(keys) => keys,
        None => {
            return Err(format!(
                "no `messages`, nor `prompt` and `completion`, among {:?}; `task.keys = {{ prompt = \"..\", completion = \
                 \"..\" }}` names them",
                row.keys()
            ));
        }
    };
    let (mut all, reply) =
        (row.marked_messages(prompt, "user")?, row.marked_messages(completion, "assistant")?);
    let [before, after] = [&all, &reply]
        .map(|part| -> Vec<ChatMessage> { part.iter().map(|one| one.message.clone()).collect() });
    follows(&before, &after, completion)?;
    all.extend(reply);
    Ok(all)
}

/// Reads every row of the task's split as a conversation of a kind, which has keys of its own.
pub(super) fn conversations<T>(
    place: &Path,
    task: &TaskConfig,
    (read, what, wanted): (&[&str], &'static str, &'static str),
    convert: impl Fn(&ConversationRow<'_>, String) -> Result<T, String>,
) -> Result<Vec<T>, DataError> {
    let task = &*with_preset(task);
    let (mut rows, mut others) = (Vec::new(), false);
    let files = open_sources(place, &WantedRows::of_split(task, &task.split))?;
    for file in &files {
        for object in file.rows::<Map<String, Value>>(ROW)? {
            let (line, object) = object?;
            let row = ConversationRow::new(object, task, read);
            let row = row.map_err(|message| file.damaged(line, message))?;
            if is_chosen(file, &row, task) {
                let row = convert(&row, file.location(line));
                rows.push(row.map_err(|message| file.damaged(line, message))?);
            } else {
                others = true;
            }
        }
    }
    rows.truncate(task.limit.map_or(usize::MAX, std::num::NonZero::get));
    let place = || files.first().map_or_else(|| place.display().to_string(), |file| file.shown());
    if !rows.is_empty() {
        Ok(rows)
    } else if others {
        let (place, split) = (place(), task.split.clone());
        let found = "rows of other splits".to_owned();
        Err(DataError::NoTasks { place, split, found })
    } else {
        Err(DataError::Empty { place: place(), what, wanted })
    }
}

/// Returns true if a row is of the task's split: in a data set, that of its file, or of its key `split` where the set has one
/// split; in a file, that of its key `split`, or every one without.
fn is_chosen(file: &SourceFile, row: &ConversationRow<'_>, task: &TaskConfig) -> bool {
    match &file.set {
        Some(set) => set.has_row(row.split(), &task.split, task.unsplit),
        None => row.is_in(&task.split),
    }
}
