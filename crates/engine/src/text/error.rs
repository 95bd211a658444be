//! Errors of tokenizers and chat templates.

use std::fmt::Display;

/// Error of encoding a text or rendering a conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The files of the tokenizer are damaged or not supported.
    #[error("{0}")]
    Files(String),
    /// The tokenizer cannot encode a text.
    #[error("{0}")]
    Text(String),
    /// There is no such chat template, or it refuses the conversation.
    #[error("{0}")]
    Template(String),
}

impl TokenizerError {
    /// Adds a place in front of the message.
    pub(super) fn at(mut self, place: &str) -> Self {
        let (Self::Files(message) | Self::Text(message) | Self::Template(message)) = &mut self;
        *message = format!("{place}: {message}");
        self
    }

    /// Converts an error of the tokenizer's files.
    pub(super) fn of_files(error: impl Display) -> Self {
        Self::Files(error.to_string())
    }

    /// Converts an error of encoding.
    pub(super) fn of_encoding(error: impl Display) -> Self {
        Self::Text(format!("cannot encode: {error}"))
    }
}
