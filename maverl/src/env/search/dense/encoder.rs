//! A decoder model as an encoder: an embedding is pooled from the hidden states after the last norm.

use std::fmt::Display;

use maverl_kernels::attention::Packing;
use serde::{Deserialize, Serialize};

use crate::env::EnvError;
use crate::files::{ModelError, ModelFiles, ModelSource};
use crate::net::{Context, Model, Pool};
use crate::text::Tokenizer;

/// Maximum number of tokens of a forward pass, except for a single longer text.
const BATCH: usize = 4096;

/// Pooling of the hidden states of a text into one vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Mean of the hidden states.
    #[default]
    Mean,
    /// Hidden state of the last token, the only one that attends to the whole text.
    Last,
}

/// A model that maps texts to vectors of length 1.
///
/// The same text has bit-identical vectors in every batch.
pub struct Encoder {
    model: Model,
    tokenizer: Tokenizer,
    pooling: Pooling,
    longest: usize,
    /// Token that the tokenizer appends to every text, if any.
    closing: Option<u32>,
}

impl Encoder {
    /// Loads a model as an encoder. It reads at most `max_tokens` tokens of a text, and never more than the context of
    /// the model.
    ///
    /// # Errors
    ///
    /// If the model or its tokenizer cannot be loaded.
    pub fn load(
        source: &ModelSource,
        pooling: Pooling,
        max_tokens: usize,
    ) -> Result<Self, EnvError> {
        let files = ModelFiles::new(source);
        let tokenizer = Tokenizer::load(&files).map_err(encoder_error)?;
        let model = Model::load(&files).map_err(encoder_error)?;
        // Its weights never change.
        model.decoder.pack();
        let longest = max_tokens.min(model.config.max_position_embeddings);
        let frame = tokenizer.encode_framed("").map_err(|error| EnvError(error.to_string()))?;
        let text = tokenizer.encode_framed("a").map_err(|error| EnvError(error.to_string()))?;
        let closing = frame.last().copied().filter(|last| text.last() == Some(last));
        Ok(Self { model, tokenizer, pooling, longest, closing })
    }

    /// Returns the number of components of an embedding.
    pub fn width(&self) -> usize {
        self.model.config.hidden_size
    }

    /// Computes embeddings `[texts, width]`, each of length 1; zeros for a text without tokens.
    ///
    /// # Errors
    ///
    /// If a text cannot be encoded, or the model output is not finite.
    pub fn encode(&self, texts: &[String]) -> Result<Vec<f32>, EnvError> {
        let rows: Vec<Vec<u32>> =
            texts.iter().map(|text| self.ids(text)).collect::<Result<_, _>>()?;
        let mut embeddings = Vec::with_capacity(texts.len() * self.width());
        let mut pool = Pool::default();
        let mut rows = rows.as_slice();
        while !rows.is_empty() {
            let mut tokens = 0;
            let fits = rows.iter().take_while(|row| {
                tokens += row.len();
                tokens <= BATCH
            });
            let (batch, rest) = rows.split_at(fits.count().max(1));
            self.forward(batch, &mut pool, &mut embeddings).map_err(encoder_error)?;
            rows = rest;
        }
        if embeddings.iter().all(|value| value.is_finite()) {
            Ok(embeddings)
        } else {
            Err(EnvError::new("`encoder` gives embeddings that are not finite"))
        }
    }

    /// Returns the tokens of a text. A text that is too long is truncated to its first tokens and the closing token.
    fn ids(&self, text: &str) -> Result<Vec<u32>, EnvError> {
        let mut ids = self.tokenizer.encode_framed(text).map_err(encoder_error)?;
        if ids.len() > self.longest {
            ids.truncate(self.longest);
            if let (Some(last), Some(closing)) = (ids.last_mut(), self.closing) {
                *last = closing;
            }
        }
        Ok(ids)
    }

