//! A model without a worker group: one completion, or the log-probs of given rows, on the calling thread.
//!
//! It has the engine and the operations of a worker group, so `maverl score` gives the log-probs that a run recorded,
//! to the bit.

use maverl_kernels::attention::Packing;
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use super::engine::Engine;
use super::{Completion, Request, RuntimeError, RuntimeOptions, memory};
use crate::files::ModelError;
use crate::net::{Context, Model, Pool};
use crate::text::Tokenizer;

/// Completes a prompt, and calls `each` with every id as soon as it is sampled. The result equals, to the bit, that of
/// a policy with these weights (K-1).
///
/// # Errors
///
/// If the prompt does not fit the context, or the forward pass fails.
pub fn complete(
    model: &Model,
    tokenizer: &Arc<Tokenizer>,
    request: Request,
    mut each: impl FnMut(u32),
) -> Result<Completion, RuntimeError> {
    memory::keep_freed();
    let (tokenizer, options) = (Arc::clone(tokenizer), RuntimeOptions::default());
    let mut engine =
        Engine::new("model", tokenizer, model.decoder.ops(), &model.config, &options, 1);
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned();
    let permit = permit.expect("a new semaphore has its permit");
    let (reply, mut answer) = oneshot::channel();
    engine.admit(0, &model.config, 0, request, reply, permit);
    let mut given = 0;
    while !engine.is_idle() {
        engine.step(std::iter::once(model));
        engine.generated_tokens().iter().skip(given).for_each(|id| each(*id));
        given = given.max(engine.generated_tokens().len());
    }
    let completion = answer.try_recv().expect("an engine answers before it is idle")?;
    completion.ids.iter().skip(given).for_each(|id| each(*id));
    Ok(completion)
}

/// Scores of a row of n tokens.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scores {
    /// Log-probability of token t + 1 given the tokens up to t, `[n - 1]`.
    pub logprobs: Vec<f32>,
    /// Entropy in nats of the distribution after token t, `[n]`.
    pub entropy: Vec<f32>,
}

/// Scores rows, packed one after the other, at temperature 1. A row's scores do not depend on the other rows, to the
/// bit (K-1).
///
/// # Errors
///
/// If an id or a length is out of the model's range.
pub fn score(model: &Model, rows: &[Vec<u32>]) -> Result<Vec<Scores>, ModelError> {
    memory::keep_freed();
    let (mut positions, mut targets, mut offsets) = (Vec::new(), Vec::new(), vec![0]);
    for row in rows {
        positions.extend(0..row.len() as u32);
        // The target after the last token is unknown; only its entropy is used.
        targets.extend(row.iter().skip(1).chain(row.last()));
        offsets.push(positions.len());
    }
    let (ids, even) = (rows.concat(), vec![1.0; positions.len()]);
    let (context, mut pool) = (Context::Packed(Packing::from_offsets(&offsets)), Pool::default());
    let hidden = model.decoder.forward(&ids, &positions, context, &mut pool)?;
    let (logprobs, entropy) = model.decoder.logprobs(&hidden, &targets, &even)?;
    let scores = offsets.windows(2).map(|row| Scores {
        logprobs: logprobs[row[0]..row[1].saturating_sub(1).max(row[0])].to_vec(),
        entropy: entropy[row[0]..row[1]].to_vec(),
    });
    Ok(scores.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::files::{ModelFiles, ModelSource};
    use crate::runtime::Sampling;

    fn tiny() -> (Model, Arc<Tokenizer>) {
        let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        (Model::load(&files).unwrap(), Arc::new(Tokenizer::load(&files).unwrap()))
    }

    #[test]
    fn a_completion_is_given_out_id_by_id_and_scores_as_it_was_sampled_to_the_bit() {
        let (model, tokenizer) = tiny();
        let mut worst = 0.0_f32;
        for seed in 0..8 {
            let prompt: Vec<u32> = (0..5 + 9 * seed as u32).map(|i| (i * 31 + 7) % 500).collect();
            let sampling = Arc::new(Sampling { max_tokens: 40, ..Sampling::default() });
            let request = Request::new(prompt.clone(), sampling, seed);
            let mut streamed = Vec::new();
            let done = complete(&model, &tokenizer, request, |id| streamed.push(id)).unwrap();
            assert_eq!(streamed, done.ids);
            let row = [prompt.clone(), done.ids.clone()].concat();
            let scores = score(&model, std::slice::from_ref(&row)).unwrap();
            assert_eq!(
                (scores[0].logprobs.len(), scores[0].entropy.len()),
                (row.len() - 1, row.len())
            );
            let logprobs = &scores[0].logprobs[prompt.len() - 1..];
            let differences = logprobs.iter().zip(&done.logprobs).map(|(a, b)| (a - b).abs());
            worst = differences.fold(worst, f32::max);
            assert_eq!(logprobs, done.logprobs, "seed {seed}");
        }
        println!("generate and score differ by at most {worst:e}");
    }

    #[test]
    fn rows_score_the_same_alone_and_packed_to_the_bit() {
        let (model, _) = tiny();
        let rows: Vec<Vec<u32>> =
            [1_u32, 2, 33, 7, 120].map(|n| (0..n).map(|i| (i * i + n) % 700).collect()).into();
        let packed = score(&model, &rows).unwrap();
        for (row, packed) in rows.iter().zip(&packed) {
            assert_eq!(score(&model, std::slice::from_ref(row)).unwrap()[0], *packed);
        }
        assert!(packed[0].logprobs.is_empty() && packed[0].entropy.len() == 1);
    }

    #[test]
    fn a_prompt_that_fills_the_context_is_refused_without_a_worker_too() {
        let (model, tokenizer) = tiny();
        let prompt = vec![1; model.config.max_position_embeddings];
        let request = Request::new(prompt, Arc::default(), 0);
        let error = complete(&model, &tokenizer, request, |_| ()).unwrap_err();
        assert!(matches!(error, RuntimeError::Overflow { .. }), "{error}");
    }
}
