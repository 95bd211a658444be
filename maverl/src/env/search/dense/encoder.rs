//! Models as encoders: an embedding is pooled from the hidden states of a decoder, or of an encoder of BERT's kind.

use std::fmt::Display;

use maverl_kernels::attention::Packing;
use serde::{Deserialize, Serialize};

use crate::env::EnvError;
use crate::files::{
    EncoderConfig, HfConfig, ModelError, ModelFiles, ModelSource, SentenceFiles, SentencePooling,
};
use crate::net::{BertModel, Context, Model, Pool};
use crate::text::Tokenizer;

/// Maximum number of tokens of a forward pass, except for a single longer text.
const BATCH: usize = 4096;

/// Pooling of the hidden states of a text into one vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The one that the files of the model name (`1_Pooling/config.json`), or else the mean.
    #[default]
    Auto,
    /// Mean of the hidden states.
    Mean,
    /// Hidden state of the first token, of a model whose tokens attend to the whole text.
    Cls,
    /// Hidden state of the last token, the only one of a decoder that attends to the whole text.
    Last,
}

/// Scaling of embeddings to length 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalization {
    /// As the files of the model say (`modules.json`); embeddings of a model without these files are scaled.
    #[default]
    Auto,
    /// Embeddings are scaled.
    Always,
    /// Embeddings have the length that the pooling gives them.
    Never,
}

/// Options of an [`Encoder`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncoderOptions {
    /// Pooling of hidden states.
    pub pooling: Pooling,
    /// Scaling of embeddings.
    pub normalization: Normalization,
    /// Maximum number of tokens of a text.
    pub max_tokens: usize,
}

/// Properties of an encoder that its files have, without its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::env::search) struct EncoderShape {
    /// Number of components of an embedding.
    pub(in crate::env::search) width: usize,
    pooling: SentencePooling,
    pub(in crate::env::search) normalizes: bool,
    longest: usize,
    /// Every token attends to the whole text.
    both_ways: bool,
}

impl EncoderShape {
    /// Reads the configuration of a model.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is not supported, or does not fit the options.
    pub(in crate::env::search) fn read(
        files: &ModelFiles,
        options: EncoderOptions,
    ) -> Result<Self, EnvError> {
        let sentence = SentenceFiles::read(files).map_err(encoder_error)?;
        let encoder = EncoderConfig::read(files).map_err(encoder_error)?;
        let both_ways = encoder.is_some();
        let (width, longest) = match encoder {
            Some(config) => (config.hidden_size, config.longest()),
            None => {
                let config = decoder_config(files)?;
                (config.hidden_size, config.max_position_embeddings)
            }
        };
        let says_nothing = sentence.pooling.is_none() && files.is_of_cache();
        let asks = options.pooling == Pooling::Auto || options.normalization == Normalization::Auto;
        if says_nothing && asks {
            return Err(EnvError::new(format!(
                "{}: the cache has no `modules.json`, and `HF_HUB_OFFLINE` is set, so how the model makes an embedding is not known; \
                 unset it, or write `pooling` and `normalize`",
                files.describe()
            )));
        }
        let pooling = match options.pooling {
            Pooling::Auto => sentence.pooling.unwrap_or(SentencePooling::Mean),
            Pooling::Mean => SentencePooling::Mean,
            Pooling::Cls => SentencePooling::Cls,
            Pooling::Last => SentencePooling::Last,
        };
        if pooling == SentencePooling::Cls && !both_ways {
            return Err(EnvError::new(
                "`pooling` is \"cls\", and the first token of this encoder attends to itself only; write \"mean\" or \"last\"",
            ));
        }
        let normalizes = match options.normalization {
            Normalization::Auto => sentence.normalizes.unwrap_or(true),
            Normalization::Always => true,
            Normalization::Never => false,
        };
        let longest =
            longest.min(options.max_tokens).min(sentence.max_tokens.unwrap_or(usize::MAX));
        Ok(Self { width, pooling, normalizes, longest, both_ways })
    }
}

