//! Errors of the hub and its cache.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Error of finding, downloading or uploading a model. The message contains the message of the source.
#[derive(Debug, Clone)]
pub struct HubError {
    /// Kind, by what a caller can do about it.
    pub kind: HubErrorKind,
    /// The place, what was found, what is needed.
    pub message: String,
    /// Cause.
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Kind of a [`HubError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubErrorKind {
    /// A model, a revision or a file does not exist.
    NotFound,
    /// The cache cannot be read or written.
    Cache,
    /// The hub refused, or cannot be reached.
    Refused,
    /// A name or an environment variable has no meaning.
    Argument,
}

impl HubError {
    /// Creates an error without a source.
    pub(crate) fn new(kind: HubErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Creates an error of the cache.
    pub(crate) fn io(message: impl Into<String>, source: io::Error) -> Self {
        Self::new(HubErrorKind::Cache, message).with_source(source)
    }

    /// Sets the source.
    pub(crate) fn with_source(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for HubError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
