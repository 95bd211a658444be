//! Generators instead of a worker group, such as inference servers, and the weights that they get.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use crate::runtime::worker::Member;
use crate::runtime::{Completion, Policy, Request, RuntimeError};

/// Completion that is being generated.
pub type Generating<'a> =
    Pin<Box<dyn Future<Output = Result<Completion, RuntimeError>> + Send + 'a>>;

/// A generator of completions in the place of a policy's worker group.
pub trait Generator: Send + Sync {
    /// Completes a prompt. Log-probs are those from which ids were sampled.
    fn generate(&self, request: Request) -> Generating<'_>;

    /// Returns the number of tokens sampled so far.
    fn sampled(&self) -> u64;
}

/// Weights that are written for a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    /// Those of the policy.
    Current,
    /// Those of the policy, each moved by a constant amount up or down.
    Perturbed,
}

impl Policy {
    /// Returns the policy with another generator. Updates, log-probs and values stay with the worker group.
    #[doc(hidden)]
    #[must_use]
    pub fn with_generator(&self, generator: Arc<dyn Generator>) -> Self {
        Self { generator: Some(generator), ..self.clone() }
    }

    /// Completes a prompt. Waits for admission (`runtime.max_requests`). Dropping the future cancels the request.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub async fn generate(&self, request: Request) -> Result<Completion, RuntimeError> {
        match &self.generator {
            Some(other) => other.generate(request).await,
            None => self.worker.queue.generate(self.slot, request).await,
        }
    }

    /// Returns the number of tokens sampled so far.
    #[doc(hidden)]
    pub fn sampled(&self) -> u64 {
        self.generator.as_ref().map_or_else(|| self.work().decoded, |other| other.sampled())
    }

    /// Returns the number of updates. A barrier (RT-1).
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    #[doc(hidden)]
    pub async fn version(&self) -> Result<u64, RuntimeError> {
        let job = |member: &mut Member| Ok(member.version());
        self.worker.queue.at_barrier(self.slot, job).await
    }

    /// Writes the weights alone into an existing directory: a Hugging Face model directory or, if the policy is an adapter,
    /// a PEFT directory.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    #[doc(hidden)]
    pub async fn publish(&self, dir: &Path) -> Result<(), RuntimeError> {
        self.write(dir, Published::Current).await
    }

    /// Writes weights that differ from those of the policy in every number, as [`Policy::publish`] does: a generator that
    /// uses them has clearly different log-probs.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    #[doc(hidden)]
    pub async fn publish_perturbed(&self, dir: &Path) -> Result<(), RuntimeError> {
        self.write(dir, Published::Perturbed).await
    }

    async fn write(&self, dir: &Path, weights: Published) -> Result<(), RuntimeError> {
        let (dir, worker) = (dir.to_owned(), self.worker.name.to_string());
        let job = move |member: &mut Member| {
            let done = member.publish(&dir, weights);
            done.map_err(|source| RuntimeError::Model { worker, source })
        };
        self.worker.queue.at_barrier(self.slot, job).await
    }
}
