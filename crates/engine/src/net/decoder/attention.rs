//! Attention of a layer with its norm and its residual sum, forward and backward. Shapes: `N` tokens, `D` width of the
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
}

impl<O: Ops> SavedAttention<O> {
    /// Returns all buffers but the input to the pool.
    pub(super) fn keep_input(self, pool: &mut Pool<O>) -> O::Stream {
        let Self { x, projected, attended, lse: _ } = self;
        let Projected { raw_q, raw_k, q, k, v } = projected;
        pool.give([q, k, v, attended]);
        pool.give(raw_q.into_iter().chain(raw_k));
        x
    }
}

impl LayerShape {
    /// Returns the numbers of a token that the attention keeps for its backward pass.
    pub(super) fn attention_saved(&self) -> usize {
        let Attention { q, k, v, o, q_norm, k_norm, .. } = &self.attention;
        let raw = q_norm.map_or(0, |_| q.output) + k_norm.map_or(0, |_| k.output);
        q.input + q.output + k.output + v.output + o.input + raw
    }
}

impl<O: Ops> Attention<Linear<O>, Norm<O>> {
    /// Returns norm and rope of the queries.
    fn turn_q<'a>(&'a self, rope: &'a O::Rope) -> HeadTurn<'a, O> {
        HeadTurn { heads: self.heads.q, norm: self.q_norm.as_ref(), rope }
    }

    /// Returns norm and rope of the keys.
    fn turn_k<'a>(&'a self, rope: &'a O::Rope) -> HeadTurn<'a, O> {
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
        let h = ops.norm(x, before_attention, pool)?;
        // 2. Maps: (N, D) -> (N, H d), (N, K d), (N, K d)
        let [q, k, v] = ops.linears(&h, [&attention.q, &attention.k, &attention.v], pool)?;
        pool.give([h]);
        // 3. Norm of each head, and rope: (N, H d) -> (N, H d), (N, K d) -> (N, K d)
        let (q, raw_q) = ops.turn(q, &attention.turn_q(rope), at, pool)?;
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
        let heads = self.layer.attention.heads;
        let Projected { q, k, v, .. } = &projected;
        // 4. Causal attention: (N, H d), (N, K d), (N, K d) -> (N, H d)
        let attended = self.ops.attend([q, k, v], at, heads, pool)?;
        self.add_attended(x, projected, attended, pool)
    }

    /// Adds the result of attention to the residual stream.
    pub(super) fn add_attended(
        &self,
        x: O::Stream,
        projected: Projected<O>,
        (attended, lse): (O::Act, O::Lse),
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedAttention<O>), ModelError> {
        // 5. Map and residual sum: (N, H d) -> (N, D)
        let m = self.ops.linear_onto(&x, &attended, &self.layer.attention.o, pool)?;
        Ok((m, SavedAttention { x, projected, attended, lse }))
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
        let Layer { before_attention, attention, .. } = self.layer;
        let SavedAttention { x, projected, attended, lse } = saved;
        let Projected { raw_q, raw_k, q, k, v } = projected;
        // 5. (N, D) -> (N, H d)
        let dattended = ops.linear_onto_back(&attended, &attention.o, &dm, gradients, pool)?;
        // 4. (N, H d) -> (N, H d), (N, K d), (N, K d)
        let out = [&attended, &dattended];
        let [dq, dk, dv] = ops.attend_back([&q, &k, &v], out, &lse, at, attention.heads, pool)?;
        pool.give([q, k, v, attended, dattended]);
        // 3. (N, H d) -> (N, H d), (N, K d) -> (N, K d)
        let dq = ops.turn_back(dq, raw_q, &attention.turn_q(rope), at, gradients, pool)?;
        let dk = ops.turn_back(dk, raw_k, &attention.turn_k(rope), at, gradients, pool)?;
        // 2. (N, H d), (N, K d), (N, K d) -> (N, D)
        let h = ops.norm(&x, before_attention, pool)?;
        let maps = [(&attention.q, &dq), (&attention.k, &dk), (&attention.v, &dv)];
        let dh = ops.linear_back(&h, &maps, gradients, pool)?;
        // 1. (N, D) -> (N, D)
        let dx = ops.norm_back(&x, before_attention, &dh, Some(dm), gradients, pool)?;
        pool.give([dq, dk, dv, h, dh]);
        pool.give_streams([x]);
        Ok(dx)
    }
}
