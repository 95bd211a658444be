//! Attention of a layer with its norms and its residual sum, forward and backward. Shapes: `N` tokens, `D` width of the
//! residual stream, `H` heads of queries, `K` heads of keys and values, `d` width of a head.

use maverl_kernels::attention::Heads;

use crate::files::ModelError;
use crate::files::parts::{Attention, Layer, LinearShape, NormShape};
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
        let Projected { raw_q, raw_k, q, k, v, gate } = projected;
        pool.give([q, k, v, attended]);
        pool.give(raw_q.into_iter().chain(raw_k).chain(gate).chain(mapped));
        x
    }
}

impl Attention<LinearShape, NormShape> {
    /// Returns the numbers of a token that are kept for the backward pass, beside the layer's input.
    pub(super) fn saved_numbers(&self) -> usize {
        let Self { heads, o, q_norm, k_norm, gate, .. } = self;
        let (q, k) = (heads.q * heads.dim, heads.kv * heads.dim);
        let raw = q_norm.map_or(0, |_| q) + k_norm.map_or(0, |_| k);
        q + 2 * k + o.input + raw + if *gate { q } else { 0 }
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
    pub(super) fn project_attention(
        &self,
        attention: &Attention<Linear<O>, Norm<O>>,
        x: &O::Stream,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<Projected<O>, ModelError> {
        let (ops, rope) = (self.ops, self.rope);
        // 1. Norm: (N, D) -> (N, D)
        let h = self.norm_before(x, self.layer.before_mixer.as_ref(), pool)?;
        // 2. Maps: (N, D) -> (N, H d), (N, K d), (N, K d); with gates (N, 2 H d) -> (N, H d), (N, H d)
        let [q, k, v] = self.map_input(&h, &attention.qkv, pool)?;
        pool.give([h]);
        let (q, gate) = self.split_gate(attention, q, pool)?;
        // 3. Norm, rope and scale: (N, H d) -> (N, H d), (N, K d) -> (N, K d)
        let (mut q, raw_q) = ops.turn(q, &attention.turn_q(rope), at, pool)?;
        if let Some(scale) = attention.query_scale {
            ops.scale_queries(&mut q, scale, at)?;
        }
        let (k, raw_k) = ops.turn(k, &attention.turn_k(rope), at, pool)?;
        Ok(Projected { raw_q, raw_k, q, k, v, gate })
    }

    /// Splits the results of the map to queries into queries and gates, if there are gates.
    fn split_gate(
        &self,
        attention: &Attention<Linear<O>, Norm<O>>,
        both: O::Act,
        pool: &mut Pool<O>,
    ) -> Result<(O::Act, Option<O::Act>), ModelError> {
        if !attention.gate {
            return Ok((both, None));
        }
        let [q, gate] = self.ops.split_columns(&both, [attention.heads.dim; 2], pool)?;
        pool.give([both]);
        Ok((q, Some(gate)))
    }

    /// Computes the residual stream `[N, D]` after the attention of the layer to packed rows.
    pub(super) fn attend(
        &self,
        attention: &Attention<Linear<O>, Norm<O>>,
        x: O::Stream,
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedAttention<O>), ModelError> {
        let projected = self.project_attention(attention, &x, at, pool)?;
        let (ops, heads) = (self.ops, attention.heads);
        let Projected { q, k, v, .. } = &projected;
        // 4. Causal attention: (N, H d), (N, K d), (N, K d) -> (N, H d)
        let attended = match self.sinks {
            None => ops.attend([q, k, v], at, heads, pool)?,
            Some(sinks) => ops.attend_sinks([q, k, v], at, (heads, sinks), pool)?,
        };
        self.add_attended(attention, x, projected, attended, pool)
    }

    /// Computes causal attention of new tokens to the cache of a layer: `(N, H d) -> (N, H d)`.
    pub(super) fn attend_cached(
        &self,
        heads: Heads,
        q: &O::Act,
        cache: (&O::Kv, usize),
        at: &O::Placed<'_>,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        match self.sinks {
            None => self.ops.attend_cached(q, cache, at, heads, pool),
            Some(sinks) => self.ops.attend_cached_sinks(q, cache, at, (heads, sinks), pool),
        }
    }

    /// Adds the result of attention to the residual stream.
    pub(super) fn add_attended(
        &self,
        attention: &Attention<Linear<O>, Norm<O>>,
        x: O::Stream,
        projected: Projected<O>,
        (attended, lse): (O::Act, O::Lse),
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedAttention<O>), ModelError> {
        let after = self.layer.after_mixer.as_ref();
        // 5. Gate: (N, H d), (N, H d) -> (N, H d)
        let gate = projected.gate.as_ref();
        let gated = gate.map(|gate| self.ops.apply_gate(&attended, gate, pool)).transpose()?;
        // 6. Map, norm and residual sum: (N, H d) -> (N, D)
        let inner = gated.as_ref().unwrap_or(&attended);
        let (m, mapped) = self.add_result(&x, inner, &attention.o, after, pool)?;
        pool.give(gated);
        Ok((m, SavedAttention { x, projected, attended, lse, mapped }))
    }

    /// Adds the gradients of the attention of the layer. Returns the gradient `[N, D]` of its input, from that of its
    /// result.
    pub(super) fn attend_backward(
        &self,
        attention: &Attention<Linear<O>, Norm<O>>,
        saved: SavedAttention<O>,
        at: &O::Placed<'_>,
        dm: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let (ops, rope) = (self.ops, self.rope);
        let Layer { before_mixer, .. } = self.layer;
        let SavedAttention { x, projected, attended, lse, mapped } = saved;
        let Projected { raw_q, raw_k, q, k, v, gate } = projected;
        // 6. and 5. (N, D) -> (N, H d), (N, H d)
        let result = (&attended, mapped);
        let (dattended, dgate) =
            self.add_attended_backward(attention, result, gate, &dm, gradients, pool)?;
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
        let dq = self.join_gate(attention, dq, dgate, pool)?;
        let dk = ops.turn_back(dk, raw_k, &attention.turn_k(rope), at, gradients, pool)?;
        // 2. (N, H d), (N, K d), (N, K d) -> (N, D)
        let before = before_mixer.as_ref();
        let h = self.norm_before(&x, before, pool)?;
        let dh = self.map_input_backward(&h, &attention.qkv, [&dq, &dk, &dv], gradients, pool)?;
        // 1. (N, D) -> (N, D)
        let dx = self.norm_before_backward(&x, before, &dh, dm, gradients, pool)?;
        pool.give([dq, dk, dv, h, dh]);
        pool.give_streams([x]);
        Ok(dx)
    }

    /// Computes the gradients of attention's result and of the gates, if there are gates, from those of
    /// [`LayerPass::add_attended`]'s result.
    fn add_attended_backward(
        &self,
        attention: &Attention<Linear<O>, Norm<O>>,
        (attended, mapped): (&O::Act, Option<O::Act>),
        gate: Option<O::Act>,
        dm: &O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<(O::Act, Option<O::Act>), ModelError> {
        let last = (&attention.o, self.layer.after_mixer.as_ref());
        let Some(gate) = gate else {
            let of = self.add_result_backward(attended, mapped, last, dm, gradients, pool)?;
            return Ok((of, None));
        };
        let gated = self.ops.apply_gate(attended, &gate, pool)?;
        let dgated = self.add_result_backward(&gated, mapped, last, dm, gradients, pool)?;
        let [dattended, dgate] = self.ops.apply_gate_back([attended, &gate], &dgated, pool)?;
        pool.give([gate, gated, dgated]);
        Ok((dattended, Some(dgate)))
    }

    /// Joins the gradients of queries and gates to that of the map to both, if there are gates.
    fn join_gate(
        &self,
        attention: &Attention<Linear<O>, Norm<O>>,
        dq: O::Act,
        dgate: Option<O::Act>,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        let Some(dgate) = dgate else { return Ok(dq) };
        let both = self.ops.join_columns([&dq, &dgate], [attention.heads.dim; 2], pool)?;
        pool.give([dq, dgate]);
        Ok(both)
    }
}
