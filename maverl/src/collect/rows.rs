//! Rows of one turn.

use serde_json::{Value, json};

use crate::collect::example::{CollectedExample, CollectedTask};
use crate::trajectory::{Message, Role};

/// A row of a data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Columns, of which `maverl` has the origin of the row.
    pub columns: Value,
    /// Replies of the row, for the removal of duplicates.
    pub(super) replies: String,
    pub(super) task: CollectedTask,
    pub(super) seat: String,
    pub(super) label: Option<bool>,
    /// True if the reply was asked for by a further instruction.
    pub(super) asked: bool,
    /// Key of the question, which decides the split.
    pub(super) question: String,
}

/// Returns the message of a reply.
pub(super) fn reply(text: &str) -> Message {
    Message { role: Role::Assistant, content: text.to_owned() }
}

/// Creates a row of an example. Tools that the agent could call are a column, as TRL reads them.
pub(super) fn row(
    example: &CollectedExample<'_>,
    mut columns: Value,
    replies: String,
    label: Option<bool>,
) -> Row {
    if !example.turn.tools.is_empty() {
        columns["tools"] = example.turn.tools.clone().into();
    }
    columns["maverl"] = example.origin();
    Row {
        columns,
        replies,
        task: example.task(),
        seat: example.turn.seat.to_string(),
        label,
        asked: example.of.asked.is_some(),
        question: example.question.clone(),
    }
}

/// Returns the row for supervised training.
pub(super) fn sft(example: &CollectedExample<'_>) -> Row {
    let turn = example.turn;
    let mut messages = example.prompt();
    messages.push(reply(&turn.reply));
    row(example, json!({"messages": messages}), turn.reply.clone(), None)
}

/// Returns the row for the training of a verifier. The label is that of the episode, or is true if the turn's part of the reward
/// of a given name is above 0.
pub(super) fn verifier(example: &CollectedExample<'_>, part: Option<&str>) -> Row {
    let turn = example.turn;
    let label = part.map_or(example.solved, |part| example.part(part) > 0.0);
    let columns = json!({
        "prompt": example.prompt(),
        "completion": [reply(&turn.reply)],
        "label": label,
        "score": example.reward,
    });
    row(example, columns, turn.reply.clone(), Some(label))
}
