//! The decoder of every family on packed rows (reference: transformers `modeling_llama.py`, `modeling_qwen2.py`,
//! `modeling_qwen3.py`). The families differ in biases, norms of queries and keys, and rope: see [`HfConfig`].
//!
//! One function serves training (rows packed one after the other, gradients flow) and rollout (new tokens on top of
//! key-value caches): the cache is an argument. `[N, D]` is tokens by width, without padding.

use std::sync::Arc;

use candle_core::{Result, Tensor, bail};
use maverl_kernels::attention::{Heads, Segment};
use maverl_kernels::rope::RopeTable;

use crate::model::hf_config::HfConfig;
use crate::model::kv::KvStore;
use crate::model::nn::{self, Lora};

/// What the tokens of a forward pass may attend to.
pub enum Context<'a> {
    /// Row `r` is the tokens `offsets[r]..offsets[r + 1]` and sees itself.
    Packed(&'a Arc<[usize]>),
    /// Each segment's new tokens, in order, on top of its blocks; they are written to them.
    Cached(&'a mut KvStore, &'a [Segment<'a>]),
}

/// A decoder over given tensors: gradients flow to those that are variables.
#[derive(Clone)]
pub struct Decoder {
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
    q: Projection,
    k: Projection,
    v: Projection,
    o: Projection,
    /// `[head_dim]`.
    q_norm: Option<Tensor>,
    /// `[head_dim]`.
    k_norm: Option<Tensor>,
    post_norm: Tensor,
    gate: Projection,
    up: Projection,
    down: Projection,
}

/// A linear map as a checkpoint stores it: `weight [O, I]`, `bias [O]`; and what an adapter adds to it.
#[derive(Clone)]
struct Projection {
    weight: Tensor,
    bias: Option<Tensor>,
    lora: Option<Lora>,
}

impl Projection {
    /// `y [N, O] = x [N, I] weightᵀ + bias`, and the adapter's part.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.lora {
            None => nn::linear_bias(x, &self.weight, self.bias.as_ref()),
            Some(lora) => nn::lora_linear(x, &self.weight, self.bias.as_ref(), lora),
        }
    }
}

impl Layer {
    fn new(
        config: &HfConfig,
        index: usize,
        get: &mut dyn FnMut(&str) -> Result<Tensor>,
    ) -> Result<Self> {
        let mut at = |name: &str| get(&format!("model.layers.{index}.{name}"));
        let mut norm = |name: &str| at(&format!("{name}.weight"));
        let (input_norm, post_norm) = (norm("input_layernorm")?, norm("post_attention_layernorm")?);
        let mut head_norm = |name: &str| config.qk_norm.then(|| norm(name)).transpose();
        let (q_norm, k_norm) = (head_norm("self_attn.q_norm")?, head_norm("self_attn.k_norm")?);
        let mut projection = |name: &str, bias: bool| -> Result<Projection> {
            let weight = at(&format!("{name}.weight"))?;
            let bias = bias.then(|| at(&format!("{name}.bias"))).transpose()?;
            Ok(Projection { weight, bias, lora: None })
        };
        Ok(Self {
            input_norm,
            q: projection("self_attn.q_proj", config.qkv_bias)?,
            k: projection("self_attn.k_proj", config.qkv_bias)?,
            v: projection("self_attn.v_proj", config.qkv_bias)?,
            o: projection("self_attn.o_proj", config.o_bias)?,
            q_norm,
            k_norm,
            post_norm,
            gate: projection("mlp.gate_proj", config.mlp_bias)?,
            up: projection("mlp.up_proj", config.mlp_bias)?,
            down: projection("mlp.down_proj", config.mlp_bias)?,
        })
    }

    /// What an adapter adds to each linear map, by the map's name within the layer.
    fn loras(&mut self) -> [(&'static str, &mut Option<Lora>); 7] {
        [
            ("self_attn.q_proj", &mut self.q.lora),
            ("self_attn.k_proj", &mut self.k.lora),
            ("self_attn.v_proj", &mut self.v.lora),
            ("self_attn.o_proj", &mut self.o.lora),
            ("mlp.gate_proj", &mut self.gate.lora),
            ("mlp.up_proj", &mut self.up.lora),
            ("mlp.down_proj", &mut self.down.lora),
        ]
    }
}

impl Decoder {
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
        let layers = (0..config.num_hidden_layers).map(|i| Layer::new(config, i, get));
        let layers = layers.collect::<Result<_>>()?;
        let norm = get("model.norm.weight")?;
        let head = if config.tie_word_embeddings { embed.clone() } else { get("lm_head.weight")? };
        let inv_freq = config.rope.inv_freq(config.head_dim);
        let rope = Arc::new(RopeTable::new(&inv_freq, config.max_position_embeddings));
        Ok(Self { config: Arc::clone(config), embed, layers, norm, head, rope })
    }

    /// What an adapter adds to each linear map, by the map's name (`model.layers.0.self_attn.q_proj`), in a fixed order.
    pub(super) fn loras(&mut self) -> impl Iterator<Item = (String, &mut Option<Lora>)> {
        self.layers.iter_mut().enumerate().flat_map(|(index, layer)| {
            let named = layer.loras().into_iter();
            named.map(move |(name, lora)| (format!("model.layers.{index}.{name}"), lora))
        })
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
        let (eps, context_length) = (self.config.rms_norm_eps, self.config.max_position_embeddings);
        if let Some(position) = positions.iter().find(|&&p| p as usize >= context_length) {
            bail!("position {position} of a model for sequences of {context_length} tokens");
        }
        let mut x = nn::embed(&self.embed, ids)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let h = nn::rms_norm(&x, &layer.input_norm, eps)?;
            x = (x + self.attention(index, layer, &h, positions, &mut context)?)?;
            let h = nn::rms_norm(&x, &layer.post_norm, eps)?;
            let h = nn::swiglu(&layer.gate.forward(&h)?, &layer.up.forward(&h)?)?;
            x = (x + layer.down.forward(&h)?)?;
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
        let q = self.head_norm(layer.q.forward(h)?, layer.q_norm.as_ref())?;
        let k = self.head_norm(layer.k.forward(h)?, layer.k_norm.as_ref())?;
        let v = layer.v.forward(h)?;
        let q = nn::rotary(&q, positions, heads.q, &self.rope)?;
        let k = nn::rotary(&k, positions, heads.kv, &self.rope)?;
        let out = match context {
            Context::Packed(offsets) => nn::attend(&q, &k, &v, offsets, heads)?,
            Context::Cached(store, segments) => {
                nn::with_values(&k, |k| {
                    nn::with_values(&v, |v| store.append(index, k, v, segments))
                })??;
                nn::attend_cached(&q, store.layer(index), segments, heads)?
            }
        };
        layer.o.forward(&out)
    }

    /// Normalizes each head of `x [N, H * head_dim]` where there is a weight for it.
    fn head_norm(&self, x: Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
        match weight {
            None => Ok(x),
            Some(weight) => nn::rms_norm(&x, weight, self.config.rms_norm_eps),
        }
    }
}
