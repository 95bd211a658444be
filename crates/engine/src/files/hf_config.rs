//! `config.json` of a Hugging Face model directory.
//!
//! The parts of the layers are all that differs between families. `families.rs` has a row for each family, `foreign.rs` the
//! keys that a family does not read and that would change the numbers.

mod families;
mod foreign;
mod reader;
mod rope;

use std::sync::Arc;

use maverl_kernels::attention::Heads;
use serde_json::Value;

use crate::files::parts::{LayerShape, LinearShape, NormShape};
use families::{LayerSizes, ModelFamily};
use foreign::NeutralSizes;
use reader::ConfigReader;
pub use rope::{Llama3, Rope};

/// The shape of a decoder, as `config.json` gives it (transformers 4 and 5 spellings).
///
/// One decoder serves every family ([`HfConfig::FAMILIES`]); what sets them apart are the parts of the layers.
#[derive(Debug, Clone, PartialEq)]
pub struct HfConfig {
    /// The family, one of [`HfConfig::FAMILIES`].
    pub model_type: &'static str,
    /// Width of the residual stream, D.
    pub hidden_size: usize,
    /// Parts of each layer. Equal layers share memory.
    pub layers: Vec<Arc<LayerShape>>,
    /// Norm after the layers.
    pub norm: NormShape,
    /// Rows of the embedding, V; may exceed the tokenizer's tokens.
    pub vocab_size: usize,
    /// Longest sequence.
    pub max_position_embeddings: usize,
    /// Rotary position embedding of queries and keys.
    pub rope: Rope,
    /// The output head is the embedding.
    pub tie_word_embeddings: bool,
    /// `config.json` ties the head, but the checkpoint has another ([`HfConfig::load`]).
    pub head_untied: bool,
    /// The checkpoint has the head of a model that classifies sequences, which a language model has not: a warning
    /// ([`HfConfig::warning`]).
    pub classifies: bool,
    /// Keys of other families that would change the numbers, with their values: a warning ([`HfConfig::warning`]).
    pub unread: Vec<String>,
}

/// Error of a `config.json` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("config.json: {0}")]
pub struct HfConfigError(
    /// Which keys, what was found, what is supported.
    pub String,
);

/// The embedding's name in checkpoints.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
/// The output head's name in checkpoints.
pub(crate) const HEAD: &str = "lm_head.weight";

/// Returns the name in checkpoints of what has a name within a layer.
pub(crate) fn in_layer(layer: usize, name: &str) -> String {
    format!("model.layers.{layer}.{name}")
}

/// Most decoder layers; each is some tensors, and their list is made before a weight is read.
const MOST_LAYERS: usize = 1024;
/// Largest width of the residual stream, of all heads together, and of the MLP.
const WIDEST: usize = 1 << 20;
/// Most rows of the embedding.
const MOST_TOKENS: usize = 1 << 24;
/// Most positions.
const LONGEST: usize = 1 << 30;

impl HfConfig {
    /// The families that are supported, as `model_type` has them.
    pub const FAMILIES: &[&str] = &families::NAMES;

    /// Reads a `config.json`. A key that is missing means what it means to transformers.
    ///
    /// # Errors
    ///
    /// If it is not JSON, lacks keys, or asks for what is not supported; every such key is named.
    pub fn parse(text: &[u8]) -> Result<Self, HfConfigError> {
        let json: Value =
            serde_json::from_slice(text).map_err(|e| HfConfigError(format!("not JSON: {e}")))?;
        let json = json.as_object().ok_or_else(|| HfConfigError("not a JSON object".to_owned()))?;
        let mut keys = ConfigReader::new(json);
        let config = Self::read(&mut keys);
        match &keys.problems[..] {
            [] => Ok(config),
            problems => Err(HfConfigError(problems.join("; "))),
        }
    }

