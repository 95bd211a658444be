//! Preferences: two replies to one conversation, of which one is better; or single replies, which are good or bad.

use std::path::Path;

use super::conversation::{ConversationRow, follows};
use super::demonstration::conversations;
use super::error::DataError;
use super::messages::truth;
use crate::config::TaskConfig;
use crate::text::{ChatInput, ChatMessage};

/// Keys of a pair.
pub(super) const PAIR: [&str; 5] =
    ["prompt", "chosen", "rejected", "score_chosen", "score_rejected"];

/// Keys of a reply with a label.
const LABELED: [&str; 3] = ["completion", "label", "score"];

/// A conversation and two replies, of which one is better; or one reply, which is good or bad.
#[derive(Debug, Clone, PartialEq)]
pub struct PreferenceRow {
    /// Prompt of the model.
    pub prompt: ChatInput,
    /// The better reply, or a good one; `None` beside a bad one.
    pub chosen: Option<ChatMessage>,
    /// The other reply, or a bad one; `None` beside a good one.
    pub rejected: Option<ChatMessage>,
    /// File and line of the row.
    pub location: String,
}

impl PreferenceRow {
    /// Returns the conversation with each of the replies, the better one first.
    pub fn conversations(&self) -> Vec<ChatInput> {
        let replies = [&self.chosen, &self.rejected].into_iter().flatten();
        replies.map(|reply| self.prompt.with_message(reply.clone())).collect()
    }

    /// Returns the numbers of better or good replies, and of worse or bad ones.
    pub fn sizes(&self) -> [usize; 2] {
        [&self.chosen, &self.rejected].map(|reply| usize::from(reply.is_some()))
    }

    fn of_pair(row: &ConversationRow<'_>, location: String) -> Result<Self, String> {
        let (prompt, [chosen, rejected]) = pair(row)?;
        Ok(Self { prompt, chosen: Some(chosen), rejected: Some(rejected), location })
    }

    fn of_reply(row: &ConversationRow<'_>, location: String) -> Result<Self, String> {
        let (prompt, reply, good) = labeled_reply(row)?;
        let (chosen, rejected) = if good { (Some(reply), None) } else { (None, Some(reply)) };
        Ok(Self { prompt, chosen, rejected, location })
    }
}

/// Reads the pairs of a split in TRL's forms, one JSON object per line: `prompt`, `chosen` and `rejected`, each a text or
/// messages; or `chosen` and `rejected` alone, whole conversations that differ in the last message.
///
/// # Errors
///
/// See [`DataError`]; a file without pairs is one.
pub fn preferences(path: &Path, task: &TaskConfig) -> Result<Vec<PreferenceRow>, DataError> {
    let wanted = "write one JSON object a line with `prompt`, `chosen` and `rejected`";
    conversations(path, task, (&PAIR, "pairs of replies", wanted), PreferenceRow::of_pair)
}

/// Reads the rows of a split for a loss of single replies. A row is a pair, as [`preferences`] reads it, of which the better reply is
/// good and the other bad; or `prompt`, `completion` and `label`: true, or 1, of a good reply.
///
/// # Errors
///
/// See [`DataError`]; a file without rows is one.
pub fn judged_replies(path: &Path, task: &TaskConfig) -> Result<Vec<PreferenceRow>, DataError> {
    let wanted = "write one JSON object a line with `prompt`, `completion` and `label`";
    let keys = [&PAIR[..], &LABELED].concat();
    conversations(path, task, (&keys, "replies with labels", wanted), |row, location| {
        let pair = row.has("chosen") || row.has("rejected");
        if pair {
            PreferenceRow::of_pair(row, location)
        } else {
            PreferenceRow::of_reply(row, location)
        }
    })
}

/// Reads a pair: the conversation, the better reply and the other one.
pub(super) fn pair(row: &ConversationRow<'_>) -> Result<(ChatInput, [ChatMessage; 2]), String> {
    if !(row.has("chosen") && row.has("rejected")) {
        return Err(format!(
            "no `chosen` and `rejected` among {:?}; `task.keys = {{ chosen = \"..\", rejected = \"..\" }}` names them",
            row.keys()
        ));
    }
    let prompt = row.messages("prompt", "user")?;
    let replies = (split_reply(row, &prompt, "chosen")?, split_reply(row, &prompt, "rejected")?);
    let ((prompt, chosen), (other, rejected)) = replies;
    if prompt != other {
        return Err("`chosen` and `rejected` reply to different conversations".to_owned());
    }
    if chosen == rejected {
        return Err("`chosen` and `rejected` are the same".to_owned());
    }
    Ok((row.chat(prompt)?, [chosen, rejected]))
}

/// Reads a reply with its label: the conversation, the reply, and true if it is good.
pub(super) fn labeled_reply(
    row: &ConversationRow<'_>,
) -> Result<(ChatInput, ChatMessage, bool), String> {
    if !(row.has("prompt") && row.has("completion")) {
        return Err(format!("no `prompt` and `completion` among {:?}", row.keys()));
    }
    let (prompt, reply) =
        (row.messages("prompt", "user")?, row.messages("completion", "assistant")?);
    follows(&prompt, &reply, "completion")?;
    let (prompt, reply) = last_reply([prompt, reply].concat())?;
    let label = row.get("label").ok_or("there is no `label`; write true or false")?;
    let label = truth(label).ok_or_else(|| format!("`label` is {label}; write true or false"))?;
    Ok((row.chat(prompt)?, reply, label))
}

/// Returns the conversation before the reply at a key, and the reply.
fn split_reply(
    row: &ConversationRow<'_>,
    prompt: &[ChatMessage],
    key: &str,
) -> Result<(Vec<ChatMessage>, ChatMessage), String> {
    let reply = row.messages(key, "assistant")?;
    follows(prompt, &reply, key)?;
    last_reply([prompt, &reply].concat()).map_err(|error| format!("`{key}`: {error}"))
}

/// Divides a conversation into its prompt and its last message, which is a reply.
pub(super) fn last_reply(
    mut all: Vec<ChatMessage>,
) -> Result<(Vec<ChatMessage>, ChatMessage), String> {
    match all.pop() {
        Some(reply) if reply.role() == "assistant" && !all.is_empty() => Ok((all, reply)),
        _ => Err("the conversation must end with the assistant's reply to something".to_owned()),
    }
}
