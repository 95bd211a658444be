//! Reasons why a question about a run has no answer.

use std::fmt;

/// Kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    /// The question is not one that can be asked.
    Invalid,
    /// The run does not have it.
    Missing,
    /// The answer is larger than one may be.
    TooLarge,
    /// A file of the run cannot be read.
    Unreadable,
    /// Too much is being done at once.
    Busy,
}

/// Reason why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportProblem {
    pub(crate) kind: ProblemKind,
    pub(crate) reason: String,
}

impl ReportProblem {
    /// Creates the problem of a question that cannot be asked.
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self { kind: ProblemKind::Invalid, reason: reason.into() }
    }

    /// Creates the problem of something that the run does not have.
    pub(crate) fn missing(reason: impl Into<String>) -> Self {
        Self { kind: ProblemKind::Missing, reason: reason.into() }
    }

    /// Creates the problem of a file that cannot be read.
    pub(crate) fn unreadable(error: impl fmt::Display) -> Self {
        Self { kind: ProblemKind::Unreadable, reason: error.to_string() }
    }

    /// Creates the problem of too much that is being done.
    pub(crate) fn busy(reason: impl Into<String>) -> Self {
        Self { kind: ProblemKind::Busy, reason: reason.into() }
    }

    /// Creates the problem of an answer that is too large.
    pub(crate) fn too_large(reason: impl Into<String>) -> Self {
        Self { kind: ProblemKind::TooLarge, reason: reason.into() }
    }
}
