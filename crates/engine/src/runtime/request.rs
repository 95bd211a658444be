//! Requests for completions, and their results.

use std::num::NonZeroUsize;
use std::sync::Arc;

use serde::Serialize;

use crate::message::{Finish, Routes};
use crate::runtime::{Grammar, Watch};
use crate::settings::Settings;

/// Largest number of tokens of a reply.
pub const REPLY: u64 = 1 << 24;

/// A request for a completion.
#[derive(Debug, Clone)]
pub struct Request {
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// Sampling parameters; `max_tokens` is limited to the rest of the context.
    pub sampling: Arc<Sampling>,
    /// Seed of this request: the same prompt, sampling, weights and seed give the same completion.
    pub seed: u64,
    /// Receiver of its steps while it runs. The completion is the same with and without.
    pub watch: Option<Watch>,
    /// Form that the completion must have.
    pub grammar: Option<Arc<dyn Grammar>>,
}

impl Request {
    /// Creates a request that nobody watches, for a completion of any form.
    pub fn new(prompt: Vec<u32>, sampling: Arc<Sampling>, seed: u64) -> Self {
        Self { prompt, sampling, seed, watch: None, grammar: None }
    }
}

/// Sampling of replies: `[sampling]` and `[agents.*.sampling]` of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Settings)]
#[settings(partial = "SamplingConfig", level = "agent", crate = crate)]
pub struct Sampling {
    /// Divisor of the logits; 0 is greedy; training on sampled replies needs a value above 0.
    #[setting(default = 1.0, range = 0.0..)]
    pub temperature: f32,
    /// Number of most likely tokens that are kept; 0 keeps all; training on sampled replies needs 0.
    #[setting(default = 0)]
    pub top_k: u32,
    /// Nucleus sampling: smallest set of most likely tokens with this total probability; 1 keeps all; training on sampled replies needs 1.
    #[setting(default = 1.0, range = above(0.0)..=1.0)]
    pub top_p: f32,
    /// Minimum probability of a token, relative to that of the most likely token; 0 keeps all; training on sampled replies needs 0.
    #[setting(default = 0.0, range = 0.0..=1.0)]
    pub min_p: f32,
    /// Penalty on tokens that the prompt or the reply already contains: a positive logit is divided by this number, a
    /// negative logit multiplied by it; 1 disables it; training on sampled replies needs 1.
    #[setting(default = 1.0, range = above(0.0)..)]
    pub repetition_penalty: f32,
    /// Maximum number of tokens of a reply.
    #[setting(default = 256, written = NonZeroUsize, range = 1..=REPLY)]
    pub max_tokens: usize,
    /// Strings that end a reply, in addition to the model's stop ids; the reply contains the string.
    pub stop: Vec<String>,
    /// Token ids that end a reply, in addition to the model's.
    pub stop_ids: Vec<u32>,
}

/// Completion of a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Completion {
    /// Sampled ids, stop id included.
    pub ids: Vec<u32>,
    /// Log-probability of each id, under the temperature-scaled, unfiltered softmax.
    pub logprobs: Vec<f32>,
    /// Number of updates of the policy before this completion.
    pub version: u64,
    /// Reason why it ended.
    pub finish: Finish,
    /// Experts of all tokens of prompt and completion but the last, if the sampler returned them.
    pub routes: Option<Routes>,
}

impl Completion {
    /// Creates the completion of a generator other than a worker group.
    pub fn new(ids: Vec<u32>, logprobs: Vec<f32>, version: u64, finish: Finish) -> Self {
        Self { ids, logprobs, version, finish, routes: None }
    }

    /// Returns the completion with the experts of all tokens of prompt and completion but the last.
    #[must_use]
    pub fn with_routes(self, routes: Option<Routes>) -> Self {
        Self { routes, ..self }
    }
}
