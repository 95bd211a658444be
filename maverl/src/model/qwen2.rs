//! The Qwen2 decoder on packed rows (Yang et al., 2024, arXiv:2407.10671; reference: transformers `modeling_qwen2.py`).
//!
//! One function serves training (rows packed one after the other, gradients flow) and rollout (new tokens on top of
//! key-value caches): the cache is an argument. `[N, D]` is tokens by width, without padding.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use maverl_kernels::attention::{Heads, Segment};
use maverl_kernels::rope::RopeTable;

use crate::model::hf_config::HfConfig;
use crate::model::nn;

/// What the tokens of a forward pass may attend to.
pub enum Context<'a> {
    /// Row `r` is the tokens `offsets[r]..offsets[r + 1]` and sees itself.
    Packed(&'a Arc<[usize]>),
    /// Each sequence has so many new tokens, in order, on top of its cache; they are appended to it.
    Cached(&'a mut [(&'a mut KvCache, usize)]),
}

/// Keys and values of one sequence, `[len, Hkv * head_dim]` a layer.
#[derive(Debug, Clone, Default)]
pub struct KvCache {
    layers: Vec<(Vec<f32>, Vec<f32>)>,
    len: usize,
}

impl KvCache {
    /// An empty cache with room for `tokens`.
    pub fn new(config: &HfConfig, tokens: usize) -> Self {
        let room = || Vec::with_capacity(tokens * config.num_key_value_heads * config.head_dim);
        Self { layers: (0..config.num_hidden_layers).map(|_| (room(), room())).collect(), len: 0 }
    }

    /// Tokens in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A decoder over given tensors: gradients flow to those that are variables.
#[derive(Clone)]
pub struct Qwen2 {
    config: Arc<HfConfig>,
    embed: Tensor,
    layers: Vec<Layer>,
    norm: Tensor,
    head: Tensor,
    rope: Arc<RopeTable>,
}

#[derive(Clone)]
struct Layer {
    input_norm: Tensor,
    q: (Tensor, Tensor),
    k: (Tensor, Tensor),
    v: (Tensor, Tensor),
    o: Tensor,
    post_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
}

impl Qwen2 {
    /// Builds the decoder; `get` returns a checkpoint's tensor by name and shape.
    ///
    /// # Errors
    ///
    /// What `get` returns.
    pub fn new(
        config: &Arc<HfConfig>,
        get: &mut dyn FnMut(&str) -> Result<Tensor>,
    ) -> Result<Self> {
        let embed = get("model.embed_tokens.weight")?;
        let mut layers = Vec::with_capacity(config.num_hidden_layers);
        for i in 0..config.num_hidden_layers {
            let mut at = |name: &str| get(&format!("model.layers.{i}.{name}"));
            layers.push(Layer {
                input_norm: at("input_layernorm.weight")?,
                q: (at("self_attn.q_proj.weight")?, at("self_attn.q_proj.bias")?),
                k: (at("self_attn.k_proj.weight")?, at("self_attn.k_proj.bias")?),
                v: (at("self_attn.v_proj.weight")?, at("self_attn.v_proj.bias")?),
                o: at("self_attn.o_proj.weight")?,
                post_norm: at("post_attention_layernorm.weight")?,
                gate: at("mlp.gate_proj.weight")?,
                up: at("mlp.up_proj.weight")?,
                down: at("mlp.down_proj.weight")?,
            });
        }
        let norm = get("model.norm.weight")?;
        let head = if config.tie_word_embeddings { embed.clone() } else { get("lm_head.weight")? };
        let half = config.head_dim / 2;
        let inv_freq: Vec<f32> = (0..half)
            .map(|i| (1.0 / config.rope_theta.powf(2.0 * i as f64 / config.head_dim as f64)) as f32)
            .collect();
        let rope = Arc::new(RopeTable::new(&inv_freq, config.max_position_embeddings));
        Ok(Self { config: Arc::clone(config), embed, layers, norm, head, rope })
    }

    /// The output head `[V, D]`.
    pub fn head(&self) -> &Tensor {
        &self.head
    }

    /// Hidden states `[N, D]` after the last norm, for all tokens. `ids` and `positions` are `[N]`.
    ///
    /// # Errors
    ///
    /// If an id or position is out of range.
    pub fn forward(
        &self,
        ids: &Arc<[u32]>,
        positions: &Arc<[u32]>,
        mut context: Context<'_>,
    ) -> Result<Tensor> {
        let eps = self.config.rms_norm_eps;
        let mut x = nn::embed(&self.embed, ids)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let h = nn::rms_norm(&x, &layer.input_norm, eps)?;
            x = (x + self.attention(index, layer, &h, positions, &mut context)?)?;
            let h = nn::rms_norm(&x, &layer.post_norm, eps)?;
            let h = nn::swiglu(&nn::linear(&h, &layer.gate)?, &nn::linear(&h, &layer.up)?)?;
            x = (x + nn::linear(&h, &layer.down)?)?;
        }
        if let Context::Cached(sequences) = context {
            sequences.iter_mut().for_each(|(cache, new)| cache.len += *new);
        }
        nn::rms_norm(&x, &self.norm, eps)
    }

    /// Logits `[M, V]` of hidden states `[M, D]`.
    ///
    /// # Errors
    ///
    /// If the widths differ.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        nn::linear(hidden, &self.head)
    }

    fn attention(
        &self,
        index: usize,
        layer: &Layer,
        h: &Tensor,
        positions: &Arc<[u32]>,
        context: &mut Context<'_>,
    ) -> Result<Tensor> {
        let HfConfig { num_attention_heads, num_key_value_heads, head_dim, .. } = *self.config;
        let heads = Heads { q: num_attention_heads, kv: num_key_value_heads, dim: head_dim };
        let q = nn::linear_bias(h, &layer.q.0, Some(&layer.q.1))?;
        let k = nn::linear_bias(h, &layer.k.0, Some(&layer.k.1))?;
        let v = nn::linear_bias(h, &layer.v.0, Some(&layer.v.1))?;
        let q = nn::rotary(&q, positions, heads.q, &self.rope)?;
        let k = nn::rotary(&k, positions, heads.kv, &self.rope)?;
        let out = match context {
            Context::Packed(offsets) => nn::attend(&q, &k, &v, offsets, heads)?,
            Context::Cached(sequences) => {
                append(sequences, index, &k, &v, heads.kv * heads.dim)?;
                let segments: Vec<Segment<'_>> = sequences
                    .iter()
                    .map(|(cache, new)| {
                        let (keys, values) = &cache.layers[index];
                        Segment { new_tokens: *new, keys, values }
                    })
                    .collect();
                nn::attend_cached(&q, &segments, heads)?
            }
        };
        nn::linear(&out, &layer.o)
    }
}

/// Appends each sequence's share of the new keys and values `[N, width]` to its cache.
fn append(
    sequences: &mut [(&mut KvCache, usize)],
    layer: usize,
    k: &Tensor,
    v: &Tensor,
    width: usize,
) -> Result<()> {
    nn::with_values(k, |k| {
        nn::with_values(v, |v| {
            let mut at = 0;
            for (cache, new) in sequences.iter_mut() {
                let span = at * width..(at + *new) * width;
                cache.layers[layer].0.extend_from_slice(&k[span.clone()]);
                cache.layers[layer].1.extend_from_slice(&v[span]);
                at += *new;
            }
        })
    })?
}
