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

use maverl_kernels::attention::{Heads, Packing, Segment};
use maverl_kernels::matmul::Precision;

use crate::model::hf_config::HfConfig;
use crate::model::linear::{Linear, Lora};
use crate::model::ops::{Cpu, DrawnIds, NewTokens, Ops, Turn};
use crate::model::pool::Pool;
use crate::model::tape::Rows;
use crate::model::values::Param;
use crate::model::{ModelError, ModelErrorKind};

pub use saved::Projected;
pub(super) use saved::Saved;

/// Tokens that a forward pass may attend to.
pub enum Context<'a, O: Ops = Cpu> {
    /// Whole rows: each attends to itself.
    Packed(Packing<'a>),
    /// New tokens of each segment, in order, on top of its blocks. Their keys and values are written to the blocks.
    Cached(&'a mut O::Kv, &'a [Segment<'a>]),
    /// New tokens as above, some of which the device has sampled and the host may not have read.
    Drawn(&'a mut O::Kv, &'a [Segment<'a>], DrawnIds<'a, O>),
}

/// A decoder over given weights, on a device.
#[derive(Clone)]
pub struct Decoder<O: Ops = Cpu> {
    ops: O,
    config: Arc<HfConfig>,
    embed: Param<O>,
    layers: Vec<Layer<O>>,
    norm: Param<O>,
    head: Linear<O>,
    rope: Angles<O>,
    passes: Passes<O>,
}

/// Passes that the device has recorded, with the weights of this decoder. A clone has none, as it may get others.
struct Passes<O: Ops>(O::Passes);

impl<O: Ops> Default for Passes<O> {
    fn default() -> Self {
        Self(O::Passes::default())
    }
}

impl<O: Ops> Clone for Passes<O> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Angles of rotary positions that clones share.
struct Angles<O: Ops>(Arc<O::Rope>);

impl<O: Ops> Clone for Angles<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Clone)]
struct Layer<O: Ops> {
    input_norm: Param<O>,
    q: Linear<O>,
    k: Linear<O>,
    v: Linear<O>,
    o: Linear<O>,
    /// Norm weight of queries, `[head_dim]`.
    q_norm: Option<Param<O>>,
    /// Norm weight of keys, `[head_dim]`.
    k_norm: Option<Param<O>>,
    post_norm: Param<O>,
    gate: Linear<O>,
    up: Linear<O>,
    down: Linear<O>,
}

impl<O: Ops> Layer<O> {
    fn new(
        config: &HfConfig,
        index: usize,
        get: &mut dyn FnMut(&str) -> Result<Param<O>, ModelError>,
    ) -> Result<Self, ModelError> {
        let mut at = |name: &str| get(&format!("model.layers.{index}.{name}"));
        let mut norm = |name: &str| at(&format!("{name}.weight"));
        let (input_norm, post_norm) = (norm("input_layernorm")?, norm("post_attention_layernorm")?);
        let mut head_norm = |name: &str| config.qk_norm.then(|| norm(name)).transpose();
        let (q_norm, k_norm) = (head_norm("self_attn.q_norm")?, head_norm("self_attn.k_norm")?);
        let mut linear = |name: &str, bias: bool| -> Result<Linear<O>, ModelError> {
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
    fn linears(&mut self) -> [(&'static str, &mut Linear<O>); 7] {
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
    /// Builds a decoder on the CPU. `get` returns a checkpoint's weight by name.
    ///
    /// # Errors
    ///
    /// The error of `get`.
    pub fn new(
        config: &Arc<HfConfig>,
        get: &mut dyn FnMut(&str) -> Result<Param, ModelError>,
    ) -> Result<Self, ModelError> {
        Self::on(Cpu::default(), config, get)
    }

    /// Returns the decoder with products of another precision.
    #[must_use]
    pub(super) fn with_precision(self, precision: Precision) -> Self {
        Self { ops: Cpu { precision }, ..self }
    }

    pub(super) fn precision(&self) -> Precision {
        self.ops.precision
    }
}

impl<O: Ops> Decoder<O> {
    /// Builds a decoder on a device. `get` returns a checkpoint's weight by name.
    ///
    /// # Errors
    ///
    /// The error of `get`, or if the device fails.
    pub fn on(
        ops: O,
        config: &Arc<HfConfig>,
        get: &mut dyn FnMut(&str) -> Result<Param<O>, ModelError>,
    ) -> Result<Self, ModelError> {
        let embed = get("model.embed_tokens.weight")?;
        let layers = (0..config.num_hidden_layers).map(|i| Layer::new(config, i, get));
        let layers = layers.collect::<Result<_, _>>()?;
        let norm = get("model.norm.weight")?;
        let head = if config.tie_word_embeddings { embed.clone() } else { get("lm_head.weight")? };
        let inv_freq = config.rope.inv_freq(config.head_dim);
        let rope = ops.rope(&inv_freq, config.max_position_embeddings)?;
        let (config, head) = (Arc::clone(config), Linear::new(head, None));
        let (rope, passes) = (Angles(Arc::new(rope)), Passes::default());
        Ok(Self { ops, config, embed, layers, norm, head, rope, passes })
    }

    /// Returns the device.
    pub fn ops(&self) -> &O {
        &self.ops
    }

    /// Returns the passes that the device has recorded.
    #[cfg(all(test, feature = "cuda"))]
    pub(super) fn passes(&self) -> &O::Passes {
        &self.passes.0
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
    pub(super) fn loras(&mut self) -> impl Iterator<Item = (String, &mut Option<Lora<O>>)> {
        self.passes = Passes::default();
        self.layers.iter_mut().enumerate().flat_map(|(index, layer)| {
            let named = layer.linears().into_iter();
            named.map(move |(name, linear)| {
                (format!("model.layers.{index}.{name}"), &mut linear.lora)
            })
        })
    }

    fn linears(&self) -> impl Iterator<Item = &Linear<O>> {
        let layers = self.layers.iter().flat_map(|layer| {
            [&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down]
        });
        layers.chain([&self.head])
    }

    /// Packs the weight of every linear map for products of few rows, until [`Decoder::unpack`]. Decoders over the same
    /// base share the packed weights.
    pub fn pack(&self) {
        self.linears().for_each(|linear| linear.pack(&self.ops));
    }

    /// Drops the packed weights, so that the weights may change.
    pub fn unpack(&self) {
        self.linears().for_each(Linear::unpack);
    }

    /// Computes the hidden states `[N, D]` after the last norm, for all tokens. `ids` and `positions` are `[N]`.
    ///
    /// # Errors
    ///
    /// If an id or position is out of range, or the device fails.
    pub fn forward(
        &self,
        ids: &[u32],
        positions: &[u32],
        context: Context<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        self.check(ids, positions)?;
        let (kv, segments, drawn) = match context {
            Context::Packed(packing) => return self.packed(Rows { ids, positions, packing }, pool),
            Context::Cached(kv, segments) => (kv, segments, None),
            Context::Drawn(kv, segments, drawn) => (kv, segments, Some(drawn)),
        };
        self.cached(NewTokens { ids, positions, segments, drawn }, kv, pool)
    }

    fn packed(&self, rows: Rows<'_>, pool: &mut Pool<O>) -> Result<O::Act, ModelError> {
        let at = self.ops.place(rows)?;
        let mut x = self.embed(&at, pool)?;
        for index in 0..self.layers.len() {
            let (out, saved) = self.layer(index, x, &at, pool)?;
            let x_in = saved.keep_input(pool);
            pool.give_streams([x_in]);
            x = out;
        }
        let hidden = self.last_norm(&x, pool)?;
        pool.give_streams([x]);
        Ok(hidden)
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
    pub(super) fn embed(
        &self,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        self.ops.gather(&self.embed, at, pool)
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
        x: O::Stream,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, Saved<O>), ModelError> {
        let projected = self.project(index, &x, at, pool)?;
        let Projected { q, k, v, .. } = &projected;
        let attended = self.ops.attend([q, k, v], at, self.heads(), pool)?;
        self.after_attention(index, x, projected, attended, pool)
    }

    /// Computes queries, keys and values of layer `index` from its input `x [N, D]`.
    fn project(
        &self,
        index: usize,
        x: &O::Stream,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<Projected<O>, ModelError> {
        let (ops, layer) = (&self.ops, &self.layers[index]);
        let h = ops.norm(x, (&layer.input_norm, self.eps()), pool)?;
        let [q, k, v] = ops.linears(&h, [&layer.q, &layer.k, &layer.v], pool)?;
        pool.give([h]);
        let (q, raw_q) = ops.turn(q, &self.turn_q(layer), at, pool)?;
        let (k, raw_k) = ops.turn(k, &self.turn_k(layer), at, pool)?;
        Ok(Projected { raw_q, raw_k, q, k, v })
    }

    /// Computes the rest of layer `index` from its input and the output of attention.
    fn after_attention(
        &self,
        index: usize,
        x: O::Stream,
        projected: Projected<O>,
        (attended, lse): (O::Act, O::Lse),
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, Saved<O>), ModelError> {
        let (ops, layer) = (&self.ops, &self.layers[index]);
        let mid = ops.linear_onto(&x, &attended, &layer.o, pool)?;
        let h = ops.norm(&mid, (&layer.post_norm, self.eps()), pool)?;
        let [gate, up] = ops.linears(&h, [&layer.gate, &layer.up], pool)?;
        let act = ops.swiglu(&gate, &up, pool)?;
        let out = ops.linear_onto(&mid, &act, &layer.down, pool)?;
        pool.give([h, act]);
        Ok((out, Saved { x, projected, attended, lse, mid, gate, up }))
    }

    /// Applies the norm after the layers, the last part of [`Decoder::forward`].
    pub(super) fn last_norm(
        &self,
        x: &O::Stream,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        self.ops.norm(x, (&self.norm, self.eps()), pool)
    }

    /// Returns norm and rope of a layer's queries.
    fn turn_q<'a>(&'a self, layer: &'a Layer<O>) -> Turn<'a, O> {
        let norm = layer.q_norm.as_ref();
        Turn { heads: self.heads().q, norm, eps: self.eps(), rope: &self.rope.0 }
    }

    /// Returns norm and rope of a layer's keys.
    fn turn_k<'a>(&'a self, layer: &'a Layer<O>) -> Turn<'a, O> {
        let norm = layer.k_norm.as_ref();
        Turn { heads: self.heads().kv, norm, eps: self.eps(), rope: &self.rope.0 }
    }

    fn heads(&self) -> Heads {
        let HfConfig { num_attention_heads, num_key_value_heads, head_dim, .. } = *self.config;
        Heads { q: num_attention_heads, kv: num_key_value_heads, dim: head_dim }
    }

    fn eps(&self) -> f32 {
        self.config.rms_norm_eps
    }
}
