//! Attention of a layer with its norms and its residual sum, forward and backward. Shapes: `N` tokens, `D` width of the
//! residual stream, `H` heads of queries, `K` heads of keys and values, `d` width of a head.

use crate::files::ModelError;
use crate::files::parts::{Attention, Layer, LayerShape};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::norm::Norm;
use crate::net::ops::{HeadTurn, Ops};
use crate::net::pool::{Pool, Projected};

use super::layer::LayerPass;

/// Results of a layer's attention that its backward pass needs.
#[derive(Debug)]
pub(crate) struct SavedAttention<O: Ops> {
    /// Input of the layer, `[N, D]`.
    x: O::Stream,
    projected: Projected<O>,
    attended: O::Act,
    lse: O::Lse,
    /// Input of the norm after attention, if there is one, `[N, D]`.
    mapped: Option<O::Act>,
}

impl<O: Ops> SavedAttention<O> {
    /// Returns all buffers but the input to the pool.
    pub(super) fn keep_input(self, pool: &mut Pool<O>) -> O::Stream {
        let Self { x, projected, attended, lse: _, mapped } = self;
        let Projected { raw_q, raw_k, q, k, v } = projected;
        pool.give([q, k, v, attended]);
        pool.give(raw_q.into_iter().chain(raw_k).chain(mapped));
        x
    }
}

impl LayerShape {
    /// Returns the numbers of a token that the attention keeps for its backward pass.
    pub(super) fn attention_saved(&self) -> usize {
        let Attention { heads, o, q_norm, k_norm, .. } = &self.attention;
        let (q, k) = (heads.q * heads.dim, heads.kv * heads.dim);
        let raw = q_norm.map_or(0, |_| q) + k_norm.map_or(0, |_| k);
        let mapped = self.after_attention.map_or(0, |_| o.output);
        o.output + q + 2 * k + o.input + raw + mapped
    }
}

impl<O: Ops> Attention<Linear<O>, Norm<O>> {
    /// Returns norm and rope of the queries.
    fn turn_q<'a>(&'a self, rope: Option<&'a O::Rope>) -> HeadTurn<'a, O> {
        HeadTurn { heads: self.heads.q, norm: self.q_norm.as_ref(), rope }
    }

    /// Returns norm and rope of the keys.
    fn turn_k<'a>(&'a self, rope: Option<&'a O::Rope>) -> HeadTurn<'a, O> {
        HeadTurn { heads: self.heads.kv, norm: self.k_norm.as_ref(), rope }
    }
}

