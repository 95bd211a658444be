//! `config.json` of a Hugging Face model directory.
//!
//! The parts of the layers are all that differs between families. `families.rs` has a row for each family (`family.rs`),
//! `layers.rs` makes layers of it. `read_rope.rs` and `read_scaling.rs` read rotary embeddings (`rope.rs`), `nested.rs`
//! configurations with that of a decoder inside, `experts.rs` mixtures of experts, `recurrent.rs` recurrent mixers. `foreign.rs`
//! has the keys that a family does not read and that would change the numbers.

mod experts;
mod families;
mod family;
mod foreign;
mod layers;
mod nested;
mod read_rope;
mod read_scaling;
pub(super) mod reader;
mod recurrent;
mod rope;

use std::borrow::Cow;
use std::sync::Arc;

use maverl_kernels::attention::Heads;
use serde_json::Value;

use crate::files::parts::{Activation, ExpertLayout, LayerShape, LinearShape, NormShape};
use family::{ExpertFamily, ModelFamily, OtherMixer};
use foreign::NeutralSizes;
use layers::LayerSizes;
pub use nested::TensorNames;
pub(crate) use nested::WITHIN;
use read_scaling::{LONGEST, RopeSizes};
use reader::{ConfigReader, WIDEST};
pub use rope::{Frequencies, Llama3, LongRope, Rope, Scaling, Yarn};

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
    /// Longest sequence with the long factors of LongRoPE ([`HfConfig::with_long_rope`]); without it, the longest sequence.
    pub whole_context: usize,
    /// Rotary position embeddings of queries and keys; a layer names one of them.
    pub ropes: Vec<Rope>,
    /// Models of this family have activations beyond 65,504, the range of f16.
    pub beyond_f16: bool,
    /// Factor of the embeddings.
    pub embed_scale: Option<f32>,
    /// Bound `c` of the logits `z`, which become `c tanh(z / c)`.
    pub head_softcap: Option<f32>,
    /// The output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Names of the tensors in checkpoints.
    pub names: TensorNames,
    /// Layout of experts in the files of a saved model.
    pub(crate) expert_layout: ExpertLayout,
    /// Starts of the names of tensors that are not read; a saved model has them unchanged.
    pub skipped: &'static [&'static str],
    /// `config.json` ties the head, but the checkpoint has another ([`HfConfig::load`]).
    pub head_untied: bool,
    /// The checkpoint has the head of a model that classifies sequences, which a language model has not: a warning
    /// ([`HfConfig::warning`]).
    pub classifies: bool,
    /// Keys of other families that would change the numbers, with their values: a warning ([`HfConfig::warning`]).
    pub unread: Vec<String>,
    /// Sentences about keys that have no effect, or another one than one may think: a warning ([`HfConfig::warning`]).
    pub notes: Vec<String>,
}

/// Error of a `config.json` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("config.json: {0}")]
pub struct HfConfigError(
    /// Which keys, what was found, what is supported.
    pub String,
);

