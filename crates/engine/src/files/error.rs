//! Errors of models.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use maverl_hub::{HubError, HubErrorKind};

/// Error of reading, running or writing a model: the place, what was found, what is needed.
///
/// The message contains the message of the source.
#[derive(Debug, Clone)]
pub struct ModelError {
    kind: ModelErrorKind,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Kind of a [`ModelError`], by what a caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// A model, a revision or a file does not exist: give another path.
    NotFound,
    /// The operating system could not read or write a file: make room or permit it. The source is an
    /// [`io::Error`].
    Io,
    /// The hub refused, or cannot be reached: set a token, or try again later.
    Hub,
    /// A file is damaged, or contains a model that is not supported: replace it.
    Invalid,
    /// Weights, an adapter or a head do not have the shape of the model: use those of this model.
    Mismatch,
    /// An argument is not valid for the model, such as an id outside the vocabulary: correct the call.
    Argument,
    /// A device is out of memory, or failed: plan less memory, or use another device.
    Device,
    /// A number is not finite, or differs by more than rounding: the weights are unusable.
    Numeric,
}

impl ModelError {
    /// Creates an error without a source.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Creates an error of an argument that is not valid.
    pub(crate) fn wrong_argument(message: impl Into<String>) -> Self {
        Self::new(ModelErrorKind::Argument, message)
    }

    /// Creates an error of weights that do not have the shape of the model.
    pub(crate) fn no_match(message: impl Into<String>) -> Self {
        Self::new(ModelErrorKind::Mismatch, message)
    }

    /// Creates an error of the operating system.
    pub fn io(message: impl Into<String>, source: io::Error) -> Self {
        Self::new(ModelErrorKind::Io, message).with_source(source)
    }

    /// Creates an error of the operating system with a file or directory. `verb` is what cannot be done with it.
    pub(crate) fn cannot_do(verb: &str, path: &Path, source: io::Error) -> Self {
        Self::io(format!("cannot {verb} {}: {source}", path.display()), source)
    }

    /// Creates an error of the operating system whose message begins with a path.
    pub(crate) fn at_path(path: &Path, source: io::Error) -> Self {
        Self::io(format!("{}: {source}", path.display()), source)
    }

    /// Creates an error of content that is not valid, whose message begins with its place.
    pub(crate) fn invalid_at(
        place: impl fmt::Display,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self::new(ModelErrorKind::Invalid, format!("{place}: {source}")).with_source(source)
    }

    /// Sets the source.
    #[must_use]
    pub fn with_source(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// Returns the kind.
    pub fn kind(&self) -> ModelErrorKind {
        self.kind
    }
}

/// Errors of the hub have the same message and source.
impl From<HubError> for ModelError {
    fn from(error: HubError) -> Self {
        let kind = match error.kind {
            HubErrorKind::NotFound => ModelErrorKind::NotFound,
            HubErrorKind::Cache => ModelErrorKind::Io,
            HubErrorKind::Argument => ModelErrorKind::Argument,
            _ => ModelErrorKind::Hub,
        };
        Self { kind, message: error.message, source: error.source }
    }
}

/// Errors are equal if kind and message are.
impl PartialEq for ModelError {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.message) == (other.kind, &other.message)
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ModelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// Problems in one line; so many that nobody would read them are counted.
pub(crate) fn list_problems(problems: &[String]) -> String {
    const MOST: usize = 8;
    let text = problems[..problems.len().min(MOST)].join("; ");
    match problems.len().saturating_sub(MOST) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::files::{ModelFiles, ModelSource};
    use crate::text::Tokenizer;

    #[test]
    fn an_error_keeps_its_message_its_kind_and_its_source() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = ModelError::io(format!("cannot write a: {denied}"), denied);
        assert_eq!(error.kind(), ModelErrorKind::Io);
        assert!(error.to_string().starts_with("cannot write a: "));
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>()).unwrap();
        assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn kinds_tell_a_missing_model_from_a_damaged_one() {
        let dir = tempfile::tempdir().unwrap();
        let kind = |path: &std::path::Path| {
            let files = ModelFiles::new(&ModelSource::Directory(path.to_owned()));
            Tokenizer::load(&files).err().map(|error| error.kind())
        };
        assert_eq!(kind(&dir.path().join("none")), Some(ModelErrorKind::NotFound));
        std::fs::write(dir.path().join("tokenizer.json"), "{").unwrap();
        assert_eq!(kind(dir.path()), Some(ModelErrorKind::Invalid));
        let named = ModelSource::parse("builtin:none").unwrap_err();
        assert_eq!(named.kind(), ModelErrorKind::NotFound);
    }
}
