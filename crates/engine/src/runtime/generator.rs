//! Generators instead of a worker group, such as inference servers, and the weights that they get.

use std::pin::Pin;
use std::sync::Arc;

use crate::runtime::{Completion, Request, RuntimeError};

/// Completion that is being generated.
pub type Generating<'a> =
    Pin<Box<dyn Future<Output = Result<Completion, RuntimeError>> + Send + 'a>>;

/// A generator of completions in the place of a policy's worker group.
pub trait Generator: Send + Sync {
    /// Completes a prompt. Log-probs are those from which ids were sampled.
    fn generate(&self, request: Request) -> Generating<'_>;

    /// Returns the number of tokens sampled so far.
    fn sampled(&self) -> u64;

    /// Returns a generator that keeps the weights that this one has now; `None` if later ones replace them everywhere.
    fn pinned(&self) -> Option<Arc<dyn Generator>> {
        None
    }
}

/// Weights that are written for a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    /// Those of the policy.
    Current,
    /// Those of the policy, each moved by a constant amount up or down.
    Perturbed,
}
