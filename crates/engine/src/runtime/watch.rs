//! Steps of a request while it runs: its begin, its tokens as they are sampled, and the log-probs of its prompt.
//!
//! The sampled tokens are the same with and without it. For log-probs of a prompt, the prompt is computed in full,
//! without cached blocks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maverl_kernels::sample::token_likelihood;
use tokio::sync::mpsc;

use crate::files::{ModelError, ModelErrorKind};

/// A token with its log-prob, under the temperature-scaled, unfiltered softmax.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Id of the token.
    pub id: u32,
    /// Its log-prob.
    pub logprob: f32,
    /// Ids and log-probs of the most probable tokens at its place, descending.
    pub top: Vec<(u32, f32)>,
}

/// A receiver of the steps of a request.
///
/// With `echo`, the steps of the prompt come first, from its second token on: the first has no log-prob. The sampled
/// tokens follow, one a step.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Sender of steps. Its queue holds at most the prompt and the longest completion, so that a slow receiver never
    /// stalls a batch; the receiver may be dropped.
    steps: Option<mpsc::UnboundedSender<Step>>,
    /// Number of the most probable tokens of a step.
    top_logprobs: usize,
    echo: bool,
    cached: Arc<AtomicUsize>,
    begin: Option<Begin>,
}

/// Function that is called when a request begins: when the first tokens of its prompt are in a forward pass.
#[derive(Clone)]
struct Begin(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Begin")
    }
}

impl Watch {
    /// Creates a watch with `top_logprobs` of the most probable tokens in each step, and its receiver.
    pub fn new(top_logprobs: usize, echo: bool) -> (Self, mpsc::UnboundedReceiver<Step>) {
        let (steps, received) = mpsc::unbounded_channel();
        let steps = Some(steps);
        (Self { steps, top_logprobs, echo, cached: Arc::default(), begin: None }, received)
    }

    /// Creates a watch that calls `begin` when the request begins, and receives no steps. It costs nothing per token.
    #[doc(hidden)]
    pub fn of_begin(begin: Arc<dyn Fn() + Send + Sync>) -> Self {
        let begin = Some(Begin(begin));
        Self { steps: None, top_logprobs: 0, echo: false, cached: Arc::default(), begin }
    }

    /// Returns true if steps are sent.
    pub(crate) fn sends_steps(&self) -> bool {
        self.steps.is_some()
    }

    /// Returns the number of prompt tokens that were in the cache when the request began.
    pub fn cached_tokens(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.cached)
    }

    /// Records the begin of the request, with the number of prompt tokens that were in the cache.
    pub(crate) fn began(&self, cached: usize) {
        self.cached.store(cached, Ordering::Relaxed);
        if let Some(Begin(begin)) = &self.begin {
            begin();
        }
    }

    /// Returns true if the steps of the prompt are sent too.
    pub(crate) fn echo(&self) -> bool {
        self.echo
    }

    /// Sends the step of a sampled token.
    pub(crate) fn send_sampled(&self, id: u32, logprob: f32, logits: &[f32], temperature: f32) {
        let Some(steps) = &self.steps else { return };
        let top = match self.top_logprobs {
            0 => Vec::new(),
            n => token_likelihood(logits, temperature, id, n)
                .map(|found| found.top)
                .unwrap_or_default(),
        };
        // The send fails only if nobody listens any more.
        let _ = steps.send(Step { id, logprob, top });
    }

    /// Sends the step of a token of the prompt.
    pub(crate) fn send_given(
        &self,
        id: u32,
        logits: &[f32],
        temperature: f32,
    ) -> Result<(), ModelError> {
        let found = token_likelihood(logits, temperature, id, self.top_logprobs)
            .map_err(|error| ModelError::new(ModelErrorKind::Numeric, error.to_string()))?;
        if let Some(steps) = &self.steps {
            let _ = steps.send(Step { id, logprob: found.logprob, top: found.top });
        }
        Ok(())
    }
}
