//! Loading of an encoder.

use maverl_kernels::matmul::{PackedWeight, Precision};

use super::rows::LayerNorm;
use super::{BertLayer, BertModel, BiasedLinear};
use crate::files::shards::list_problems;
use crate::files::{EncoderConfig, ModelError, ModelErrorKind, ModelFiles, Shards};

/// Starts of the names of tensors that no embedding depends on: heads of tasks, and tables of positions that are not weights.
const UNREAD: [&str; 9] = [
    "pooler.",
    "cls.",
    "lm_head.",
    "vocab_transform.",
    "vocab_layer_norm.",
    "vocab_projector.",
    "classifier.",
    "pre_classifier.",
    "embeddings.position_ids",
];

impl BertModel {
    /// Loads an encoder: `config.json` and the weights, with or without the prefix that checkpoints of larger models have.
    ///
    /// # Errors
    ///
    /// If a file is missing or damaged, the `model_type` is none of [`EncoderConfig::FAMILIES`], or the configuration asks for what
    /// is not supported; every missing, extra or misshapen tensor at once.
    pub fn load(files: &ModelFiles) -> Result<Self, ModelError> {
        let config = EncoderConfig::read(files)?.ok_or_else(|| {
            let families = EncoderConfig::FAMILIES.join("\", \"");
            let place = files.describe();
            let message = format!("{place}: config.json: `model_type` is none of \"{families}\"");
            ModelError::new(ModelErrorKind::Invalid, message)
        })?;
        let reader = EncoderTensors::open(files, &config)?;
        let width = config.hidden_size;
        let kind = match config.types {
            0 => vec![0.0; width],
            _ => reader.values(EncoderConfig::TYPES, "weight")?[..width].to_vec(),
        };
        let layers = (0..config.layers).map(|layer| reader.layer(&config, layer));
        Ok(Self {
            words: reader.values(EncoderConfig::WORDS, "weight")?,
            positions: reader.values(EncoderConfig::POSITIONS, "weight")?,
            kind,
            norm: reader.norm(EncoderConfig::NORM, config.eps)?,
            layers: layers.collect::<Result<_, _>>()?,
            config,
        })
    }
}

/// Tensors of a checkpoint, by their names without a prefix.
struct EncoderTensors {
    shards: Shards,
    prefix: &'static str,
}

impl EncoderTensors {
    /// Opens a checkpoint that has the tensors of a configuration.
    fn open(files: &ModelFiles, config: &EncoderConfig) -> Result<Self, ModelError> {
        let shards = Shards::open(files)?;
        let bare = shards.shape(&format!("{}.weight", EncoderConfig::WORDS)).is_some();
        let prefix = if bare { "" } else { config.names.within };
        let tensors = Self { shards, prefix };
        match &tensors.problems(config)[..] {
            [] => Ok(tensors),
            problems => {
                let message = format!("{}: {}", files.describe(), list_problems(problems));
                Err(ModelError::no_match(message))
            }
        }
    }

    /// Returns every missing, misshapen or extra tensor.
    fn problems(&self, config: &EncoderConfig) -> Vec<String> {
        let (wanted, mut problems) = (config.tensors(), Vec::new());
        for (name, shape) in &wanted {
            match self.shards.shape(&format!("{}{name}", self.prefix)) {
                None => problems.push(format!("`{}{name}` {shape:?} is missing", self.prefix)),
                Some(found) if found != *shape => problems.push(format!(
                    "`{}{name}` is {found:?}; config.json asks for {shape:?}",
                    self.prefix
                )),
                Some(_) => {}
            }
        }
        let extra = self.shards.names().filter(|full| {
            let name = full.strip_prefix(self.prefix).unwrap_or(full);
            let known = wanted.iter().any(|(wanted, _)| wanted == name);
            !known && !UNREAD.iter().any(|start| name.starts_with(start))
        });
        problems.extend(extra.map(|name| format!("`{name}` is not part of this architecture")));
        problems
    }

    fn values(&self, module: &str, end: &str) -> Result<Vec<f32>, ModelError> {
        self.shards.values(&format!("{}{module}.{end}", self.prefix))
    }

    fn norm(&self, module: &str, eps: f32) -> Result<LayerNorm, ModelError> {
        let (weight, bias) = (self.values(module, "weight")?, self.values(module, "bias")?);
        Ok(LayerNorm { weight, bias, eps })
    }

    fn linear(&self, module: &str) -> Result<BiasedLinear, ModelError> {
        let (weight, bias) = (self.values(module, "weight")?, self.values(module, "bias")?);
        let (outputs, inputs) = (bias.len(), weight.len() / bias.len());
        let weight = PackedWeight::pack(Precision::F32, &weight, outputs, inputs);
        Ok(BiasedLinear { weight, bias })
    }

    fn layer(&self, config: &EncoderConfig, layer: usize) -> Result<BertLayer, ModelError> {
        let names = config.names;
        let linear = |module| self.linear(&config.in_layer(layer, module));
        let norm = |module| self.norm(&config.in_layer(layer, module), config.eps);
        Ok(BertLayer {
            query: linear(names.query)?,
            key: linear(names.key)?,
            value: linear(names.value)?,
            output: linear(names.output)?,
            attention_norm: norm(names.attention_norm)?,
            up: linear(names.up)?,
            down: linear(names.down)?,
            norm: norm(names.norm)?,
        })
    }
}
