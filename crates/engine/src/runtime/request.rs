//! Requests for completions, and their results.

use std::sync::Arc;

use serde::Serialize;

use crate::message::Finish;
use crate::runtime::{Grammar, Watch};

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

/// Sampling parameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sampling {
    /// Divisor of the logits; 0 is greedy.
    pub temperature: f32,
    /// Keep the k likeliest tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of likeliest tokens with this mass.
    pub top_p: f32,
    /// Drop tokens less likely than this times the likeliest.
    pub min_p: f32,
    /// Divisor of positive, and factor of negative logits of tokens that occurred before; 1 is off.
    pub repetition_penalty: f32,
    /// Maximum number of tokens of a completion.
    pub max_tokens: usize,
    /// Texts that end a completion.
    pub stop: Vec<String>,
    /// Token ids that end a completion, beside the model's own.
    pub stop_ids: Vec<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_tokens: 256,
            stop: Vec::new(),
            stop_ids: Vec::new(),
        }
    }
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
}

impl Completion {
    /// Creates the completion of a generator other than a worker group.
    pub fn new(ids: Vec<u32>, logprobs: Vec<f32>, version: u64, finish: Finish) -> Self {
        Self { ids, logprobs, version, finish }
    }
}
