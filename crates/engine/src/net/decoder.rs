//! Decoder of every model family on packed rows (reference: transformers `modeling_llama.py` and those of the other families).
//! It computes what the parts of its layers say ([`Layer`]), and knows no family.
//!
//! Activations are `[N, D]`: the tokens of all rows one after the other, without padding. One function serves training
//! and rollout; the cache is an argument. Training packs whole rows (see [`Tape`](crate::net::Tape) for the backward
//! pass). Rollout computes new tokens on top of key-value caches.

mod attention;
mod cached;
mod delta_net;
mod experts;
mod head;
mod layer;
mod load;
mod mixer;
mod mlp;
mod short_conv;

use std::sync::Arc;

use maverl_kernels::attention::{Packing, Segment};
use maverl_kernels::matmul::Precision;

use crate::files::parts::{Experts, Layer, LayerShape, SINKS};
use crate::files::{HfConfig, ModelError};
use crate::net::experts::{BalanceTerm, PackedRoutes, SavedExperts};
use crate::net::gradients::Gradients;
use crate::net::linear::{Linear, Lora, OutputHead};
use crate::net::norm::Norm;
use crate::net::ops::{Cpu, NewTokens, Ops};
use crate::net::pool::Pool;
use crate::net::rows::Rows;
use crate::net::values::Param;

use layer::{DecoderLayer, LayerPass};
use load::{load_layer, load_norm};
use mixer::SavedMixer;
use mlp::SavedMlp;

