//! OpenAI's protocol: requests, messages, tool calls and the text of replies.

pub(crate) mod answer;
mod calls;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod fields;
pub(crate) mod generate;
mod ids;
mod limits;
mod messages;
pub(crate) mod models;
mod options;
pub(crate) mod origin;
pub(crate) mod request;
pub(crate) mod requests;
pub(crate) mod responses;
mod structured;
mod text;
mod tokens;
pub(crate) mod writer;

pub(crate) use calls::{ToolChoice, Tools};
pub(crate) use fields::{Fields, token_ids};
pub(crate) use ids::{new_id, now};
pub(crate) use messages::{Messages, flat};
pub(crate) use options::{
    Choices, Echoed, EndFields, MaxTokens, ReportedTokens, StopTexts, Streaming, too_many_bytes,
    too_many_tokens,
};
pub(crate) use request::{Nested, request};
pub use structured::Structured;
#[cfg(feature = "grammar")]
pub(crate) use structured::StructuredForm;
pub(crate) use structured::{WantedForm, with_system};
pub(crate) use text::{ReplyPart, ReplyText, ReplyTextShape};
pub(crate) use tokens::{TextLogprobsWriter, TokenForm, chat_logprobs, token_text};

/// Hint of the error about an unknown path.
pub(crate) const CHAT_PATH: &str = "chat completions are at `/v1/chat/completions`";

#[cfg(test)]
mod tests;
