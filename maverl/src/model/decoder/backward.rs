//! Backward pass of the decoder's parts. Each function mirrors its forward in the parent module.

use maverl_kernels::attention::attention_bwd;
use maverl_kernels::rope::rope_bwd;
use maverl_kernels::{embedding, mlp, norm};

use super::{Decoder, Projected, Saved};
use crate::model::gradients::Gradients;
use crate::model::pool::Pool;
use crate::model::tape::Rows;
use crate::model::values::Param;

impl Decoder {
    /// Adds the gradients of layer `index`. `dx [N, D]` is the gradient of its output on entry, and of its input on
    /// return.
    pub(in crate::model) fn layer_backward(
        &self,
        index: usize,
        saved: Saved,
        rows: Rows<'_>,
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
        pool: &mut Pool,
    ) {
        let Saved { x, projected, attended, mid, gate, up } = saved;
        let Projected { raw_q, raw_k, q, k, v } = projected;
        self.mlp_backward(index, &mid, [gate, up], dx, gradients, pool);
        pool.give([mid]);
        let (layer, precision) = (&self.layers[index], self.precision);
        let mut dattended = pool.take(attended.len());
        layer.o.backward(&attended, dx, &mut dattended, precision.set(), gradients, pool);
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|like| pool.take(like.len()));
        let heads = self.heads();
        attention_bwd(
            &q,
            &k,
            &v,
            &attended,
            &dattended,
            rows.packing,
            heads,
            &mut dq,
            &mut dk,
            &mut dv,
        );
        pool.give([q, k, v, attended, dattended]);
        rope_bwd(&mut dq, rows.positions, heads.q, &self.rope);
        rope_bwd(&mut dk, rows.positions, heads.kv, &self.rope);
        let dq = self.head_norm_backward(raw_q, layer.q_norm.as_ref(), dq, gradients, pool);
        let dk = self.head_norm_backward(raw_k, layer.k_norm.as_ref(), dk, gradients, pool);
        let (mut h, mut dh) = (pool.take(x.len()), pool.take(x.len()));
        norm::rms_norm(&x, &layer.input_norm.values(), self.eps(), &mut h);
        layer.q.backward(&h, &dq, &mut dh, precision.set(), gradients, pool);
        layer.k.backward(&h, &dk, &mut dh, precision.add(), gradients, pool);
        layer.v.backward(&h, &dv, &mut dh, precision.add(), gradients, pool);
        self.norm_backward(&x, &layer.input_norm, &dh, dx, gradients);
        pool.give([dq, dk, dv, h, dh, x]);
    }

    /// Runs the backward pass of the MLP. `dx [N, D]` is the gradient of the layer's output on entry, and of `mid` on
    /// return.
    fn mlp_backward(
        &self,
        index: usize,
        mid: &[f32],
        [gate, up]: [Vec<f32>; 2],
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
        pool: &mut Pool,
    ) {
        let (layer, precision) = (&self.layers[index], self.precision);
        let (mut act, mut dact) = (pool.take(gate.len()), pool.take(gate.len()));
        mlp::swiglu(&gate, &up, &mut act);
        layer.down.backward(&act, dx, &mut dact, precision.set(), gradients, pool);
        let (mut dgate, mut dup) = (act, pool.take(gate.len()));
        mlp::swiglu_bwd(&gate, &up, &dact, &mut dgate, &mut dup);
        pool.give([gate, up, dact]);
        let (mut h, mut dh) = (pool.take(mid.len()), pool.take(mid.len()));
        norm::rms_norm(mid, &layer.post_norm.values(), self.eps(), &mut h);
        layer.gate.backward(&h, &dgate, &mut dh, precision.set(), gradients, pool);
        layer.up.backward(&h, &dup, &mut dh, precision.add(), gradients, pool);
        self.norm_backward(mid, &layer.post_norm, &dh, dx, gradients);
        pool.give([dgate, dup, h, dh]);
    }

    /// Adds the gradient through `norm(x)` to the gradient `dx` of a residual stream.
    fn norm_backward(
        &self,
        x: &[f32],
        weight: &Param,
        dy: &[f32],
        dx: &mut [f32],
        gradients: &mut Gradients<'_>,
    ) {
        let dw = gradients.of(weight.slot());
        norm::rms_norm_bwd_add(x, &weight.values(), self.eps(), dy, dx, dw);
    }

    /// Computes the gradient of the heads before their norms.
    fn head_norm_backward(
        &self,
        raw: Option<Vec<f32>>,
        weight: Option<&Param>,
        dy: Vec<f32>,
        gradients: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Vec<f32> {
        let (Some(raw), Some(weight)) = (raw, weight) else { return dy };
        let mut dx = pool.take(dy.len());
        let dw = gradients.of(weight.slot());
        norm::rms_norm_bwd(&raw, &weight.values(), self.eps(), &dy, &mut dx, dw);
        pool.give([raw, dy]);
        dx
    }

    /// Computes the gradient `[N, D]` of the last norm's input.
    pub(in crate::model) fn last_norm_backward(
        &self,
        x: &[f32],
        dhidden: &[f32],
        gradients: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Vec<f32> {
        let mut dx = pool.take(x.len());
        let dw = gradients.of(self.norm.slot());
        norm::rms_norm_bwd(x, &self.norm.values(), self.eps(), dhidden, &mut dx, dw);
        dx
    }

    /// Adds the gradient of the embeddings.
    pub(in crate::model) fn embed_backward(
        &self,
        ids: &[u32],
        dx: &[f32],
        gradients: &mut Gradients<'_>,
    ) {
        if let Some(dtable) = gradients.of(self.embed.slot()) {
            embedding::scatter_add(dx, ids, self.config.hidden_size, dtable);
        }
    }
}
