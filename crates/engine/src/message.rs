//! Messages of a conversation: plain data that models read and records keep.

mod routes;

use serde::{Deserialize, Serialize};

pub use routes::Routes;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Role of the sender.
    pub role: Role,
    /// Text of the message.
    pub content: String,
}

/// Role of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// Prompt of the agent.
    User,
    /// Reply of the agent.
    Assistant,
    /// Result of a call.
    Tool,
}

/// Reason that a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model sampled a stop id, or a stop string appeared.
    Stop,
    /// `max_tokens` was reached, or the context was full: the reply is truncated.
    Length,
}
