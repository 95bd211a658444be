//! Agents: a typed input, a prompt rendered from it, and a typed reply parsed from text.

mod prompt;
mod replies;

pub use prompt::{Prompt, PromptForm};
pub use replies::{Answer, Approval};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::trajectory::{Message, Role};

/// A role: its prompt, and the parser of its replies. Usually implemented by `#[agent]`; by hand if a prompt needs
/// logic.
///
/// `prompt` and `parse` are pure, so an agent can be tested without a model.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an agent",
    label = "not declared with `#[agent]`",
    note = "add `#[agent(Input -> Output)]` above the definition of `{Self}`, or write `impl Agent for {Self}`"
)]
pub trait Agent: Send + Sync + 'static {
    /// Type of its input.
    type Input: Input;
    /// Type of its parsed reply.
    type Output: Reply;

    /// Renders the first prompt of a conversation (or, in a longer conversation, the next user message) for `input`.
    fn prompt(&self, input: &Self::Input) -> Prompt;

    /// Parses a reply. A malformed reply is an error of that turn, never a default value.
    ///
    /// # Errors
    ///
    /// If the reply does not follow [`Reply::format`].
    fn parse(&self, reply: &str) -> Result<Self::Output, ReplyError> {
        Self::Output::parse(reply)
    }
}

/// Registered name of an agent; implemented by `#[agent]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no agent name",
    label = "not declared with `#[agent]`",
    note = "add `#[agent(Input -> Output)]` above the definition of `{Self}`"
)]
pub trait AgentName: Agent {
    /// `team/role`, in snake_case.
    const NAME: &'static str;
    /// First line of the type's documentation.
    const SUMMARY: &'static str;
}

/// Input of an agent; derive it for a struct with named fields.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be shown in a prompt",
    label = "not an agent input",
    note = "add `#[derive(Input)]` to `{Self}`"
)]
pub trait Input: Send + Sync {
    /// Names that a prompt may mention as `{{ name }}`, in order.
    const FIELDS: &'static [&'static str];
    /// Fields of [`Self::FIELDS`] that are observations (`#[input(observation)]`): text of the environment that may be
    /// shortened when `rollout.overflow = "truncate_observation"`.
    const OBSERVATIONS: &'static [&'static str];

    /// Returns the text that replaces `{{ FIELDS[field] }}`.
    fn show(&self, field: usize) -> String;
}

/// Formatting of a value in a prompt.
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` cannot be shown in a prompt",
    note = "implement `maverl::Show` for `{Self}`, or use `String`, a number, `bool`, `Option<_>` or `Vec<_>` of those"
)]
pub trait Show {
    /// Returns the text.
    fn show(&self) -> String;
}

macro_rules! show_by_display {
    ($($t:ty),*) => {$(
        impl Show for $t {
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
show_by_display!(
    String, str, bool, char, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32,
    f64
);

impl<T: Show + ?Sized> Show for &T {
    fn show(&self) -> String {
        (**self).show()
    }
}

impl<T: Show + ?Sized> Show for Box<T> {
    fn show(&self) -> String {
        (**self).show()
    }
}

impl<T: Show + ?Sized> Show for std::sync::Arc<T> {
    fn show(&self) -> String {
        (**self).show()
    }
}

/// `(none)` for `None`.
impl<T: Show> Show for Option<T> {
    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "(none)".to_owned(), Show::show)
    }
}

/// One item per line; `(none)` for an empty list.
impl<T: Show> Show for Vec<T> {
    fn show(&self) -> String {
        if self.is_empty() {
            return "(none)".to_owned();
        }
        self.iter().map(Show::show).collect::<Vec<_>>().join("\n")
    }
}

/// The role and the text, as `User: text`.
impl Show for Message {
    fn show(&self) -> String {
        let role = match self.role {
            Role::System => "System",
            Role::User => "User",
            Role::Assistant => "Assistant",
            Role::Tool => "Tool",
        };
        format!("{role}: {}", self.content)
    }
}

/// Type of a parsed reply. The derive generates the parser *and* the sentence that describes the format to the model.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from a reply",
    label = "not an agent output",
    note = "add `#[derive(Reply)]` and `#[reply(tag = \"..\")]` to `{Self}`, or use `String` for the whole reply"
)]
pub trait Reply: Sized + Send + 'static {
    /// True if replies have a format; the prompt must then contain `{{ reply_format }}`.
    const STRUCTURED: bool;

    /// Returns the sentence that replaces `{{ reply_format }}`.
    fn format() -> String;

    /// Parses a reply.
    ///
    /// # Errors
    ///
    /// If the reply does not follow [`Self::format`].
    fn parse(reply: &str) -> Result<Self, ReplyError>;
}

