//! Preference pairs: two replies to one conversation, of which one is better.

use std::path::Path;

use super::conversation::{ConversationRow, follows};
use super::demonstration::conversations;
use super::error::DataError;
use crate::config::TaskConfig;
use crate::text::{ChatInput, ChatMessage};

/// Keys of a pair.
pub(super) const PAIR: [&str; 5] =
    ["prompt", "chosen", "rejected", "score_chosen", "score_rejected"];

/// A conversation and two replies.
#[derive(Debug, Clone, PartialEq)]
pub struct PreferencePair {
    /// Prompt of the model.
    pub prompt: ChatInput,
    /// The better reply.
    pub chosen: ChatMessage,
    /// The other reply.
    pub rejected: ChatMessage,
    /// File and line of the row.
    pub location: String,
}

impl PreferencePair {
    /// Returns the conversation with each of the replies, the better one first.
    pub fn conversations(&self) -> [ChatInput; 2] {
        [&self.chosen, &self.rejected].map(|reply| self.prompt.with_message(reply.clone()))
    }
}

/// Reads the pairs of a split in TRL's forms, one JSON object per line: `prompt`, `chosen` and `rejected`, each a text or
/// messages; or `chosen` and `rejected` alone, whole conversations that differ in the last message.
///
/// # Errors
///
/// See [`DataError`]; a file without pairs is one.
pub fn preferences(path: &Path, task: &TaskConfig) -> Result<Vec<PreferencePair>, DataError> {
    let wanted = "write one JSON object a line with `prompt`, `chosen` and `rejected`";
    conversations(path, task, (&PAIR, "pairs of replies", wanted), pair)
}

/// Reads a pair.
pub(super) fn pair(row: &ConversationRow<'_>, location: String) -> Result<PreferencePair, String> {
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
    Ok(PreferencePair { prompt: row.chat(prompt)?, chosen, rejected, location })
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