/// Most decoder layers; each is some tensors, and their list is made before a weight is read.
const MOST_LAYERS: usize = 1024;
/// Width of a head that is wider than that of any model.
const WIDEST_HEAD: usize = 4096;
/// Most rows of the embedding.
const MOST_TOKENS: usize = 1 << 24;

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
        let (json, nested) = match nested::text_config(json) {
            Some(inner) => (Cow::Owned(inner), true),
            None => (Cow::Borrowed(json), false),
        };
        let mut keys = ConfigReader::new(&json);
        let mut config = Self::read(&mut keys);
        if nested {
            config.names = nested::usual_names(config.model_type);
            config.skipped = nested::SKIPPED;
        }
        config.notes = std::mem::take(&mut keys.notes);
        match &keys.problems[..] {
            [] => Ok(config),
            problems => Err(HfConfigError(problems.join("; "))),
        }
    }

    fn read(keys: &mut ConfigReader<'_>) -> Self {
        let family = families::read_family(keys);
        refuse_unsupported(keys, &family);
        refuse_activation(keys, &family);
        let (defaults, sizes) = (family.defaults, read_sizes(keys, &family));
        let LayerSizes { hidden, heads, eps, .. } = sizes;
        let context =
            keys.size("max_position_embeddings", defaults.max_position_embeddings, LONGEST);
        let vocab_size = keys.size("vocab_size", defaults.vocab_size, MOST_TOKENS);
        let (ropes, query_scale) =
            read_rope::read_ropes(keys, &family, RopeSizes { context, head_dim: heads.dim });
        let head_softcap = family.softcaps.logits;
        let mut config = Self {
            model_type: family.name,
            hidden_size: hidden,
            layers: layers::read_layers(keys, &family, LayerSizes { query_scale, ..sizes }),
            norm: NormShape { name: family.names.last_norm, width: hidden, eps, gain: family.gain },
            vocab_size,
            max_position_embeddings: short_context(keys, &ropes, context),
            whole_context: context,
            ropes,
            beyond_f16: family.beyond_f16,
            embed_scale: family.scaled.then(|| (hidden as f64).sqrt() as f32),
            head_softcap: head_softcap.and_then(|(key, cap)| layers::softcap(keys, key, cap)),
            tie_word_embeddings: read_tied(keys, &family),
            names: nested::OWN,
            expert_layout: family.experts.layout(),
            skipped: &[],
            head_untied: false,
            classifies: false,
            unread: Vec::new(),
            notes: Vec::new(),
        };
        let sizes = NeutralSizes { longest: context, head_dim: heads.dim };
        config.unread = foreign::unread(keys, &family, sizes);
        foreign::note_ignored(keys);
        // Sizes that are missing or wrong make no sense together either.
        if keys.problems.is_empty() {
            keys.problems.extend(mismatches(heads));
        }
        if keys.problems.is_empty() && !config.has_finite_frequencies() {
            let what = "the values of `rope_theta`, `rope_parameters` or `rope_scaling` give frequencies that are no numbers of f32";
            keys.problem(what.to_owned());
        }
        config
    }

    /// Returns the heads of attention, which are equal in all layers that have attention; one has at least.
    pub fn heads(&self) -> Heads {
        let mut attention = self.layers.iter().filter_map(|layer| layer.mixer.attention());
        attention.next().expect("a layer with attention").heads
    }

    /// Returns true if a layer has a state that changes with every token.
    pub fn is_recurrent(&self) -> bool {
        self.layers.iter().any(|layer| layer.mixer.attention().is_none())
    }

    /// Returns the configuration for sequences longer than the original context of LongRoPE: all tokens then have its long
    /// factors. They are those of the model, not of a sequence, because a token must have the same bits in every batch, and
    /// keys in a cache cannot be rotated again when a sequence becomes longer.
    #[must_use]
    pub fn with_long_rope(mut self) -> Self {
        self.ropes.iter_mut().for_each(Rope::use_long_factors);
        self.max_position_embeddings = self.whole_context;
        self
    }

    /// Returns true if a rotation by each frequency can be computed. Heads that no model has are not looked at: they cost what
    /// they are wide.
    fn has_finite_frequencies(&self) -> bool {
        let finite = |of: &Frequencies| {
            of.factor.is_finite() && of.inv_freq.iter().all(|frequency| frequency.is_finite())
        };
        self.heads().dim > WIDEST_HEAD || self.frequencies().iter().all(finite)
    }

    /// Returns the frequencies of each rotary embedding.
    pub fn frequencies(&self) -> Vec<Frequencies> {
        self.ropes.iter().map(|rope| rope.frequencies(self.heads().dim)).collect()
    }

    /// The name and shape of every tensor of a checkpoint, in a fixed order.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let table = vec![self.vocab_size, self.hidden_size];
        let names = self.names;
        let mut tensors = vec![(names.embedding(), table.clone())];
        for (index, layer) in self.layers.iter().enumerate() {
            tensors
                .extend(layer.tensors().map(|(name, dims)| (names.in_layer(index, &name), dims)));
        }
        let (norm, dims) = self.norm.tensor();
        tensors.push((names.beside_layers(&norm), dims));
        if !self.tie_word_embeddings {
            tensors.push((names.head.to_owned(), table));
        }
        tensors
    }

    /// Iterates over the linear maps of the layers but routers, with their names in adapters, which are those in checkpoints
    /// without `.weight`, unless the decoder is part of a larger model.
    pub fn linears(&self) -> impl Iterator<Item = (String, &LinearShape)> {
        let names = self.names;
        self.layers.iter().enumerate().flat_map(move |(index, layer)| {
            layer.packed_linears().map(move |map| (names.module(index, &map.full_name()), map))
        })
    }

    /// Returns true if adapters may correct a linear map of [`HfConfig::linears`]: all, but experts that PEFT has as one
    /// tensor by inputs (gpt-oss).
    pub fn adapts(&self, map: &LinearShape) -> bool {
        map.expert.is_none() || self.expert_layout == ExpertLayout::Each
    }

    /// Returns true if a tensor of a checkpoint is not read.
    pub fn skips(&self, tensor: &str) -> bool {
        self.skipped.iter().any(|start| tensor.starts_with(start))
    }
}