    /// Adds the embeddings of a batch of rows of tokens.
    fn forward(
        &self,
        rows: &[Vec<u32>],
        pool: &mut Pool,
        embeddings: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        let ids = rows.concat();
        let positions: Vec<u32> = rows.iter().flat_map(|row| 0..row.len() as u32).collect();
        let mut offsets = vec![0];
        // Rows without tokens are skipped.
        for row in rows.iter().filter(|row| !row.is_empty()) {
            offsets.push(offsets[offsets.len() - 1] + row.len());
        }
        let hidden = if ids.is_empty() {
            Vec::new()
        } else {
            self.model.decoder.forward(
                &ids,
                &positions,
                Context::Packed(Packing::from_offsets(&offsets)),
                pool,
            )?
        };
        let mut left = hidden.as_slice();
        for row in rows {
            let (states, rest) = left.split_at(row.len() * self.width());
            embeddings.extend(self.pool_states(states));
            left = rest;
        }
        pool.give([hidden]);
        Ok(())
    }

    /// Pools the hidden states `[tokens, width]` of a text.
    fn pool_states(&self, states: &[f32]) -> Vec<f32> {
        let width = self.width();
        let mut embedding = vec![0.0; width];
        let first = match self.pooling {
            Pooling::Mean => 0,
            Pooling::Last => states.len().saturating_sub(width),
        };
        // The sum has the direction of the mean.
        for state in states[first..].chunks_exact(width) {
            embedding.iter_mut().zip(state).for_each(|(sum, value)| *sum += value);
        }
        normalize(&mut embedding);
        embedding
    }
}

fn encoder_error(error: impl Display) -> EnvError {
    EnvError(format!("`encoder`: {error}"))
}

/// Scales a vector to length 1; zero vectors stay.
pub(super) fn normalize(vector: &mut [f32]) {
    let squares: f64 = vector.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    if squares > 0.0 {
        let length = squares.sqrt();
        vector.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn tiny(pooling: Pooling, max_tokens: usize) -> Encoder {
        Encoder::load(&ModelSource::Builtin("tiny".to_owned()), pooling, max_tokens).unwrap()
    }

    #[test]
    fn an_embedding_is_the_same_alone_and_in_a_batch() {
        let texts = ["who wrote it?", "", "Magdor", "a city by the sea, with a harbour"];
        let texts: Vec<String> = texts.map(str::to_owned).into_iter().cycle().take(400).collect();
        for pooling in [Pooling::Mean, Pooling::Last] {
            let encoder = tiny(pooling, 64);
            let together = encoder.encode(&texts).unwrap();
            for (text, embedding) in
                texts.iter().zip(together.chunks_exact(encoder.width())).take(4)
            {
                assert_eq!(encoder.encode(std::slice::from_ref(text)).unwrap(), embedding);
                let length: f32 = embedding.iter().map(|value| value * value).sum();
                let expected = if text.is_empty() { 0.0 } else { 1.0 };
                assert!((length - expected).abs() < 1e-5, "{text:?} has length {length}");
            }
        }
    }

    #[test]
    fn what_is_behind_the_longest_text_is_not_read() {
        for pooling in [Pooling::Mean, Pooling::Last] {
            let encoder = tiny(pooling, 4);
            let encode = |text: &str| encoder.encode(&[text.to_owned()]).unwrap();
            assert_eq!(
                encode("one two three four five six"),
                encode("one two three four five ten")
            );
            assert_ne!(encode("one"), encode("two"));
        }
    }

    #[test]
    fn poolings_are_of_the_same_states() {
        let [mean, last] = [Pooling::Mean, Pooling::Last].map(|pooling| tiny(pooling, 64));
        let embed = |encoder: &Encoder, text: &str| encoder.encode(&[text.to_owned()]).unwrap();
        assert_ne!(embed(&mean, "who wrote it?"), embed(&last, "who wrote it?"));
        let one = mean.ids("a").unwrap();
        assert_eq!(one.len(), 1, "of one token both are its state");
        assert_eq!(embed(&mean, "a"), embed(&last, "a"));
    }
}
