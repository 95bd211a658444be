//! MLP of a layer with its norm and its residual sum, forward and backward. Shapes: `N` tokens, `D` width of the residual
//! stream, `F` width of the MLP.

use crate::files::ModelError;
use crate::files::parts::{Layer, LayerShape};
use crate::net::gradients::Gradients;
use crate::net::ops::Ops;
use crate::net::pool::Pool;

use super::layer::LayerPass;

/// Results of a layer's MLP that its backward pass needs.
#[derive(Debug)]
pub(crate) struct SavedMlp<O: Ops> {
    /// Residual stream between attention and MLP, `[N, D]`.
    m: O::Stream,
    gate: O::Act,
    up: O::Act,
}

impl<O: Ops> SavedMlp<O> {
    /// Returns all buffers to the pool.
    pub(super) fn give(self, pool: &mut Pool<O>) {
        pool.give([self.gate, self.up]);
        pool.give_streams([self.m]);
    }
}

impl LayerShape {
    /// Returns the numbers of a token that the MLP keeps for its backward pass.
    pub(super) fn mlp_saved(&self) -> usize {
        self.mlp.gate.input + self.mlp.gate.output + self.mlp.up.output
    }
}

impl<O: Ops> LayerPass<'_, O> {
    /// Computes the residual stream `[N, D]` after the MLP of the layer.
    pub(super) fn mlp(
        &self,
        m: O::Stream,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedMlp<O>), ModelError> {
        let ops = self.ops;
        let Layer { before_mlp, mlp, .. } = self.layer;
        // 1. Norm: (N, D) -> (N, D)
        let h = ops.norm(&m, before_mlp, pool)?;
        // 2. Maps: (N, D) -> (N, F), (N, F)
        let [gate, up] = ops.linears(&h, [&mlp.gate, &mlp.up], pool)?;
        // 3. Activation: (N, F), (N, F) -> (N, F)
        let act = ops.swiglu(&gate, &up, pool)?;
        // 4. Map and residual sum: (N, F) -> (N, D)
        let y = ops.linear_onto(&m, &act, &mlp.down, pool)?;
        pool.give([h, act]);
        Ok((y, SavedMlp { m, gate, up }))
    }

    /// Adds the gradients of the MLP of the layer. Returns the gradient `[N, D]` of its input, from that of its result.
    pub(super) fn mlp_backward(
        &self,
        SavedMlp { m, gate, up }: SavedMlp<O>,
        dy: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let ops = self.ops;
        let Layer { before_mlp, mlp, .. } = self.layer;
        // 4. (N, D) -> (N, F)
        let act = ops.swiglu(&gate, &up, pool)?;
        let dact = ops.linear_onto_back(&act, &mlp.down, &dy, gradients, pool)?;
        // 3. (N, F) -> (N, F), (N, F)
        let [dgate, dup] = ops.swiglu_back([&gate, &up], &dact, act, pool)?;
        pool.give([gate, up, dact]);
        // 2. (N, F), (N, F) -> (N, D)
        let h = ops.norm(&m, before_mlp, pool)?;
        let dh = ops.linear_back(&h, &[(&mlp.gate, &dgate), (&mlp.up, &dup)], gradients, pool)?;
        // 1. (N, D) -> (N, D)
        let dm = ops.norm_back(&m, before_mlp, &dh, Some(dy), gradients, pool)?;
        pool.give([dgate, dup, h, dh]);
        pool.give_streams([m]);
        Ok(dm)
    }
}
