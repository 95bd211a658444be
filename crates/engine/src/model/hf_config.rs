//! `config.json` of a Hugging Face model directory.
//!
//! A difference between families is a field of [`HfConfig`]. `families.rs` reads it, `foreign.rs` has the keys that no
//! family reads and that would change the numbers, `HfConfig::tensors` the names and shapes that follow, and
//! `decoder.rs` what is computed.

mod families;
mod foreign;
mod reader;
mod rope;

use serde_json::Value;

use families::Family;
use reader::Reader;
pub use rope::{Llama3, Rope};

/// The shape of a decoder, as `config.json` gives it (transformers 4 and 5 spellings).
///
/// One decoder serves every family; what sets them apart are the fields below. See [`HfConfig::FAMILIES`].
#[derive(Debug, Clone, PartialEq)]
pub struct HfConfig {
    /// The family, one of [`HfConfig::FAMILIES`].
    pub model_type: &'static str,
    /// Width of the residual stream, D.
    pub hidden_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads.
    pub num_key_value_heads: usize,
    /// Width of a head; need not be `hidden_size / num_attention_heads`.
    pub head_dim: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Rows of the embedding, V; may exceed the tokenizer's tokens.
    pub vocab_size: usize,
    /// Longest sequence.
    pub max_position_embeddings: usize,
    /// Added to the mean square.
    pub rms_norm_eps: f32,
    /// Rotary position embedding of queries and keys.
    pub rope: Rope,
    /// The output head is the embedding.
    pub tie_word_embeddings: bool,
    /// `config.json` ties the head, but the checkpoint has another ([`HfConfig::load`]).
    pub head_untied: bool,
    /// The checkpoint has the head of a model that classifies sequences, which a language model has not: a warning
    /// ([`HfConfig::warning`]).
    pub classifies: bool,
    /// Queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// The projection after attention has a bias.
    pub o_bias: bool,
    /// The projections of the MLP have a bias.
    pub mlp_bias: bool,
    /// Each head's query and key are normalized before they are turned.
    pub qk_norm: bool,
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
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
/// The output head's name in checkpoints.
pub(super) const HEAD: &str = "lm_head.weight";

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
    ///
    /// - `llama`: Llama 3 and its kin (Grattafiori et al., 2024, arXiv:2407.21783);
    /// - `qwen2`: Qwen2 and Qwen2.5 (Yang et al., 2024, arXiv:2407.10671);
    /// - `qwen3`: the dense Qwen3 (Yang et al., 2025, arXiv:2505.09388).
    pub const FAMILIES: &[&str] = families::NAMES;

    /// Reads a `config.json`. A key that is missing means what it means to transformers.
    ///
    /// # Errors
    ///
    /// If it is not JSON, lacks keys, or asks for what is not supported; every such key is named.
    pub fn parse(text: &[u8]) -> Result<Self, HfConfigError> {
        let json: Value =
            serde_json::from_slice(text).map_err(|e| HfConfigError(format!("not JSON: {e}")))?;
        let json = json.as_object().ok_or_else(|| HfConfigError("not a JSON object".to_owned()))?;
        let mut keys = Reader::new(json);
        let config = Self::read(&mut keys);
        match &keys.problems[..] {
            [] => Ok(config),
            problems => Err(HfConfigError(problems.join("; "))),
        }
    }

