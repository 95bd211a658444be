//! Intermediate results of a forward pass, kept for the backward pass.

use crate::model::ops::Ops;
use crate::model::pool::Pool;

/// Inputs of a layer's attention.
#[derive(Debug)]
pub struct Projected<O: Ops> {
    /// Queries and keys before their norms, if they have norms.
    pub(super) raw_q: Option<O::Act>,
    pub(super) raw_k: Option<O::Act>,
    /// Queries as attention reads them: normalized and rotated.
    pub(super) q: O::Act,
    pub(super) k: O::Act,
    pub(super) v: O::Act,
}

impl<O: Ops> Default for Projected<O> {
    fn default() -> Self {
        let (q, k, v) = Default::default();
        Self { raw_q: None, raw_k: None, q, k, v }
    }
}

/// Intermediate results of a layer that its backward pass needs.
#[derive(Debug)]
pub(in crate::model) struct Saved<O: Ops> {
    /// Input of the layer, `[N, D]`.
    pub(super) x: O::Stream,
    pub(super) projected: Projected<O>,
    pub(super) attended: O::Act,
    pub(super) lse: O::Lse,
    /// Residual stream between attention and MLP.
    pub(super) mid: O::Stream,
    pub(super) gate: O::Act,
    pub(super) up: O::Act,
}

impl<O: Ops> Saved<O> {
    /// Returns all buffers but the input to the pool.
    pub(in crate::model) fn keep_input(self, pool: &mut Pool<O>) -> O::Stream {
        let Self { x, projected, attended, lse: _, mid, gate, up } = self;
        let Projected { raw_q, raw_k, q, k, v } = projected;
        pool.give([q, k, v, attended, gate, up]);
        pool.give_streams([mid]);
        pool.give(raw_q.into_iter().chain(raw_k));
        x
    }
}
