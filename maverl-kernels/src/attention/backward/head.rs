//! A key head of a node: its inputs and its gradients.

use std::borrow::Cow;

use crate::attention::packing::{PathNode, token_rows};
use crate::attention::shapes::Heads;
use crate::attention::vector;
#[cfg(doc)]
use crate::lanes;

/// Arrays of all tokens, `[n, heads.q * dim]`, or `[n, heads.kv * dim]` of keys and values.
#[derive(Clone, Copy)]
pub(in crate::attention) struct BackwardInputs<'a> {
    pub(in crate::attention) q: &'a [f32],
    pub(in crate::attention) k: &'a [f32],
    pub(in crate::attention) v: &'a [f32],
    pub(in crate::attention) out: &'a [f32],
    pub(in crate::attention) dout: &'a [f32],
    /// Scores of sinks, `[heads.q]`; empty without sinks.
    pub(in crate::attention) sinks: &'a [f32],
    pub(in crate::attention) heads: Heads,
}

/// Gradients of one key head and of the query heads that use it.
pub(in crate::attention) struct Grads {
    /// Gradients of queries, `[queries, group * dim]`.
    pub(in crate::attention) dq: Vec<f32>,
    /// Gradients of keys, `[tokens, padded dim]`.
    pub(in crate::attention) dk: Vec<f32>,
    /// Gradients of values, `[tokens, padded dim]`.
    pub(in crate::attention) dv: Vec<f32>,
    /// Gradients of sinks by each query, `[queries, group]`; empty without sinks.
    pub(in crate::attention) dsinks: Vec<f32>,
}

/// A node and a key head.
#[derive(Clone, Copy)]
pub(in crate::attention) struct HeadView<'a> {
    pub(in crate::attention) inputs: BackwardInputs<'a>,
    pub(in crate::attention) node: &'a PathNode,
    pub(in crate::attention) head: usize,
    /// Number of keys of a block, a multiple of [`LANES`](lanes::LANES). No bit depends on it.
    pub(super) block: usize,
}

/// Keys, or values, of a head for the tokens of a path: the columns `at..at + dim` of consecutive rows of `width`.
pub(in crate::attention) struct HeadRows<'a> {
    pub(in crate::attention) data: Cow<'a, [f32]>,
    pub(in crate::attention) width: usize,
    pub(in crate::attention) at: usize,
}

impl<'a> HeadRows<'a> {
    /// Returns the rows of a path in `x [n, heads.kv * dim]`. They are copied if they do not follow each other.
    pub(in crate::attention) fn of_path(x: &'a [f32], view: &HeadView<'_>) -> Self {
        let HeadView { inputs: BackwardInputs { heads, .. }, node, head, .. } = *view;
        let (width, at) = (heads.kv_width(), head * heads.dim);
        if let Some(data) = node.contiguous(x, width) {
            return Self { data: Cow::Borrowed(data), width, at };
        }
        let ranges = node.path.iter().map(|tokens| token_rows(x, tokens, width));
        let rows = ranges.flat_map(|rows| rows.chunks_exact(width));
        let data = rows.flat_map(|row| &row[at..at + heads.dim]).copied().collect();
        Self { data: Cow::Owned(data), width: heads.dim, at: 0 }
    }

    /// Returns the rows of the first tokens, transposed by [`vector::transpose_head`].
    pub(super) fn transpose(&self, dim: usize, tokens: usize) -> Vec<f32> {
        let mut out = Vec::new();
        vector::transpose_head(&self.data, self.width, self.at, dim, tokens, &mut out);
        out
    }
}
