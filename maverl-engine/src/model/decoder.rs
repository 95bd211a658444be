//! Decoder of every model family on packed rows (reference: transformers `modeling_llama.py`, `modeling_qwen2.py`,
//! `modeling_qwen3.py`). The families differ in biases, norms of queries and keys, and rope: see [`HfConfig`].
//!
//! Activations are `[N, D]`: the tokens of all rows one after the other, without padding. One function serves training
//! and rollout; the cache is an argument. Training packs whole rows (see [`Tape`](crate::model::Tape) for the backward
//! pass). Rollout computes new tokens on top of key-value caches.

mod backward;
mod cached;
mod head;
mod saved;

use std::sync::Arc;

use maverl_kernels::attention::{Heads, Packing, Segment, attention};
use maverl_kernels::matmul::Precision;
use maverl_kernels::rope::{RopeTable, rope};
use maverl_kernels::{embedding, mlp, norm};

use crate::model::hf_config::HfConfig;
use crate::model::kv::KvStore;
use crate::model::linear::{Linear, Lora};
use crate::model::pool::Pool;
use crate::model::values::Param;
use crate::model::{ModelError, ModelErrorKind};

pub(super) use saved::{Projected, Saved};

/// Tokens that a forward pass may attend to.
pub enum Context<'a> {
    /// Whole rows: each attends to itself.
    Packed(Packing<'a>),
    /// New tokens of each segment, in order, on top of its blocks. Their keys and values are written to the blocks.
    Cached(&'a mut KvStore, &'a [Segment<'a>]),
}

/// A decoder over given weights.
#[derive(Clone)]
pub struct Decoder {
    config: Arc<HfConfig>,
    precision: Precision,
    embed: Param,
    layers: Vec<Layer>,
    norm: Param,
    head: Linear,
    rope: Arc<RopeTable>,
}

#[derive(Clone)]
struct Layer {
    input_norm: Param,
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    /// Norm weight of queries, `[head_dim]`.
    q_norm: Option<Param>,
    /// Norm weight of keys, `[head_dim]`.
    k_norm: Option<Param>,
    post_norm: Param,
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Layer {
    fn new(
        config: &HfConfig,
        index: usize,
        get: &mut dyn FnMut(&str) -> Result<Param, ModelError>,
    ) -> Result<Self, ModelError> {
        let mut at = |name: &str| get(&format!("model.layers.{index}.{name}"));
        let mut norm = |name: &str| at(&format!("{name}.weight"));
        let (input_norm, post_norm) = (norm("input_layernorm")?, norm("post_attention_layernorm")?);
        let mut head_norm = |name: &str| config.qk_norm.then(|| norm(name)).transpose();
        let (q_norm, k_norm) = (head_norm("self_attn.q_norm")?, head_norm("self_attn.k_norm")?);
        let mut linear = |name: &str, bias: bool| -> Result<Linear, ModelError> {
            let weight = at(&format!("{name}.weight"))?;
            let bias = bias.then(|| at(&format!("{name}.bias"))).transpose()?;
            Ok(Linear::new(weight, bias))
        };
        Ok(Self {
            input_norm,
            q: linear("self_attn.q_proj", config.qkv_bias)?,
            k: linear("self_attn.k_proj", config.qkv_bias)?,
            v: linear("self_attn.v_proj", config.qkv_bias)?,
            o: linear("self_attn.o_proj", config.o_bias)?,
            q_norm,
            k_norm,
            post_norm,
            gate: linear("mlp.gate_proj", config.mlp_bias)?,
            up: linear("mlp.up_proj", config.mlp_bias)?,
            down: linear("mlp.down_proj", config.mlp_bias)?,
        })
    }

    /// Iterates over the linear maps, with their names within the layer.
    fn linears(&mut self) -> [(&'static str, &mut Linear); 7] {
        [
            ("self_attn.q_proj", &mut self.q),
            ("self_attn.k_proj", &mut self.k),
            ("self_attn.v_proj", &mut self.v),
            ("self_attn.o_proj", &mut self.o),
            ("mlp.gate_proj", &mut self.gate),
            ("mlp.up_proj", &mut self.up),
            ("mlp.down_proj", &mut self.down),
        ]
    }

    fn freeze(&mut self) {
        self.input_norm.freeze();
        self.post_norm.freeze();
        self.q_norm.iter_mut().chain(&mut self.k_norm).for_each(Param::freeze);
        self.linears().into_iter().flat_map(|(_, linear)| linear.params()).for_each(Param::freeze);
    }
}

impl Decoder {
    /// Builds the decoder. `get` returns a checkpoint's weight by name.
    ///
    /// # Errors
    ///
    /// The error of `get`.
    pub fn new(
        config: &Arc<HfConfig>,
        get: &mut dyn FnMut(&str) -> Result<Param, ModelError>,
    ) -> Result<Self, ModelError> {
        let embed = get("model.embed_tokens.weight")?;
        let layers = (0..config.num_hidden_layers).map(|i| Layer::new(config, i, get));
        let layers = layers.collect::<Result<_, _>>()?;
        let norm = get("model.norm.weight")?;
        let head = if config.tie_word_embeddings { embed.clone() } else { get("lm_head.weight")? };
        let inv_freq = config.rope.inv_freq(config.head_dim);
        let rope = Arc::new(RopeTable::new(&inv_freq, config.max_position_embeddings));
        let (config, head) = (Arc::clone(config), Linear::new(head, None));
        Ok(Self { config, precision: Precision::F32, embed, layers, norm, head, rope })
    }

    /// Returns the decoder with products of another precision.
    #[must_use]
    pub(super) fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    pub(super) fn precision(&self) -> Precision {
        self.precision
    }

    /// Returns the decoder with all weights frozen.
    #[must_use]
    pub(super) fn frozen(mut self) -> Self {
        self.embed.freeze();
        self.norm.freeze();
        self.head.params().for_each(Param::freeze);
        self.layers.iter_mut().for_each(Layer::freeze);
        self
    }

    /// Iterates over the adapter slots of the linear maps, by the map's name (`model.layers.0.self_attn.q_proj`), in a
    /// fixed order.
    pub(super) fn loras(&mut self) -> impl Iterator<Item = (String, &mut Option<Lora>)> {
        self.layers.iter_mut().enumerate().flat_map(|(index, layer)| {
            let named = layer.linears().into_iter();
            named.map(move |(name, linear)| {
                (format!("model.layers.{index}.{name}"), &mut linear.lora)
            })
        })
    }

    fn linears(&self) -> impl Iterator<Item = &Linear> {
        let layers = self.layers.iter().flat_map(|layer| {
            [&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down]
        });
        layers.chain([&self.head])
    }

    /// Packs the weight of every linear map for products of few rows, until [`Decoder::unpack`]. Decoders over the same
    /// base share the packed weights.
    pub fn pack(&self) {
        self.linears().for_each(|linear| linear.pack(self.precision));
    }

    /// Drops the packed weights, so that the weights may change.
    pub fn unpack(&self) {
        self.linears().for_each(Linear::unpack);
    }

    /// Computes the hidden states `[N, D]` after the last norm, for all tokens. `ids` and `positions` are `[N]`.
    ///
    /// # Errors
    ///
    /// If an id or position is out of range.
    pub fn forward(
        &self,
        ids: &[u32],
        positions: &[u32],
        context: Context<'_>,
        pool: &mut Pool,
    ) -> Result<Vec<f32>, ModelError> {
        self.check(ids, positions)?;
        match context {
            Context::Packed(packing) => Ok(self.packed(ids, positions, packing, pool)),
            Context::Cached(store, segments) => {
                Ok(self.cached(ids, positions, store, segments, pool))
            }
        }
    }

    fn packed(
        &self,
        ids: &[u32],
        positions: &[u32],
        packing: Packing<'_>,
        pool: &mut Pool,
    ) -> Vec<f32> {
        let mut x = self.embed(ids, pool);
        for index in 0..self.layers.len() {
            let (out, saved) = self.layer(index, x, positions, packing, pool);
            let x_in = saved.keep_input(pool);
            pool.give([x_in]);
            x = out;
        }
        let hidden = self.last_norm(&x, pool);
        pool.give([x]);
        hidden
    }

    /// Returns an error if an id or position is out of range.
    pub(super) fn check(&self, ids: &[u32], positions: &[u32]) -> Result<(), ModelError> {
        let HfConfig { vocab_size, max_position_embeddings: longest, .. } = *self.config;
        if let Some(position) = positions.iter().find(|&&p| p as usize >= longest) {
            return Err(ModelError::new(
                ModelErrorKind::Argument,
                format!("position {position} of a model for sequences of {longest} tokens"),
            ));
        }
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(ModelError::new(
                ModelErrorKind::Argument,
                format!("token id {id} in a vocabulary of {vocab_size}"),
            ));
        }
        Ok(())
    }

    /// Computes the embeddings `[N, D]`, the first part of [`Decoder::forward`].
    pub(super) fn embed(&self, ids: &[u32], pool: &mut Pool) -> Vec<f32> {
        let width = self.config.hidden_size;
        let mut x = pool.take(ids.len() * width);
        embedding::gather(&self.embed.values(), ids, width, &mut x);
        x
    }

    /// Returns the number of layers.
    pub(super) fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Computes the output of layer `index` from its input `x [N, D]` of packed rows, and the intermediate results.
    ///
    /// ```text
    /// mid = x + o(attention(q(h), k(h), v(h))),   h = norm(x)
    /// out = mid + down(silu(gate(h)) * up(h)),    h = norm(mid)
    /// ```
    pub(super) fn layer(
        &self,
        index: usize,
        x: Vec<f32>,
        positions: &[u32],
        packing: Packing<'_>,
        pool: &mut Pool,
    ) -> (Vec<f32>, Saved) {
        let projected = self.project(index, &x, positions, pool);
        let Projected { q, k, v, .. } = &projected;
        let mut attended = pool.take(q.len());
        attention(q, k, v, packing, self.heads(), &mut attended);
        self.after_attention(index, x, projected, attended, pool)
    }

    /// Computes queries, keys and values of layer `index` from its input `x [N, D]`.
    fn project(&self, index: usize, x: &[f32], positions: &[u32], pool: &mut Pool) -> Projected {
        let (layer, precision) = (&self.layers[index], self.precision);
        let mut h = pool.take(x.len());
        norm::rms_norm(x, &layer.input_norm.values(), self.eps(), &mut h);
        let q = layer.q.project(&h, precision, pool);
        let k = layer.k.project(&h, precision, pool);
        let v = layer.v.project(&h, precision, pool);
        pool.give([h]);
        let (mut q, raw_q) = self.head_norm(q, layer.q_norm.as_ref(), pool);
        let (mut k, raw_k) = self.head_norm(k, layer.k_norm.as_ref(), pool);
        let heads = self.heads();
        rope(&mut q, positions, heads.q, &self.rope);
        rope(&mut k, positions, heads.kv, &self.rope);
        Projected { raw_q, raw_k, q, k, v }
    }

    /// Computes the rest of layer `index` from its input and the output of attention.
    fn after_attention(
        &self,
        index: usize,
        x: Vec<f32>,
        projected: Projected,
        attended: Vec<f32>,
        pool: &mut Pool,
    ) -> (Vec<f32>, Saved) {
        let (layer, precision) = (&self.layers[index], self.precision);
        let mut mid = pool.copy(&x);
        layer.o.forward(&attended, &mut mid, precision.add(), pool);
        let mut h = pool.take(x.len());
        norm::rms_norm(&mid, &layer.post_norm.values(), self.eps(), &mut h);
        let gate = layer.gate.project(&h, precision, pool);
        let up = layer.up.project(&h, precision, pool);
        let mut act = pool.take(gate.len());
        mlp::swiglu(&gate, &up, &mut act);
        let mut out = pool.copy(&mid);
        layer.down.forward(&act, &mut out, precision.add(), pool);
        pool.give([h, act]);
        (out, Saved { x, projected, attended, mid, gate, up })
    }

    /// Applies the norm after the layers, the last part of [`Decoder::forward`].
    pub(super) fn last_norm(&self, x: &[f32], pool: &mut Pool) -> Vec<f32> {
        let mut hidden = pool.take(x.len());
        norm::rms_norm(x, &self.norm.values(), self.eps(), &mut hidden);
        hidden
    }

    fn heads(&self) -> Heads {
        let HfConfig { num_attention_heads, num_key_value_heads, head_dim, .. } = *self.config;
        Heads { q: num_attention_heads, kv: num_key_value_heads, dim: head_dim }
    }

    fn eps(&self) -> f32 {
        self.config.rms_norm_eps
    }

    /// Normalizes each head of `x [N, H * head_dim]` if there is a weight for it; then also returns the input of the
    /// norm.
    fn head_norm(
        &self,
        x: Vec<f32>,
        weight: Option<&Param>,
        pool: &mut Pool,
    ) -> (Vec<f32>, Option<Vec<f32>>) {
        let Some(weight) = weight else { return (x, None) };
        let mut y = pool.take(x.len());
        norm::rms_norm(&x, &weight.values(), self.eps(), &mut y);
        (y, Some(x))
    }
}
