//! Calls at the beginning of a text, and what all readers of calls need.

use crate::tools::{Call, CallError};

/// A part of an answer: text, or a call as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct CallSegment<'a> {
    /// The part as it is in the answer.
    pub text: &'a str,
    /// Its call, or the error of the call; none for text.
    pub call: Option<Result<Call, CallError>>,
}

/// A call in a block.
pub(super) struct BlockCall {
    /// The call, or its error.
    pub(super) call: Result<Call, CallError>,
    /// Position in the block at which the call begins.
    pub(super) start: usize,
}

/// Calls at the beginning of a text.
pub(super) struct CallBlock {
    /// Its calls, each by itself; none if the text begins with no call.
    pub(super) calls: Vec<BlockCall>,
    /// Length in bytes of the text that was read.
    pub(super) len: usize,
}

impl CallBlock {
    /// Returns a block with one call.
    pub(super) fn single(call: Result<Call, CallError>, len: usize) -> Self {
        Self { calls: vec![BlockCall { call, start: 0 }], len }
    }

    /// Returns a block with a call that cannot be read.
    pub(super) fn malformed(what: impl Into<String>, len: usize) -> Self {
        Self::single(Err(CallError::Malformed(what.into())), len)
    }

    /// Returns a part for each call, up to the next one. What is before the first call belongs to it.
    pub(super) fn segments(self, text: &str) -> Vec<CallSegment<'_>> {
        let starts = self.calls.iter().skip(1).map(|call| call.start);
        let ends: Vec<usize> = starts.chain([self.len]).collect();
        let mut from = 0;
        let segments = self.calls.into_iter().zip(ends).map(|(BlockCall { call, .. }, end)| {
            let text = &text[from..end.max(from)];
            from += text.len();
            CallSegment { text, call: Some(call) }
        });
        segments.collect()
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