/// Reads the configuration of a decoder.
fn decoder_config(files: &ModelFiles) -> Result<HfConfig, EnvError> {
    let text = files.require("config.json").map_err(encoder_error)?;
    HfConfig::parse(&text).map_err(|error| {
        let families = EncoderConfig::FAMILIES.join("\", \"");
        let place = files.describe();
        encoder_error(format!("{place}: {error}; as encoders also the `model_type` \"{families}\""))
    })
}

/// A model that maps texts to vectors.
///
/// The same text has bit-identical vectors in every batch.
pub struct Encoder {
    network: EncoderNetwork,
    tokenizer: Tokenizer,
    shape: EncoderShape,
    /// Token that the tokenizer appends to every text, if any.
    closing: Option<u32>,
}

/// Network that computes the hidden states.
enum EncoderNetwork {
    Decoder(Box<Model>),
    Bert(Box<BertModel>),
}

impl Encoder {
    /// Loads a model as an encoder: one of [`EncoderConfig::FAMILIES`], or a decoder. It reads at most `max_tokens` tokens of a text,
    /// and never more than the context of the model, or than its files say.
    ///
    /// # Errors
    ///
    /// If the model or its tokenizer cannot be loaded, or the options do not fit it.
    pub fn load(source: &ModelSource, options: EncoderOptions) -> Result<Self, EnvError> {
        let files = ModelFiles::new(source);
        let shape = EncoderShape::read(&files, options)?;
        let tokenizer = Tokenizer::load(&files).map_err(encoder_error)?;
        let network = if shape.both_ways {
            EncoderNetwork::Bert(Box::new(BertModel::load(&files).map_err(encoder_error)?))
        } else {
            let model = Model::load(&files).map_err(encoder_error)?;
            // Its weights never change.
            model.decoder.pack();
            EncoderNetwork::Decoder(Box::new(model))
        };
        let frame = tokenizer.encode_framed("").map_err(|error| EnvError(error.to_string()))?;
        let text = tokenizer.encode_framed("a").map_err(|error| EnvError(error.to_string()))?;
        let closing = frame.last().copied().filter(|last| text.last() == Some(last));
        Ok(Self { network, tokenizer, shape, closing })
    }

    /// Returns the number of components of an embedding.
    pub fn width(&self) -> usize {
        self.shape.width
    }

    /// Returns true if embeddings are scaled to length 1.
    pub(super) fn normalizes(&self) -> bool {
        self.shape.normalizes
    }

    /// Computes embeddings `[texts, width]`, each of length 1 unless the encoder does not scale them; zeros for a text without tokens.
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
        if ids.len() > self.shape.longest {
            ids.truncate(self.shape.longest);
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
        let hidden = match &self.network {
            EncoderNetwork::Decoder(model) => decode(model, rows, pool)?,
            EncoderNetwork::Bert(model) => {
                let texts: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
                model.forward(&texts)?
            }
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
        let pooled = match self.shape.pooling {
            SentencePooling::Mean => states,
            SentencePooling::Cls => &states[..width.min(states.len())],
            SentencePooling::Last => &states[states.len().saturating_sub(width)..],
        };
        for state in pooled.chunks_exact(width) {
            embedding.iter_mut().zip(state).for_each(|(sum, value)| *sum += value);
        }
        // The sum has the direction of the mean.
        if self.shape.normalizes {
            normalize(&mut embedding);
        } else {
            let count = (pooled.len() / width).max(1) as f32;
            embedding.iter_mut().for_each(|sum| *sum /= count);
        }
        embedding
    }
}

/// Computes the hidden states of a decoder for rows of tokens.
fn decode(model: &Model, rows: &[Vec<u32>], pool: &mut Pool) -> Result<Vec<f32>, ModelError> {
    let ids = rows.concat();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let positions: Vec<u32> = rows.iter().flat_map(|row| 0..row.len() as u32).collect();
    let mut offsets = vec![0];
    // Rows without tokens are skipped.
    for row in rows.iter().filter(|row| !row.is_empty()) {
        offsets.push(offsets[offsets.len() - 1] + row.len());
    }
    let context = Context::Packed(Packing::from_offsets(&offsets));
    model.decoder.forward(&ids, &positions, context, pool)
}

pub(in crate::env::search) fn encoder_error(error: impl Display) -> EnvError {
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
        let options = EncoderOptions { pooling, max_tokens, ..EncoderOptions::default() };
        Encoder::load(&ModelSource::Builtin("tiny".to_owned()), options).unwrap()
    }

