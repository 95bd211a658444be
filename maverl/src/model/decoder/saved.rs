//! What a forward pass leaves behind for the way back.

use crate::model::pool::Pool;

/// What attention of a layer is given.
#[derive(Debug, Default)]
pub(in crate::model) struct Projected {
    /// Queries and keys before their norms, where they have some.
    pub(super) raw_q: Option<Vec<f32>>,
    pub(super) raw_k: Option<Vec<f32>>,
    /// As attention reads them: normalized and rotated.
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
}

/// What a layer computed on its way, which its way back needs.
pub(in crate::model) struct Saved {
    /// The input `[N, D]`.
    pub(super) x: Vec<f32>,
    pub(super) projected: Projected,
    pub(super) attended: Vec<f32>,
    /// The residual stream between attention and MLP.
    pub(super) mid: Vec<f32>,
    pub(super) gate: Vec<f32>,
    pub(super) up: Vec<f32>,
}

impl Saved {
    /// Gives back all but the input.
    pub(in crate::model) fn keep_input(self, pool: &mut Pool) -> Vec<f32> {
        let Self { x, projected, attended, mid, gate, up } = self;
        let Projected { raw_q, raw_k, q, k, v } = projected;
        pool.give([q, k, v, attended, mid, gate, up]);
        pool.give(raw_q.into_iter().chain(raw_k));
        x
    }
}
