//! Anthropic's Messages API: its requests become requests for chat completions, and its answers are made of theirs.

mod answer;
mod content;
mod events;
mod located;
mod models;
mod request;
mod system;

pub(crate) use answer::{MessageAnswer, MessageOrigin, StopReason, TokenCount};
pub(crate) use events::{EventWriter, fail_stream};
pub(crate) use models::{MessageModel, MessageModels, asks_for_models};
pub(crate) use request::{as_chat, as_prompt};
pub(crate) use system::{has_later_system, without_later_system};

/// First part of the ids of answers.
pub(crate) const MESSAGE_PREFIX: &str = "msg";

#[cfg(test)]
pub(crate) mod tests;
