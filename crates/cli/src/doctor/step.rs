//! A step of training with the smallest built-in model: its bits, and how long it takes.

use std::sync::Arc;
use std::time::Instant;

use futures::future::try_join_all;
use maverl::files::ModelSource;
use maverl::run_dir::FileHash;
use maverl::runtime::{
    Batch, Completion, Request, Row, Runtime, RuntimeOptions, Sampling, WorkerSpec,
};
use maverl::text::{ChatInput, ChatMessage};
use serde::Serialize;

use crate::{Failure, block_on};

/// Bits of the step on every machine on which maverl computes what it computes elsewhere.
pub(super) const BITS: &str = "39c9c61b5bf01a18";

/// Number of completions of the step.
const COMPLETIONS: u64 = 32;

/// Maximum number of tokens of a completion.
const TOKENS: usize = 24;

/// A step that was computed here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StepFacts {
    /// Beginning of the SHA-256 of the sampled ids, their log-probs, the loss and the norm of the gradient.
    pub(super) bits: String,
    /// Number of sampled tokens.
    pub(super) tokens: usize,
    /// Sampled tokens per second.
    pub(super) tokens_per_s: f64,
    /// Time of the update in seconds.
    pub(super) update_s: f64,
}

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepOutcome {
    /// The step was computed.
    Computed(StepFacts),
    /// The step failed with this error.
    Failed(String),
}

/// Loads `builtin:tiny`, samples completions of one prompt, and updates the weights once.
pub(super) fn compute_step() -> StepOutcome {
    let computed = block_on(async { step().await.map_err(|error| Failure(error.to_string())) });
    match computed {
        Ok(facts) => StepOutcome::Computed(facts),
        Err(Failure(error)) => StepOutcome::Failed(error),
    }
}

async fn step() -> Result<StepFacts, Box<dyn std::error::Error + Send + Sync>> {
    let worker = WorkerSpec::new("tiny", ModelSource::parse("builtin:tiny")?);
    let runtime = Runtime::start(&[worker], &RuntimeOptions::default())?;
    let policy = runtime.policies()[0].clone();
    let chat = ChatInput::open([ChatMessage::new("user", "Who wrote it?")]);
    let prompt = policy.tokenizer().encode_rendered(&policy.tokenizer().render_chat(&chat)?)?;
    let sampling = Arc::new(Sampling { max_tokens: TOKENS, ..Sampling::default() });
    let begin = Instant::now();
    let requests =
        (0..COMPLETIONS).map(|seed| Request::new(prompt.clone(), Arc::clone(&sampling), seed));
    let done = try_join_all(requests.map(|request| policy.generate(request))).await?;
    let sampled_s = begin.elapsed().as_secs_f64();
    let tokens = done.iter().map(|one| one.ids.len()).sum();
    let mut bytes = Vec::new();
    for one in &done {
        bytes.extend(one.ids.iter().flat_map(|id| id.to_le_bytes()));
        bytes.extend(one.logprobs.iter().flat_map(|value| value.to_le_bytes()));
    }
    let rows = done.into_iter().enumerate().map(|(i, one)| row(&prompt, one, i)).collect();
    let begin = Instant::now();
    let stats = policy.update(Batch { rows, lr: 1e-4, ..Batch::default() }).await?;
    bytes.extend(stats.loss.to_le_bytes());
    bytes.extend(stats.grad_norm.to_le_bytes());
    Ok(StepFacts {
        bits: FileHash::of(&bytes).sha256.chars().take(BITS.len()).collect(),
        tokens,
        tokens_per_s: tokens as f64 / sampled_s.max(1e-9),
        update_s: begin.elapsed().as_secs_f64(),
    })
}

/// Returns the row of a completion. Every other one has a negative advantage.
fn row(prompt: &[u32], done: Completion, index: usize) -> Row {
    let advantages = vec![if index.is_multiple_of(2) { 1.0 } else { -1.0 }; done.ids.len()];
    let (completion, logprobs) = (done.ids, done.logprobs);
    Row { prompt: prompt.to_vec(), completion, logprobs, advantages, ..Row::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_has_the_bits_that_every_machine_computes() {
        let outcome = compute_step();
        let StepOutcome::Computed(step) = outcome else { panic!("{outcome:?}") };
        assert_eq!(step.bits, BITS, "a change of numbers also changes `BITS`");
        assert!(step.tokens > 0 && step.tokens_per_s > 0.0, "{step:?}");
    }
}
