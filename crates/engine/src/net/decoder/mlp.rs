//! MLP of a layer with its norms and its residual sum, forward and backward. Shapes: `N` tokens, `D` width of the residual
//! stream, `F` width of the MLP.

use crate::files::ModelError;
use crate::files::parts::{Activation, Layer, LayerShape};
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
    /// Input of the norm after the MLP, if there is one, `[N, D]`.
    mapped: Option<O::Act>,
}

impl<O: Ops> SavedMlp<O> {
    /// Returns all buffers to the pool.
    pub(super) fn give(self, pool: &mut Pool<O>) {
        pool.give([self.gate, self.up].into_iter().chain(self.mapped));
        pool.give_streams([self.m]);
    }
}

impl LayerShape {
    /// Returns the numbers of a token that the MLP keeps for its backward pass.
    pub(super) fn mlp_saved(&self) -> usize {
        let hidden = self.mlp.down.output;
        hidden + 2 * self.mlp.width + self.after_mlp.map_or(0, |_| hidden)
    }
}

impl<O: Ops> LayerPass<'_, O> {
    /// Computes the residual stream `[N, D]` after the MLP of the layer.
    pub(super) fn mlp(
        &self,
        m: O::Stream,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedMlp<O>), ModelError> {
        let Layer { before_mlp, mlp, after_mlp, .. } = self.layer;
        // 1. Norm: (N, D) -> (N, D)
        let h = self.norm_before(&m, before_mlp.as_ref(), pool)?;
        // 2. Maps: (N, D) -> (N, F), (N, F)
        let [gate, up] = self.map_input(&h, &mlp.gate_up, pool)?;
        // 3. Activation: (N, F), (N, F) -> (N, F)
        let act = self.activate(&gate, &up, pool)?;
        // 4. Map, norm and residual sum: (N, F) -> (N, D)
        let (y, mapped) = self.add_result(&m, &act, &mlp.down, after_mlp.as_ref(), pool)?;
        pool.give([h, act]);
        Ok((y, SavedMlp { m, gate, up, mapped }))
    }

    /// Computes the product `[N, F]` of the activated gate and `up`.
    fn activate(
        &self,
        gate: &O::Act,
        up: &O::Act,
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        match self.layer.mlp.activation {
            Activation::Silu => self.ops.swiglu(gate, up, pool),
            Activation::Gelu => self.ops.geglu(gate, up, pool),
        }
    }

    /// Adds the gradients of the MLP of the layer. Returns the gradient `[N, D]` of its input, from that of its result.
    pub(super) fn mlp_backward(
        &self,
        SavedMlp { m, gate, up, mapped }: SavedMlp<O>,
        dy: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let ops = self.ops;
        let Layer { before_mlp, mlp, after_mlp, .. } = self.layer;
        // 4. (N, D) -> (N, F)
        let act = self.activate(&gate, &up, pool)?;
        let last = (&mlp.down, after_mlp.as_ref());
        let dact = self.add_result_backward(&act, mapped, last, &dy, gradients, pool)?;
        // 3. (N, F) -> (N, F), (N, F)
        let [dgate, dup] = match mlp.activation {
            Activation::Silu => ops.swiglu_back([&gate, &up], &dact, act, pool)?,
            Activation::Gelu => ops.geglu_back([&gate, &up], &dact, act, pool)?,
        };
        pool.give([gate, up, dact]);
        // 2. (N, F), (N, F) -> (N, D)
        let before = before_mlp.as_ref();
        let h = self.norm_before(&m, before, pool)?;
        let dh = self.map_input_backward(&h, &mlp.gate_up, [&dgate, &dup], gradients, pool)?;
        // 1. (N, D) -> (N, D)
        let dm = self.norm_before_backward(&m, before, &dh, dy, gradients, pool)?;
        pool.give([dgate, dup, h, dh]);
        pool.give_streams([m]);
        Ok(dm)
    }
}
