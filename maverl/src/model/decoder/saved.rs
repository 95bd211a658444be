//! Intermediate results of a forward pass, kept for the backward pass.

use crate::model::pool::Pool;

/// Inputs of a layer's attention.
#[derive(Debug, Default)]
pub(in crate::model) struct Projected {
    /// Queries and keys before their norms, if they have norms.
    pub(super) raw_q: Option<Vec<f32>>,
    pub(super) raw_k: Option<Vec<f32>>,
    /// Queries as attention reads them: normalized and rotated.
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
}

/// Intermediate results of a layer that its backward pass needs.
pub(in crate::model) struct Saved {
    /// Input of the layer, `[N, D]`.
    pub(super) x: Vec<f32>,
    pub(super) projected: Projected,
    pub(super) attended: Vec<f32>,
    /// Residual stream between attention and MLP.
    pub(super) mid: Vec<f32>,
    pub(super) gate: Vec<f32>,
    pub(super) up: Vec<f32>,
}

impl Saved {
    /// Returns all buffers but the input to the pool.
    pub(in crate::model) fn keep_input(self, pool: &mut Pool) -> Vec<f32> {
        let Self { x, projected, attended, mid, gate, up } = self;
        let Projected { raw_q, raw_k, q, k, v } = projected;
        pool.give([q, k, v, attended, mid, gate, up]);
        pool.give(raw_q.into_iter().chain(raw_k));
        x
    }
}