/// Reads the sizes of the layers. Factors of queries come from the rotary embedding.
fn read_sizes(keys: &mut ConfigReader<'_>, family: &ModelFamily) -> LayerSizes {
    let defaults = family.defaults;
    let layers = keys.size("num_hidden_layers", defaults.num_hidden_layers, MOST_LAYERS);
    let hidden = keys.size("hidden_size", defaults.hidden_size, WIDEST);
    let q = keys.size("num_attention_heads", defaults.num_attention_heads, WIDEST);
    let kv = key_value_heads(keys, family, q);
    let heads = Heads::new(q, kv, head_dim(keys, family, hidden, q));
    let intermediate = match family.other_mixer {
        OtherMixer::ShortConv => recurrent::adjusted_width(keys, defaults.intermediate_size),
        _ => keys.size("intermediate_size", defaults.intermediate_size, WIDEST),
    };
    let eps = keys.number(family.names.eps).unwrap_or(defaults.rms_norm_eps) as f32;
    LayerSizes { layers, hidden, heads, intermediate, eps, query_scale: None }
}

/// Reads whether the head is the embedding.
fn read_tied(keys: &mut ConfigReader<'_>, family: &ModelFamily) -> bool {
    let first = family.names.tied.filter(|key| keys.has(key));
    keys.flag(first.unwrap_or("tie_word_embeddings"), family.defaults.tied)
}

/// Returns the longest sequence with the short factors of LongRoPE, if there are any.
fn short_context(keys: &mut ConfigReader<'_>, ropes: &[Rope], context: usize) -> usize {
    let original =
        ropes.iter().find_map(Rope::short_context).filter(|original| *original < context);
    if let Some(original) = original {
        keys.note(format!(
            "the rope is \"longrope\", whose short factors are used: sequences have at most {original} of {context} tokens; for \
             longer ones, write the values of `long_factor` as `short_factor`, too"
        ));
    }
    original.unwrap_or(context)
}

/// Refuses what would change the numbers and is not built.
fn refuse_unsupported(keys: &mut ConfigReader<'_>, family: &ModelFamily) {
    let mxfp4 = matches!(family.experts, ExpertFamily::GptOss);
    for key in ["quantization_config", "compression_config"] {
        let Some(value) = keys.value(key) else { continue };
        if mxfp4 && value.get("quant_method").is_some_and(|method| method == "mxfp4") {
            continue;
        }
        let also = if mxfp4 { ", and experts of `quant_method` \"mxfp4\"" } else { "" };
        keys.wrong(key, &format!("weights of f32, f16 and bf16 are supported{also}"));
    }
    let counts = experts::COUNTS.into_iter();
    for key in counts.filter(|_| matches!(family.experts, ExpertFamily::None)) {
        if keys.value(key).is_some_and(|experts| experts.as_u64() != Some(0)) {
            keys.wrong(key, "mixtures of experts of this family are not supported");
        }
    }
}

/// Refuses another activation than the family's, and attention to later tokens where the family has a key for it.
fn refuse_activation(keys: &mut ConfigReader<'_>, family: &ModelFamily) {
    const BOTH_WAYS: &str = "use_bidirectional_attention";
    let (key, activation) = family.activation;
    let names: &[&str] = match activation {
        Activation::Silu | Activation::Clamped(_) => &["silu"],
        Activation::Gelu => &["gelu_pytorch_tanh"],
    };
    if keys.text(key).is_some_and(|act| !names.contains(&act)) {
        keys.wrong(key, &format!("supported: {:?}", names[0]));
    }
    if family.reads.contains(&BOTH_WAYS) && keys.value(BOTH_WAYS) == Some(&Value::Bool(true)) {
        keys.wrong(BOTH_WAYS, "only attention to earlier tokens is supported");
    }
}

/// Returns the problems of heads that do not fit together.
fn mismatches(Heads { q, kv, dim, .. }: Heads) -> impl Iterator<Item = String> {
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
    let default = family.defaults.num_key_value_heads.unwrap_or(heads);
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
    if keys.has("head_dim") && keys.value("head_dim").is_none() && !family.defaults.null_head_dim {
        keys.wrong("head_dim", "a whole number is needed, or no such key");
    }
    if let Some(head_dim) = keys.optional_size("head_dim", WIDEST).or(family.defaults.head_dim) {
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
