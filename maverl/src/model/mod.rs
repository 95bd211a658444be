//! Models and tokenizers, read from Hugging Face directories (or embedded in the library).

pub mod builtin;
pub mod create;
pub mod decoder;
pub mod files;
pub mod hf_config;
pub mod nn;
pub mod tokenizer;
pub mod weights;

use std::path::Path;
use std::sync::Arc;

use candle_core::Tensor;

pub use decoder::{Context, Decoder, KvCache};
pub use files::{ModelFiles, ModelSource};
pub use hf_config::HfConfig;
pub use tokenizer::{ChatInput, ChatMessage, Detokenizer, Rendered, Tokenizer, TokenizerError};
pub use weights::{Shards, Weights};

/// Why a model could not be read, run or written: the place, what was found, what is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelError(
    /// What happened.
    pub String,
);

impl From<candle_core::Error> for ModelError {
    fn from(error: candle_core::Error) -> Self {
        Self(error.to_string())
    }
}

/// A model: configuration, weights, and two decoders over the same storage, with and without gradients.
pub struct Model {
    /// The shape.
    pub config: Arc<HfConfig>,
    /// The weights.
    pub weights: Weights,
    /// The decoder whose operations autograd records.
    pub tracked: Decoder,
    /// The decoder for rollout.
    pub frozen: Decoder,
    /// Files that are written back as they were read: configuration, tokenizer, template.
    companions: Vec<(String, Vec<u8>)>,
}

/// Files beside the weights that a saved directory gets unchanged.
const COMPANIONS: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
];

impl Model {
    /// Loads a model.
    ///
    /// # Errors
    ///
    /// See [`HfConfig::parse`] and [`Weights::load`].
    pub fn load(files: &ModelFiles) -> Result<Self, ModelError> {
        let config = HfConfig::parse(&files.require("config.json")?)
            .map_err(|e| ModelError(format!("{}: {e}", files.describe())))?;
        let weights = Weights::load(files, &config)?;
        let mut companions = Vec::new();
        for name in COMPANIONS {
            if let Some(bytes) = files.read(name)? {
                companions.push(((*name).to_owned(), bytes.into_owned()));
            }
        }
        Self::new(config, weights, companions)
    }

    /// A model over given weights; `companions` are the files a saved directory gets beside them.
    ///
    /// # Errors
    ///
    /// If the weights are not those of the configuration.
    pub fn new(
        config: HfConfig,
        weights: Weights,
        companions: Vec<(String, Vec<u8>)>,
    ) -> Result<Self, ModelError> {
        let config = Arc::new(config);
        let (tracked, frozen) =
            (decoder(&config, &weights, true)?, decoder(&config, &weights, false)?);
        Ok(Self { config, weights, tracked, frozen, companions })
    }

    /// Writes a Hugging Face model directory.
    ///
    /// # Errors
    ///
    /// If a file cannot be written; it is named.
    pub fn save(&self, dir: &Path) -> Result<(), ModelError> {
        for (name, bytes) in &self.companions {
            let path = dir.join(name);
            let bytes = if name == "config.json" { in_f32(bytes) } else { bytes.clone() };
            std::fs::write(&path, bytes)
                .map_err(|e| ModelError(format!("cannot write {}: {e}", path.display())))?;
        }
        self.weights.save(&dir.join("model.safetensors"))
    }
}

/// A decoder over weights, tracked by autograd or not.
///
/// # Errors
///
/// If the weights are not those of the configuration.
pub fn decoder(
    config: &Arc<HfConfig>,
    weights: &Weights,
    tracked: bool,
) -> Result<Decoder, ModelError> {
    let by_name = weights.by_name(tracked);
    let mut get = |name: &str| -> candle_core::Result<Tensor> {
        by_name
            .get(name)
            .cloned()
            .ok_or_else(|| candle_core::Error::Msg(format!("no weight `{name}`")))
    };
    Ok(Decoder::new(config, &mut get)?)
}

/// Trained weights are written as f32, so `dtype` says so (`torch_dtype` in transformers 4).
fn in_f32(config: &[u8]) -> Vec<u8> {
    let Ok(mut json) = serde_json::from_slice::<serde_json::Value>(config) else {
        return config.to_vec();
    };
    for key in ["dtype", "torch_dtype"] {
        if let Some(dtype) = json.get_mut(key) {
            *dtype = "float32".into();
        }
    }
    serde_json::to_vec_pretty(&json).unwrap_or_else(|_| config.to_vec())
}

#[cfg(test)]
mod tests;
