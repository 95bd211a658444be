//! Experts of a layer with their norms and their residual sum, forward and backward. Shapes: `N` tokens, `D` width of the
//! residual stream.

use crate::files::ModelError;
use crate::files::parts::{Experts, Layer};
use crate::net::experts::{BalanceTerm, SavedExperts};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::ops::Ops;
use crate::net::pool::Pool;

use super::layer::LayerPass;

/// Results of a layer's experts that their backward pass needs.
#[derive(Debug)]
pub(crate) struct SavedExpertMlp<O: Ops> {
    /// Residual stream between attention and MLP, `[N, D]`.
    m: O::Stream,
    pub(super) experts: SavedExperts<O>,
    /// Input of the norm after the experts, if there is one, `[N, D]`.
    mapped: Option<O::Act>,
}

impl<O: Ops> SavedExpertMlp<O> {
    /// Returns all buffers to the pool.
    pub(super) fn give(self, pool: &mut Pool<O>) {
        pool.give(self.experts.buffers().chain(self.mapped));
        pool.give_streams([self.m]);
    }
}

impl<O: Ops> LayerPass<'_, O> {
    /// Computes the residual stream `[N, D]` after the experts of the layer.
    pub(super) fn expert_mlp(
        &self,
        experts: &Experts<Linear<O>>,
        m: O::Stream,
        pool: &mut Pool<O>,
    ) -> Result<(O::Stream, SavedExpertMlp<O>), ModelError> {
        let Layer { before_mlp, after_mlp, .. } = self.layer;
        // 1. Norm: (N, D) -> (N, D)
        let h = self.norm_before(&m, before_mlp.as_ref(), pool)?;
        // 2. Router and experts: (N, D) -> (N, D)
        let (mixed, experts) = self.ops.experts((&h, self.routes), experts, pool)?;
        pool.give([h]);
        // 3. Norm and residual sum: (N, D) -> (N, D)
        let (y, mapped) = match after_mlp {
            Some(norm) => (self.ops.norm_onto(&m, &mixed, norm, pool)?, Some(mixed)),
            None => {
                let y = self.ops.sum_onto(&m, &mixed, pool)?;
                pool.give([mixed]);
                (y, None)
            }
        };
        Ok((y, SavedExpertMlp { m, experts, mapped }))
    }

    /// Adds the gradients of the experts of the layer. Returns the gradient `[N, D]` of its input, from that of its result.
    pub(super) fn expert_mlp_backward(
        &self,
        experts: &Experts<Linear<O>>,
        SavedExpertMlp { m, experts: saved, mapped }: SavedExpertMlp<O>,
        (dy, balance): (O::Stream, Option<BalanceTerm<'_>>),
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<O::Stream, ModelError> {
        let Layer { before_mlp, after_mlp, .. } = self.layer;
        // 3. (N, D) -> (N, D)
        let dmixed = match (after_mlp, &mapped) {
            (Some(norm), Some(mapped)) => {
                self.ops.norm_onto_back(mapped, norm, &dy, gradients, pool)?
            }
            _ => self.ops.copy_stream(&dy, pool)?,
        };
        // 2. (N, D) -> (N, D)
        let before = before_mlp.as_ref();
        let h = self.norm_before(&m, before, pool)?;
        let terms = (&dmixed, balance);
        let dh = self.ops.experts_back(&h, experts, saved, terms, gradients, pool)?;
        // 1. (N, D) -> (N, D)
        let dm = self.norm_before_backward(&m, before, &dh, dy, gradients, pool)?;
        pool.give([h, dh, dmixed].into_iter().chain(mapped));
        pool.give_streams([m]);
        Ok(dm)
    }
}
