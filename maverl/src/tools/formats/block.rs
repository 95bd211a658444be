//! Calls at the beginning of a text, and what all readers of calls need.

use crate::tools::{Call, CallError};

/// Calls at the beginning of a text.
pub(super) struct CallBlock {
    /// Its calls, each parsed or with its error; none if the text begins with no call.
    pub(super) calls: Vec<Result<Call, CallError>>,
    /// Length in bytes of the text that was read.
    pub(super) len: usize,
}

impl CallBlock {
    /// Returns a block with a call that cannot be read.
    pub(super) fn malformed(what: impl Into<String>, len: usize) -> Self {
        Self { calls: vec![Err(CallError::Malformed(what.into()))], len }
    }
}

/// Returns the position of the first opening. One pass: each place of their common first character is compared.
pub(super) fn find_opening(text: &str, openings: &[&str]) -> Option<usize> {
    let first = openings.first()?.chars().next()?;
    let mut places = text.match_indices(first).map(|(at, _)| at);
    places.find(|&at| openings.iter().any(|opening| text[at..].starts_with(opening)))
}

/// Returns true for a text that can be the name of a tool: one word without brackets and quotes.
pub(super) fn is_name(text: &str) -> bool {
    let other = |c: char| c.is_whitespace() || "<>{}()[]\"'`".contains(c);
    !text.is_empty() && !text.contains(other)
}

/// Returns the start of a text, for an error.
pub(super) fn text_start(text: &str) -> String {
    let text: String = text.trim().chars().take(200).collect();
    format!("{text:?}")
}