/// Tokens that a forward pass may attend to.
pub enum Context<'a, O: Ops = Cpu> {
    /// Whole rows: each attends to itself.
    Packed(Packing<'a>),
    /// Whole rows, with experts in place of those that routers choose.
    Routed(Packing<'a>, &'a PackedRoutes),
    /// New tokens of each segment, in order, on top of its blocks. Their keys and values are written to the blocks.
    Cached(&'a mut O::Kv, &'a [Segment<'a>]),
}

/// A decoder over given weights, on a device.
#[derive(Clone)]
pub struct Decoder<O: Ops = Cpu> {
    ops: O,
    config: Arc<HfConfig>,
    embed: Param<O>,
    layers: Vec<DecoderLayer<O>>,
    /// Sinks of the attention of each layer, if it has any, `[heads]`.
    sinks: Vec<Option<Param<O>>>,
    norm: Norm<O>,
    head: OutputHead<O>,
    ropes: Angles<O>,
    passes: RecordedPasses<O>,
}

/// Passes that the device has recorded, with the weights of this decoder. A clone has none, as it may get others.
struct RecordedPasses<O: Ops>(O::Passes);

impl<O: Ops> Default for RecordedPasses<O> {
    fn default() -> Self {
        Self(O::Passes::default())
    }
}

impl<O: Ops> Clone for RecordedPasses<O> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Angles of rotary positions, of each rotary embedding, that clones share.
struct Angles<O: Ops>(Arc<[O::Rope]>);

impl<O: Ops> Clone for Angles<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Results of a layer that its backward pass needs.
#[derive(Debug)]
pub(super) struct Saved<O: Ops> {
    mixer: SavedMixer<O>,
    mlp: SavedMlp<O>,
}

impl<O: Ops> Saved<O> {
    /// Returns all buffers but the layer's input to the pool.
    pub(super) fn keep_input(self, pool: &mut Pool<O>) -> O::Stream {
        self.mlp.give(pool);
        self.mixer.keep_input(pool)
    }

    /// Returns the results of the layer's experts, if it has any.
    pub(super) fn experts(&self) -> Option<&SavedExperts<O>> {
        match &self.mlp {
            SavedMlp::Gated(_) => None,
            SavedMlp::Experts(saved) => Some(&saved.experts),
        }
    }
}

impl LayerShape {
    /// Returns the numbers of a token that a layer keeps for its backward pass.
    pub fn saved_numbers(&self) -> usize {
        self.mixer_saved() + self.mlp_saved()
    }
}

impl Decoder {
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
        get: &dyn Fn(&str) -> Result<Param<O>, ModelError>,
    ) -> Result<Self, ModelError> {
        let names = config.names;
        let embed = get(&names.embedding())?;
        let shapes = config.layers.iter().enumerate();
        let layers = shapes
            .map(|(index, shape)| load_layer(shape, &|name| get(&names.in_layer(index, name))));
        let layers = layers.collect::<Result<_, _>>()?;
        let sinks = config.layers.iter().enumerate().map(|(index, shape)| {
            let attention = shape.mixer.attention().filter(|attention| attention.sinks);
            attention.map(|_| get(&names.in_layer(index, SINKS))).transpose()
        });
        let sinks = sinks.collect::<Result<_, _>>()?;
        let norm = load_norm(&config.norm, &|name| get(&names.beside_layers(name)))?;
        let head = if config.tie_word_embeddings { embed.clone() } else { get(names.head)? };
        let head = OutputHead { map: Linear::new(head, None), softcap: config.head_softcap };
        let frequencies = config.frequencies().into_iter();
        let ropes = frequencies.map(|of| ops.rope(&of, config.max_position_embeddings));
        let ropes = Angles(ropes.collect::<Result<Vec<_>, _>>()?.into());
        let (config, passes) = (Arc::clone(config), RecordedPasses::default());
        Ok(Self { ops, config, embed, layers, sinks, norm, head, ropes, passes })
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
        self.norm.weight.freeze();
        self.head.map.params().for_each(Param::freeze);
        self.sinks.iter_mut().flatten().for_each(Param::freeze);
        for layer in &mut self.layers {
            layer.linears_mut().flat_map(Linear::params).for_each(Param::freeze);
            let experts = layer.mlp.experts_mut().into_iter().flat_map(Experts::linears_mut);
            experts.flat_map(Linear::params).for_each(Param::freeze);
            layer.norms_mut().for_each(|norm| norm.weight.freeze());
            layer.mixer.others_mut().into_iter().for_each(Param::freeze);
        }
        self
    }

    /// Iterates over the adapter slots of the linear maps but routers, by the name of the module
    /// (`model.layers.0.self_attn.q_proj`), in a fixed order: first those of maps that every token passes, then those of experts.
    pub(super) fn loras(&mut self) -> impl Iterator<Item = (String, &mut Option<Lora<O>>)> {
        self.passes = RecordedPasses::default();
        let maps = self.layers.iter_mut().flat_map(Layer::packed_linears_mut);
        let slots = self.config.linears().zip(maps);
        let slots = slots.map(|((name, shape), map)| (shape.expert.is_some(), name, &mut map.lora));
        let mut slots: Vec<_> = slots.collect();
        slots.sort_by_key(|(of_expert, ..)| *of_expert);
        slots.into_iter().map(|(_, name, lora)| (name, lora))
    }

    /// Iterates over the linear maps of the layers, but routers.
    pub(super) fn layer_maps(&self) -> impl Iterator<Item = &Linear<O>> {
        self.layers.iter().flat_map(Layer::packed_linears)
    }

    fn linears(&self) -> impl Iterator<Item = &Linear<O>> {
        self.layer_maps().chain([&self.head.map])
    }

    /// Packs the weight of every linear map but routers for products of few rows, until [`Decoder::unpack`]. Decoders over
    /// the same base share the packed weights.
    pub fn pack(&self) {
        self.linears().for_each(|linear| linear.pack(|weight| self.ops.pack(weight)));
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
        match context {
            Context::Packed(packing) => {
                self.decode_packed(Rows { ids, positions, packing }, None, pool)
            }
            Context::Routed(packing, routes) => {
                self.decode_packed(Rows { ids, positions, packing }, Some(routes), pool)
            }
            Context::Cached(kv, segments) => {
                let tokens = NewTokens { ids, positions, segments, drawn: None };
                self.decode_cached(tokens, kv, pool)
            }
        }
    }

    fn decode_packed(
        &self,
        rows: Rows<'_>,
        routes: Option<&PackedRoutes>,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        self.check(rows.ids, rows.positions)?;
        let at = self.ops.place(rows)?;
        let mut x = self.embed(&at, pool)?;
        for index in 0..self.layers.len() {
            let (out, saved) = self.layer(index, x, (&at, routes), pool)?;
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
            return Err(ModelError::wrong_argument(format!(
                "position {position} of a model for sequences of {longest} tokens"
            )));
        }
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(ModelError::wrong_argument(format!(
                "token id {id} in a vocabulary of {vocab_size}"
            )));
        }
        Ok(())
    }

    /// Computes the embeddings `[N, D]`, the first part of [`Decoder::forward`].
    pub(super) fn embed(
        &self,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let mut x = self.ops.gather(&self.embed, at, pool)?;
        if let Some(scale) = self.config.embed_scale {
            self.ops.scale_stream(&mut x, scale)?;
        }
        Ok(x)
    }

    /// Adds the gradient of the embeddings. That of their result may be changed.
    pub(super) fn embed_backward(
        &self,
        at: &O::Placed<'_>,
        dx: &mut O::Stream,
        gradients: &mut Gradients<'_, O>,
    ) -> Result<(), ModelError> {
        if let Some(scale) = self.config.embed_scale {
            self.ops.scale_stream(dx, scale)?;
        }
        self.ops.gather_back(&self.embed, dx, at, gradients)
    }

    /// Returns the number of layers.
    pub(super) fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Returns layer `index` for a pass.
    fn layer_pass(&self, index: usize) -> LayerPass<'_, O> {
        let layer = &self.layers[index];
        let rope = layer.mixer.attention().and_then(|attention| attention.rope);
        let rope = rope.map(|rope| &self.ropes.0[rope]);
        let sinks = self.sinks[index].as_ref();
        LayerPass { ops: &self.ops, rope, sinks, routes: None, layer }
    }

    /// Computes the output of layer `index` from its input `x [N, D]` of packed rows, which may have routes, and the intermediate
    /// results.
    pub(super) fn layer(
        &self,
        index: usize,
        x: O::Stream,
        (at, routes): (&O::Placed<'_>, Option<&PackedRoutes>),
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, Saved<O>), ModelError> {
        let routes = routes.map(|routes| routes.in_layer(&self.config, index));
        let pass = LayerPass { routes, ..self.layer_pass(index) };
        let (m, mixer) = pass.mix(x, at, pool)?;
        let (y, mlp) = pass.mlp(m, pool)?;
        Ok((y, Saved { mixer, mlp }))
    }

    /// Adds the gradients of layer `index`, with a term that balances the load of its experts, if it has any. Returns the
    /// gradient `[N, D]` of its input, from that of its output.
    pub(super) fn layer_backward(
        &self,
        index: usize,
        saved: Saved<O>,
        at: &O::Placed<'_>,
        (dy, balance): (O::Stream, Option<BalanceTerm<'_>>),
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let pass = self.layer_pass(index);
        let dm = pass.mlp_backward(saved.mlp, (dy, balance), gradients, pool)?;
        pass.mix_backward(saved.mixer, at, dm, gradients, pool)
    }

    /// Applies the norm after the layers, the last part of [`Decoder::forward`].
    pub(super) fn last_norm(
        &self,
        x: &O::Stream,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        self.ops.norm(x, &self.norm, pool)
    }

    /// Computes the gradient `[N, D]` of the last norm's input.
    pub(super) fn last_norm_backward(
        &self,
        x: &O::Stream,
        dhidden: &O::Act,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        self.ops.norm_back(x, &self.norm, dhidden, None, gradients, pool)
    }
}