    fn read(keys: &mut Reader<'_>) -> Self {
        let num_hidden_layers = keys.size("num_hidden_layers", 32, MOST_LAYERS);
        let family = families::read(keys, num_hidden_layers);
        let hidden_size = keys.size("hidden_size", 4096, WIDEST);
        let num_attention_heads = keys.size("num_attention_heads", 32, WIDEST);
        let max_position_embeddings =
            keys.size("max_position_embeddings", family.max_position_embeddings, LONGEST);
        let mut config = Self {
            model_type: family.name,
            hidden_size,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads: key_value_heads(keys, &family, num_attention_heads),
            head_dim: head_dim(keys, &family, hidden_size, num_attention_heads),
            intermediate_size: keys.size("intermediate_size", family.intermediate_size, WIDEST),
            vocab_size: keys.size("vocab_size", family.vocab_size, MOST_TOKENS),
            max_position_embeddings,
            rms_norm_eps: keys.number("rms_norm_eps").unwrap_or(1e-6) as f32,
            rope: Rope::read(keys, max_position_embeddings),
            tie_word_embeddings: keys.flag("tie_word_embeddings"),
            head_untied: false,
            classifies: false,
            qkv_bias: family.qkv_bias,
            o_bias: family.o_bias,
            mlp_bias: family.mlp_bias,
            qk_norm: family.qk_norm,
            unread: Vec::new(),
        };
        config.unread = foreign::unread(keys, &config);
        // Sizes that are missing or wrong make no sense together either.
        if keys.problems.is_empty() {
            keys.problems.extend(config.mismatches());
        }
        config
    }

    /// Returns the problems of values that do not fit together.
    fn mismatches(&self) -> impl Iterator<Item = String> {
        let Self { num_attention_heads: heads, num_key_value_heads: kv, head_dim, .. } = *self;
        let groups = (!heads.is_multiple_of(kv)).then(|| {
            format!(
                "`num_attention_heads` ({heads}) is not a multiple of `num_key_value_heads` ({kv})"
            )
        });
        let odd = (!head_dim.is_multiple_of(2))
            .then(|| format!("`head_dim` is {head_dim}; rotary heads have an even width"));
        let wide = (heads * head_dim > WIDEST).then(|| {
            format!(
                "`num_attention_heads` ({heads}) of `head_dim` ({head_dim}) are wider than {WIDEST}"
            )
        });
        [groups, odd, wide].into_iter().flatten()
    }

    /// The name and shape of every tensor of a checkpoint, in a fixed order.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut tensors = vec![(EMBEDDING.to_owned(), vec![self.vocab_size, self.hidden_size])];
        for layer in 0..self.num_hidden_layers {
            self.layer_tensors(&mut |name, shape| {
                tensors.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
            });
        }
        tensors.push(("model.norm.weight".to_owned(), vec![self.hidden_size]));
        if !self.tie_word_embeddings {
            tensors.push((HEAD.to_owned(), vec![self.vocab_size, self.hidden_size]));
        }
        tensors
    }

    /// Calls `add` with the name and shape of each tensor of a layer.
    fn layer_tensors(&self, add: &mut dyn FnMut(&str, &[usize])) {
        let (d, ff) = (self.hidden_size, self.intermediate_size);
        let (q, kv) =
            (self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim);
        let linear = |add: &mut dyn FnMut(&str, &[usize]), name: &str, shape: [usize; 2], bias| {
            add(&format!("{name}.weight"), &shape);
            if bias {
                add(&format!("{name}.bias"), &shape[..1]);
            }
        };
        add("input_layernorm.weight", &[d]);
        linear(add, "self_attn.q_proj", [q, d], self.qkv_bias);
        linear(add, "self_attn.k_proj", [kv, d], self.qkv_bias);
        linear(add, "self_attn.v_proj", [kv, d], self.qkv_bias);
        linear(add, "self_attn.o_proj", [d, q], self.o_bias);
        if self.qk_norm {
            add("self_attn.q_norm.weight", &[self.head_dim]);
            add("self_attn.k_norm.weight", &[self.head_dim]);
        }
        add("post_attention_layernorm.weight", &[d]);
        linear(add, "mlp.gate_proj", [ff, d], self.mlp_bias);
        linear(add, "mlp.up_proj", [ff, d], self.mlp_bias);
        linear(add, "mlp.down_proj", [d, ff], self.mlp_bias);
    }
}

/// Key and value heads: as many as query heads where the key is null; where it is missing, the family's default.
fn key_value_heads(keys: &mut Reader<'_>, family: &Family, heads: usize) -> usize {
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
fn head_dim(keys: &mut Reader<'_>, family: &Family, hidden_size: usize, heads: usize) -> usize {
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