/// The whole reply, trimmed; an empty one is an error.
impl Reply for String {
    const STRUCTURED: bool = false;

    fn format() -> String {
        String::new()
    }

    fn parse(reply: &str) -> Result<Self, ReplyError> {
        let reply = reply.trim();
        if reply.is_empty() { Err(ReplyError::Empty) } else { Ok(reply.to_owned()) }
    }
}

/// Reason that a reply could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The reply is empty.
    #[error("the reply is empty")]
    Empty,
    /// The reply was truncated.
    #[error("the reply was cut off after {tokens} tokens")]
    Truncated {
        /// Number of sampled tokens.
        tokens: usize,
    },
    /// A block is missing.
    #[error("no <{tag}>...</{tag}> block")]
    Missing {
        /// Tag of the block.
        tag: String,
    },
    /// A block occurs more than once.
    #[error("{count} <{tag}> blocks where exactly one is asked for")]
    Repeated {
        /// Tag of the block.
        tag: String,
        /// Number of occurrences.
        count: usize,
    },
    /// Tags are not closed, closed before they are opened, or overlap.
    #[error("the <{tag}> block is not properly opened and closed")]
    Crossed {
        /// Tag of the block.
        tag: String,
    },
    /// The content of a block is none of the expected words.
    #[error("<{tag}> holds {found:?}; expected one of {expected:?}")]
    Unexpected {
        /// Tag of the block.
        tag: String,
        /// Content of the block.
        found: String,
        /// Expected words.
        expected: Vec<String>,
    },
    /// The content of a block could not be parsed as a value.
    #[error("<{tag}> holds {found:?}: {message}")]
    Value {
        /// Tag of the block.
        tag: String,
        /// Content of the block.
        found: String,
        /// Description of the problem.
        message: String,
    },
    /// An error of a hand-written parser.
    #[error("{0}")]
    Other(String),
}

/// Returns the trimmed content of the only `<tag>...</tag>` block of a reply.
///
/// Tags are matched case-insensitively. None, several, unclosed or crossed tags are errors.
///
/// ```
/// use maverl::agent::tag;
///
/// assert_eq!(tag("so <Search> rust </search>.", "search").unwrap(), "rust");
/// assert!(tag("</search>rust<search>", "search").is_err());
/// ```
///
/// # Errors
///
/// [`ReplyError::Missing`], [`ReplyError::Repeated`] or [`ReplyError::Crossed`].
pub fn tag<'a>(reply: &'a str, tag: &str) -> Result<&'a str, ReplyError> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let lower = reply.to_ascii_lowercase();
    let opens: Vec<usize> =
        lower.match_indices(&open.to_ascii_lowercase()).map(|(at, _)| at).collect();
    let closes: Vec<usize> =
        lower.match_indices(&close.to_ascii_lowercase()).map(|(at, _)| at).collect();
    match (opens.as_slice(), closes.as_slice()) {
        ([], []) => Err(ReplyError::Missing { tag: tag.to_owned() }),
        ([start], [end]) if start + open.len() <= *end => {
            Ok(reply[start + open.len()..*end].trim())
        }
        ([_] | [], [_] | []) => Err(ReplyError::Crossed { tag: tag.to_owned() }),
        _ => {
            Err(ReplyError::Repeated { tag: tag.to_owned(), count: opens.len().max(closes.len()) })
        }
    }
}

/// Reason that `team.ask` did not return the agent's output.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AskError {
    /// The reply was malformed or truncated. Unless the orchestra handles it, the episode ends *scored*: with the score
    /// of a missing answer, plus the invalid-reply penalty on that turn.
    Reply(ReplyError),
    /// A fault that the policy did not cause: the episode ends *unscored*.
    Fault(crate::trajectory::Fault),
}

impl AskError {
    /// Returns the output, or `None` for a malformed reply: for an orchestra that continues without it. The turn keeps
    /// its penalty.
    ///
    /// # Errors
    ///
    /// A fault, after which no orchestra continues.
    pub fn or_none<T>(said: Result<T, Self>) -> Result<Option<T>, Self> {
        match said {
            Ok(said) => Ok(Some(said)),
            Err(Self::Reply(_)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(error) => write!(f, "malformed reply: {error}"),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for AskError {}

impl From<crate::trajectory::Fault> for AskError {
    fn from(fault: crate::trajectory::Fault) -> Self {
        Self::Fault(fault)
    }
}
