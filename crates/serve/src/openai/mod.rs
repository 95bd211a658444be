//! OpenAI's protocol: requests, messages, tool calls and the text of replies.

mod calls;
mod fields;
mod ids;
mod messages;
mod options;
pub(crate) mod responses;
mod structured;
mod text;
mod tokens;

pub(crate) use calls::{ToolChoice, Tools, call_id};
#[cfg(feature = "grammar")]
pub(crate) use fields::count_values;
pub(crate) use fields::{Fields, token_ids};
pub(crate) use ids::{draw_seed, new_id, now};
pub(crate) use messages::{flat, messages};
pub(crate) use options::{
    Choices, Common, MaxTokens, Reported, Streaming, too_many_bytes, too_many_tokens,
};
#[cfg(feature = "grammar")]
pub(crate) use structured::Form;
pub use structured::Structured;
pub(crate) use structured::{Wanted, with_system};
pub(crate) use text::{Part, ReplyText, Shape};
pub(crate) use tokens::{TextLogprobs, TokenForm, chat_logprobs, token_text};

/// Maximum number of messages of a request.
pub(crate) const MOST_MESSAGES: usize = 4096;
/// Maximum number of tools of a request.
pub(crate) const MOST_TOOLS: usize = 256;
/// Maximum number of choices of a request.
pub(crate) const MOST_CHOICES: usize = 16;
/// Maximum number of tokens that an answer lists, the most probable ones included.
pub(crate) const MOST_LISTED: usize = 1 << 20;
/// Maximum number of values in the JSON of a request, and of names of its objects.
pub(crate) const MOST_VALUES: usize = 1 << 20;
/// Maximum number of stop strings of a request.
pub(crate) const MOST_STOPS: usize = 16;
/// Maximum size of a stop string in bytes. After each token, as many of the last tokens are decoded.
pub(crate) const MOST_STOP_BYTES: usize = 512;
/// Maximum number of stop ids of a request. Each token is compared with all of them.
pub(crate) const MOST_STOP_IDS: usize = 1024;
/// Maximum number of the most probable tokens of a step.
pub(crate) const MOST_TOP: usize = 20;