    /// An encoder of `tests/python/make_encoders.py`.
    fn fixture(name: &str) -> ModelSource {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
        ModelSource::Directory(root.join("encoders").join(name))
    }

    #[derive(Deserialize)]
    struct RecordedText {
        text: String,
        embedding: Vec<f32>,
    }

    #[test]
    fn embeddings_are_those_of_sentence_transformers() {
        for name in ["bert-mean", "distilbert-cls", "xlm-roberta-cls"] {
            let source = fixture(name);
            let options = EncoderOptions { max_tokens: 512, ..EncoderOptions::default() };
            let encoder = Encoder::load(&source, options).unwrap();
            let ModelSource::Directory(dir) = &source else { unreachable!() };
            let recorded = std::fs::read_to_string(dir.join("reference.json")).unwrap();
            let recorded: Vec<RecordedText> = serde_json::from_str(&recorded).unwrap();
            let texts: Vec<String> = recorded.iter().map(|text| text.text.clone()).collect();
            let expected: Vec<f32> =
                recorded.iter().flat_map(|text| text.embedding.clone()).collect();
            let found = encoder.encode(&texts).unwrap();
            assert_eq!(found.len(), expected.len());
            let differences = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            let largest = differences.fold(0.0, f32::max);
            println!("{name}: largest difference of {} numbers {largest:e}", found.len());
            assert!(largest < 1e-5, "{name}: {largest}");
        }
    }

    #[test]
    fn options_win_over_the_files_of_a_model() {
        let embed = |name: &str, pooling, normalization| {
            let options = EncoderOptions { pooling, normalization, max_tokens: 64 };
            let encoder = Encoder::load(&fixture(name), options).unwrap();
            encoder.encode(&["who wrote it?".to_owned()]).unwrap()
        };
        let own = embed("distilbert-cls", Pooling::Auto, Normalization::Auto);
        assert_eq!(embed("distilbert-cls", Pooling::Cls, Normalization::Never), own);
        let mut scaled = own.clone();
        normalize(&mut scaled);
        assert_eq!(embed("distilbert-cls", Pooling::Auto, Normalization::Always), scaled);
        assert_ne!(embed("distilbert-cls", Pooling::Mean, Normalization::Auto), own);
        assert_ne!(embed("distilbert-cls", Pooling::Last, Normalization::Auto), own);
    }

    #[test]
    fn a_pooling_that_makes_no_sense_and_another_architecture_are_refused() {
        let options = |pooling| EncoderOptions { pooling, max_tokens: 8, ..Default::default() };
        let builtin = ModelSource::Builtin("tiny".to_owned());
        let message = Encoder::load(&builtin, options(Pooling::Cls)).err().unwrap().to_string();
        assert!(message.contains("attends to itself only"), "{message}");
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), r#"{"model_type": "t5"}"#).unwrap();
        let t5 = ModelSource::Directory(dir.path().to_owned());
        let message = Encoder::load(&t5, options(Pooling::Auto)).err().unwrap().to_string();
        for found in
            ["`model_type` is \"t5\"; supported: ", "as encoders also the `model_type` \"bert\""]
        {
            assert!(message.contains(found), "{message}");
        }
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
