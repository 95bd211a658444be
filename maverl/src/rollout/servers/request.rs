//! Requests as servers get them, and what can be wrong with an answer.

use std::fmt;
use std::time::Duration;

use crate::client::AttemptFailure;
use crate::runtime::Sampling;

/// Number of characters of a list of problems that a message shows of each.
const SHOWN: usize = 300;

/// A request for a completion, as a server gets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'r> {
    pub(super) prompt: &'r [u32],
    pub(super) sampling: &'r Sampling,
    /// Maximum number of tokens, within the context.
    pub(super) max_tokens: usize,
    pub(super) seed: u64,
    /// All token ids that end a reply.
    pub(super) stop_ids: &'r [u32],
    pub(super) weights: &'r ServedWeights,
    /// Name of the base on the servers.
    pub(super) base: &'r str,
    /// True if the experts of the tokens are asked for.
    pub(super) routes: bool,
}

/// Weights of a policy as servers know them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ServedWeights {
    /// Name of the published weights; empty for the base as the server started with it.
    pub(super) label: String,
    /// True if they are an adapter.
    pub(super) adapter: bool,
    /// Directory that holds them, an absolute path.
    pub(super) dir: String,
    /// Number of updates of the policy.
    pub(super) version: u64,
}

impl ServedWeights {
    /// Returns true if they are all weights of the model.
    pub(super) fn is_whole(&self) -> bool {
        !self.adapter && !self.label.is_empty()
    }
}

/// Problem of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnswerProblem {
    /// Another attempt may go well: the server is busy, failing, unreachable or shutting down.
    Transient(String, Duration),
    /// The server does not have the weights, as after a restart.
    Missing(String),
    /// The answer is not what was asked for.
    Wrong(String),
}

impl fmt::Display for AnswerProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Transient(text, _) | Self::Missing(text) | Self::Wrong(text)) = self;
        f.write_str(text)
    }
}

impl AnswerProblem {
    pub(super) fn transient(text: impl Into<String>) -> Self {
        Self::Transient(text.into(), Duration::ZERO)
    }
}

impl From<AttemptFailure> for AnswerProblem {
    fn from(failure: AttemptFailure) -> Self {
        match failure {
            AttemptFailure::Transient(reason, least) => Self::Transient(reason, least),
            AttemptFailure::Refused(_, reason) | AttemptFailure::Final(reason) => {
                Self::Wrong(reason)
            }
        }
    }
}

/// Returns the beginning of a message.
pub(super) fn shorten_message(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
