//! OpenAI's protocol: requests, messages, tool calls and the text of replies.

mod calls;
mod fields;
mod ids;
mod messages;
mod options;
pub(in crate::serve) mod responses;
mod structured;
mod text;
mod tokens;

pub(in crate::serve) use calls::{ToolChoice, Tools, call_id};
pub(in crate::serve) use fields::{Fields, token_ids};
pub(in crate::serve) use ids::{draw_seed, new_id, now};
pub(in crate::serve) use messages::{flat, messages};
pub(in crate::serve) use options::{Choices, Common, MaxTokens, Reported, Streaming};
#[cfg(feature = "grammar")]
pub(in crate::serve) use structured::Form;
pub use structured::Structured;
pub(in crate::serve) use structured::{Wanted, with_system};
pub(in crate::serve) use text::{Part, ReplyText, Shape};
pub(in crate::serve) use tokens::{TokenForm, chat_logprobs, text_logprobs, token_text};

/// Maximum number of messages of a request.
pub(in crate::serve) const MOST_MESSAGES: usize = 4096;
/// Maximum number of tools of a request.
pub(in crate::serve) const MOST_TOOLS: usize = 256;
/// Maximum number of choices of a request.
pub(in crate::serve) const MOST_CHOICES: usize = 16;
/// Maximum number of stop strings of a request.
pub(in crate::serve) const MOST_STOPS: usize = 16;
/// Maximum number of the most probable tokens of a step.
pub(in crate::serve) const MOST_TOP: usize = 20;