impl<O: Ops> LayerPass<'_, O> {
    /// Computes queries, keys and values of the layer from its input `x [N, D]`.
    pub(super) fn project(
        &self,
        x: &O::Stream,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<Projected<O>, ModelError> {
        let (ops, rope) = (self.ops, self.rope);
        let Layer { before_attention, attention, .. } = self.layer;
        // 1. Norm: (N, D) -> (N, D)
        let h = self.norm_before(x, before_attention.as_ref(), pool)?;
        // 2. Maps: (N, D) -> (N, H d), (N, K d), (N, K d)
        let [q, k, v] = self.map_input(&h, &attention.qkv, pool)?;
        pool.give([h]);
        // 3. Norm, rope and scale: (N, H d) -> (N, H d), (N, K d) -> (N, K d)
        let (mut q, raw_q) = ops.turn(q, &attention.turn_q(rope), at, pool)?;
        if let Some(scale) = attention.query_scale {
            ops.scale_queries(&mut q, scale, at)?;
        }
        let (k, raw_k) = ops.turn(k, &attention.turn_k(rope), at, pool)?;
        Ok(Projected { raw_q, raw_k, q, k, v })
    }

    /// Computes the residual stream `[N, D]` after the attention of the layer to packed rows.
    pub(super) fn attend(
        &self,
        x: O::Stream,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedAttention<O>), ModelError> {
        let projected = self.project(&x, at, pool)?;
        let (ops, heads) = (self.ops, self.layer.attention.heads);
        let Projected { q, k, v, .. } = &projected;
        // 4. Causal attention: (N, H d), (N, K d), (N, K d) -> (N, H d)
        let attended = match self.sinks {
            None => ops.attend([q, k, v], at, heads, pool)?,
            Some(sinks) => ops.attend_sinks([q, k, v], at, (heads, sinks), pool)?,
        };
        self.add_attended(x, projected, attended, pool)
    }

    /// Computes causal attention of new tokens to the cache of a layer: `(N, H d) -> (N, H d)`.
    pub(super) fn attend_cached(
        &self,
        q: &O::Act,
        cache: (&O::Kv, usize),
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        let heads = self.layer.attention.heads;
        match self.sinks {
            None => self.ops.attend_cached(q, cache, at, heads, pool),
            Some(sinks) => self.ops.attend_cached_sinks(q, cache, at, (heads, sinks), pool),
        }
    }

    /// Adds the result of attention to the residual stream.
    pub(super) fn add_attended(
        &self,
        x: O::Stream,
        projected: Projected<O>,
        (attended, lse): (O::Act, O::Lse),
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedAttention<O>), ModelError> {
        let Layer { attention, after_attention, .. } = self.layer;
        // 5. Map, norm and residual sum: (N, H d) -> (N, D)
        let (m, mapped) =
            self.add_result(&x, &attended, &attention.o, after_attention.as_ref(), pool)?;
        Ok((m, SavedAttention { x, projected, attended, lse, mapped }))
    }

    /// Adds the gradients of the attention of the layer. Returns the gradient `[N, D]` of its input, from that of its
    /// result.
    pub(super) fn attend_backward(
        &self,
        saved: SavedAttention<O>,
        at: &O::Placed<'_>,
        dm: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let (ops, rope) = (self.ops, self.rope);
        let Layer { before_attention, attention, after_attention, .. } = self.layer;
        let SavedAttention { x, projected, attended, lse, mapped } = saved;
        let Projected { raw_q, raw_k, q, k, v } = projected;
        // 5. (N, D) -> (N, H d)
        let last = (&attention.o, after_attention.as_ref());
        let dattended = self.add_result_backward(&attended, mapped, last, &dm, gradients, pool)?;
        // 4. (N, H d) -> (N, H d), (N, K d), (N, K d)
        let out = [&attended, &dattended];
        let (qkv, heads) = ([&q, &k, &v], attention.heads);
        let [mut dq, dk, dv] = match self.sinks {
            None => ops.attend_back(qkv, out, &lse, at, heads, pool)?,
            Some(sinks) => {
                let (at, heads) = ((&lse, at), (heads, sinks));
                ops.attend_sinks_back(qkv, out, at, heads, gradients, pool)?
            }
        };
        pool.give([q, k, v, attended, dattended]);
        // 3. (N, H d) -> (N, H d), (N, K d) -> (N, K d)
        if let Some(scale) = attention.query_scale {
            ops.scale_queries(&mut dq, scale, at)?;
        }
        let dq = ops.turn_back(dq, raw_q, &attention.turn_q(rope), at, gradients, pool)?;
        let dk = ops.turn_back(dk, raw_k, &attention.turn_k(rope), at, gradients, pool)?;
        // 2. (N, H d), (N, K d), (N, K d) -> (N, D)
        let before = before_attention.as_ref();
        let h = self.norm_before(&x, before, pool)?;
        let dh = self.map_input_backward(&h, &attention.qkv, [&dq, &dk, &dv], gradients, pool)?;
        // 1. (N, D) -> (N, D)
        let dx = self.norm_before_backward(&x, before, &dh, dm, gradients, pool)?;
        pool.give([dq, dk, dv, h, dh]);
        pool.give_streams([x]);
        Ok(dx)
    }
}
