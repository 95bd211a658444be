//! Rows of one turn.

use serde_json::{Value, json};

use super::Row;
use super::example::Example;
use crate::trajectory::{Message, Role};

/// Returns the message of a reply.
pub(super) fn reply(text: &str) -> Message {
    Message { role: Role::Assistant, content: text.to_owned() }
}

/// Creates a row of an example. Tools that the agent could call are a column, as TRL reads them.
pub(super) fn row(
    example: &Example<'_>,
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
        question: example.question.clone(),
    }
}

/// Returns the row for supervised training.
pub(super) fn sft(example: &Example<'_>) -> Row {
    let turn = example.turn;
    let mut messages = turn.prompt.clone();
    messages.push(reply(&turn.reply));
    row(example, json!({"messages": messages}), turn.reply.clone(), None)
}

/// Returns the row for the training of a verifier.
pub(super) fn verifier(example: &Example<'_>) -> Row {
    let turn = example.turn;
    let columns = json!({
        "prompt": turn.prompt,
        "completion": [reply(&turn.reply)],
        "label": example.solved,
        "score": example.reward,
    });
    row(example, columns, turn.reply.clone(), Some(example.solved))
}
