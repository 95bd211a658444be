//! Backward pass of the decoder's parts. Each function mirrors its forward in the parent module.

use super::{Decoder, Projected, Saved};
use crate::model::ModelError;
use crate::model::gradients::Gradients;
use crate::model::ops::Ops;
use crate::model::pool::Pool;

impl<O: Ops> Decoder<O> {
    /// Adds the gradients of layer `index`. Returns the gradient `[N, D]` of its input, from that of its output.
    pub(in crate::model) fn layer_backward(
        &self,
        index: usize,
        saved: Saved<O>,
        at: &O::Placed<'_>,
        dx: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let Saved { x, projected, attended, lse, mid, gate, up } = saved;
        let Projected { raw_q, raw_k, q, k, v } = projected;
        let dx = self.mlp_backward(index, &mid, [gate, up], dx, gradients, pool)?;
        pool.give_streams([mid]);
        let (ops, layer) = (&self.ops, &self.layers[index]);
        let dattended = ops.linear_onto_back(&attended, &layer.o, &dx, gradients, pool)?;
        let out = [&attended, &dattended];
        let [dq, dk, dv] = ops.attend_back([&q, &k, &v], out, &lse, at, self.heads(), pool)?;
        pool.give([q, k, v, attended, dattended]);
        let dq = ops.turn_back(dq, raw_q, &self.turn_q(layer), at, gradients, pool)?;
        let dk = ops.turn_back(dk, raw_k, &self.turn_k(layer), at, gradients, pool)?;
        let norm = (&layer.input_norm, self.eps());
        let h = ops.norm(&x, norm, pool)?;
        let maps = [(&layer.q, &dq), (&layer.k, &dk), (&layer.v, &dv)];
        let dh = ops.linear_back(&h, &maps, gradients, pool)?;
        let dx = ops.norm_back(&x, norm, &dh, Some(dx), gradients, pool)?;
        pool.give([dq, dk, dv, h, dh]);
        pool.give_streams([x]);
        Ok(dx)
    }

    /// Runs the backward pass of the MLP. Returns the gradient `[N, D]` of `mid`, from that of the layer's output.
    fn mlp_backward(
        &self,
        index: usize,
        mid: &O::Stream,
        [gate, up]: [O::Act; 2],
        dx: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let (ops, layer) = (&self.ops, &self.layers[index]);
        let act = ops.swiglu(&gate, &up, pool)?;
        let dact = ops.linear_onto_back(&act, &layer.down, &dx, gradients, pool)?;
        let [dgate, dup] = ops.swiglu_back([&gate, &up], &dact, act, pool)?;
        pool.give([gate, up, dact]);
        let norm = (&layer.post_norm, self.eps());
        let h = ops.norm(mid, norm, pool)?;
        let maps = [(&layer.gate, &dgate), (&layer.up, &dup)];
        let dh = ops.linear_back(&h, &maps, gradients, pool)?;
        let dx = ops.norm_back(mid, norm, &dh, Some(dx), gradients, pool)?;
        pool.give([dgate, dup, h, dh]);
        Ok(dx)
    }

    /// Computes the gradient `[N, D]` of the last norm's input.
    pub(in crate::model) fn last_norm_backward(
        &self,
        x: &O::Stream,
        dhidden: &O::Act,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        self.ops.norm_back(x, (&self.norm, self.eps()), dhidden, None, gradients, pool)
    }

    /// Adds the gradient of the embeddings.
    pub(in crate::model) fn embed_backward(
        &self,
        at: &O::Placed<'_>,
        dx: &O::Stream,
        gradients: &mut Gradients<'_, O>,
    ) -> Result<(), ModelError> {
        self.ops.gather_back(&self.embed, dx, at, gradients)
    }
}
