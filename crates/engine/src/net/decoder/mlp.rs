//! Gated MLP of a layer with its norms and its residual sum, forward and backward. Shapes: `N` tokens, `D` width of the residual
//! stream, `F` width of the MLP.

use crate::files::ModelError;
use crate::files::parts::{Activation, Experts, GatedMlp, Layer, LayerShape, Mlp};
use crate::net::experts::BalanceTerm;
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::ops::Ops;
use crate::net::pool::Pool;

use super::experts::SavedExpertMlp;
use super::layer::LayerPass;

/// Results of a layer's MLP that its backward pass needs.
#[derive(Debug)]
pub(crate) enum SavedMlp<O: Ops> {
    Gated(SavedGatedMlp<O>),
    Experts(SavedExpertMlp<O>),
}

/// Results of a gated MLP that its backward pass needs.
#[derive(Debug)]
pub(crate) struct SavedGatedMlp<O: Ops> {
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
        match self {
            Self::Gated(SavedGatedMlp { m, gate, up, mapped }) => {
                pool.give([gate, up].into_iter().chain(mapped));
                pool.give_streams([m]);
            }
            Self::Experts(saved) => saved.give(pool),
        }
    }
}

impl LayerShape {
    /// Returns the numbers of a token that the MLP keeps for its backward pass.
    pub(super) fn mlp_saved(&self) -> usize {
        let hidden = self.stream_width();
        let experts = self.mlp.experts().map_or(0, |Experts { router, shared, .. }| {
            // Results of the experts; scores, choices and weights; gate and result of a shared expert.
            let shared = shared.as_ref().map_or(0, |_| hidden + 1);
            router.chosen * (hidden + 4) + router.experts + shared
        });
        hidden + 2 * self.mlp.width_of_token() + experts + self.after_mlp.map_or(0, |_| hidden)
    }
}

impl<O: Ops> LayerPass<'_, O> {
    /// Computes the residual stream `[N, D]` after the MLP of the layer.
    pub(super) fn mlp(
        &self,
        m: O::Stream,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedMlp<O>), ModelError> {
        match &self.layer.mlp {
            Mlp::Gated(mlp) => {
                let (y, saved) = self.gated_mlp(mlp, m, pool)?;
                Ok((y, SavedMlp::Gated(saved)))
            }
            Mlp::Experts(experts) => {
                let (y, saved) = self.expert_mlp(experts, m, pool)?;
                Ok((y, SavedMlp::Experts(saved)))
            }
        }
    }

    /// Computes the residual stream `[N, D]` after a gated MLP.
    fn gated_mlp(
        &self,
        mlp: &GatedMlp<Linear<O>>,
        m: O::Stream,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedGatedMlp<O>), ModelError> {
        let Layer { before_mlp, after_mlp, .. } = self.layer;
        // 1. Norm: (N, D) -> (N, D)
        let h = self.norm_before(&m, before_mlp.as_ref(), pool)?;
        // 2. Maps: (N, D) -> (N, F), (N, F)
        let [gate, up] = self.map_input(&h, &mlp.gate_up, pool)?;
        // 3. Activation: (N, F), (N, F) -> (N, F)
        let act = self.activate(mlp.activation, [&gate, &up], pool)?;
        // 4. Map, norm and residual sum: (N, F) -> (N, D)
        let (y, mapped) = self.add_result(&m, &act, &mlp.down, after_mlp.as_ref(), pool)?;
        pool.give([h, act]);
        Ok((y, SavedGatedMlp { m, gate, up, mapped }))
    }

    /// Computes the product `[N, F]` of the activated gate and `up`.
    fn activate(
        &self,
        activation: Activation,
        [gate, up]: [&O::Act; 2],
        pool: &mut Pool<O>,
    ) -> Result<O::Act, ModelError> {
        match activation {
            Activation::Silu => self.ops.swiglu(gate, up, pool),
            Activation::Gelu => self.ops.geglu(gate, up, pool),
            Activation::Clamped(_) => Err(of_experts_alone()),
        }
    }

    /// Adds the gradients of the MLP of the layer. Returns the gradient `[N, D]` of its input, from that of its result.
    pub(super) fn mlp_backward(
        &self,
        saved: SavedMlp<O>,
        (dy, balance): (O::Stream, Option<BalanceTerm<'_>>),
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        match (&self.layer.mlp, saved) {
            (Mlp::Gated(mlp), SavedMlp::Gated(saved)) => {
                self.gated_mlp_backward(mlp, saved, dy, gradients, pool)
            }
            (Mlp::Experts(experts), SavedMlp::Experts(saved)) => {
                self.expert_mlp_backward(experts, saved, (dy, balance), gradients, pool)
            }
            _ => Err(ModelError::wrong_argument("results of another layer's MLP")),
        }
    }

    /// Adds the gradients of a gated MLP. Returns the gradient `[N, D]` of its input, from that of its result.
    fn gated_mlp_backward(
        &self,
        mlp: &GatedMlp<Linear<O>>,
        SavedGatedMlp { m, gate, up, mapped }: SavedGatedMlp<O>,
        dy: O::Stream,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let ops = self.ops;
        let Layer { before_mlp, after_mlp, .. } = self.layer;
        // 4. (N, D) -> (N, F)
        let act = self.activate(mlp.activation, [&gate, &up], pool)?;
        let last = (&mlp.down, after_mlp.as_ref());
        let dact = self.add_result_backward(&act, mapped, last, &dy, gradients, pool)?;
        // 3. (N, F) -> (N, F), (N, F)
        let [dgate, dup] = match mlp.activation {
            Activation::Silu => ops.swiglu_back([&gate, &up], &dact, act, pool)?,
            Activation::Gelu => ops.geglu_back([&gate, &up], &dact, act, pool)?,
            Activation::Clamped(_) => return Err(of_experts_alone()),
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

fn of_experts_alone() -> ModelError {
    ModelError::wrong_argument("only experts have a clamped gate")
}
