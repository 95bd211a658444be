//! Errors of tokenizers and chat templates.

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
    pub(super) fn at(self, place: &str) -> Self {
        let with = |message: String| format!("{place}: {message}");
        match self {
            Self::Files(message) => Self::Files(with(message)),
            Self::Text(message) => Self::Text(with(message)),
            Self::Template(message) => Self::Template(with(message)),
        }
    }
}