    fn read(keys: &mut ConfigReader<'_>) -> Self {
        let layers = keys.size("num_hidden_layers", 32, MOST_LAYERS);
        let (family, biases) = families::read(keys, layers);
        let hidden = keys.size("hidden_size", 4096, WIDEST);
        let q = keys.size("num_attention_heads", 32, WIDEST);
        let max_position_embeddings =
            keys.size("max_position_embeddings", family.max_position_embeddings, LONGEST);
        let kv = key_value_heads(keys, &family, q);
        let heads = Heads { q, kv, dim: head_dim(keys, &family, hidden, q) };
        let intermediate = keys.size("intermediate_size", family.intermediate_size, WIDEST);
        let vocab_size = keys.size("vocab_size", family.vocab_size, MOST_TOKENS);
        let eps = keys.number("rms_norm_eps").unwrap_or(1e-6) as f32;
        let sizes = LayerSizes { hidden, heads, intermediate, eps };
        let mut config = Self {
            model_type: family.name,
            hidden_size: hidden,
            layers: family.layers(layers, sizes, biases),
            norm: NormShape { name: "model.norm", width: hidden, eps },
            vocab_size,
            max_position_embeddings,
            rope: Rope::read(keys, max_position_embeddings),
            tie_word_embeddings: keys.flag("tie_word_embeddings"),
            head_untied: false,
            classifies: false,
            unread: Vec::new(),
        };
        let sizes = NeutralSizes { longest: max_position_embeddings, head_dim: heads.dim };
        config.unread = foreign::unread(keys, &family, sizes);
        // Sizes that are missing or wrong make no sense together either.
        if keys.problems.is_empty() {
            keys.problems.extend(mismatches(heads));
        }
        config
    }

    /// Returns the heads of attention, which are equal in all layers.
    pub fn heads(&self) -> Heads {
        self.layers[0].attention.heads
    }

    /// Returns the frequencies of rotary positions, `[head_dim / 2]`.
    pub fn inv_freq(&self) -> Vec<f32> {
        self.rope.inv_freq(self.heads().dim)
    }

    /// The name and shape of every tensor of a checkpoint, in a fixed order.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let table = vec![self.vocab_size, self.hidden_size];
        let mut tensors = vec![(EMBEDDING.to_owned(), table.clone())];
        for (index, layer) in self.layers.iter().enumerate() {
            tensors.extend(layer.tensors().map(|(name, dims)| (in_layer(index, &name), dims)));
        }
        tensors.push(self.norm.tensor());
        if !self.tie_word_embeddings {
            tensors.push((HEAD.to_owned(), table));
        }
        tensors
    }

    /// Iterates over the linear maps of the layers with their names in checkpoints, without `.weight`.
    pub fn linears(&self) -> impl Iterator<Item = (String, &LinearShape)> {
        self.layers.iter().enumerate().flat_map(|(index, layer)| {
            layer.linears().map(move |map| (in_layer(index, map.name), map))
        })
    }
}

/// Returns the problems of heads that do not fit together.
fn mismatches(Heads { q, kv, dim }: Heads) -> impl Iterator<Item = String> {
    let groups = (!q.is_multiple_of(kv)).then(|| {
        format!("`num_attention_heads` ({q}) is not a multiple of `num_key_value_heads` ({kv})")
    });
    let odd = (!dim.is_multiple_of(2))
        .then(|| format!("`head_dim` is {dim}; rotary heads have an even width"));
    let wide = (q * dim > WIDEST).then(|| {
        format!("`num_attention_heads` ({q}) of `head_dim` ({dim}) are wider than {WIDEST}")
    });
    [groups, odd, wide].into_iter().flatten()
}

/// Key and value heads: as many as query heads where the key is null; where it is missing, the family's default.
fn key_value_heads(keys: &mut ConfigReader<'_>, family: &ModelFamily, heads: usize) -> usize {
    const KEY: &str = "num_key_value_heads";
    if keys.has(KEY) {
        return keys.optional_size(KEY, WIDEST).unwrap_or(heads);
    }
    let default = family.num_key_value_heads.unwrap_or(heads);
    if keys.problems.is_empty() && !heads.is_multiple_of(default) {
        keys.problem(format!(
            "`{KEY}` is missing, which means {default} for \"{}\", and `num_attention_heads` ({heads}) is not a multiple \
             of that; write `{KEY}`",
            family.name
        ));
        return heads;
    }
    default
}

/// Width of a head: the key's, or the family's default, or the residual stream's over the number of heads.
fn head_dim(
    keys: &mut ConfigReader<'_>,
    family: &ModelFamily,
    hidden_size: usize,
    heads: usize,
) -> usize {
    if keys.has("head_dim") && keys.value("head_dim").is_none() && !family.null_head_dim {
        keys.wrong("head_dim", "a whole number is needed, or no such key");
    }
    if let Some(head_dim) = keys.optional_size("head_dim", WIDEST).or(family.head_dim) {
        return head_dim;
    }
    if keys.problems.is_empty() && !hidden_size.is_multiple_of(heads) {
        keys.problem(format!(
            "`head_dim` is missing, and `hidden_size` ({hidden_size}) is not a multiple of \
             `num_attention_heads` ({heads})"
        ));
    }
    hidden_size / heads
}

#[cfg(test)]
mod tests;
