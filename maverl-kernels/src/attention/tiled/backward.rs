//! Backward pass of queries with many keys.
//!
//! Some queries of one head are computed at once. Their scores of all keys are held, because their softmax needs them. Each
//! block of keys then takes part in five products, one for the scores and those of `attention_bwd`:
//!
//! ```text
//! dP = dO Vᵀ,   dS = P (dP − D),   dQ += dS K,   dK += dSᵀ Q,   dV += Pᵀ dO
//! ```

use super::weights::{LongScores, RowProducts, ScoreBlock, ScoreGradients};
use super::{KEYS, PANEL, ROWS, key_blocks};
use crate::attention::backward::{Grads, HeadRows, HeadView};
use crate::attention::shapes::Heads;
use crate::attention::vector::padded_dim;
use crate::matmul::{BlockPanels, BlockSide};

/// Keys and values of a block in the layouts of products.
struct PackedKeys {
    /// Position of the first key, and the number of keys.
    start: usize,
    len: usize,
    /// Keys and values as columns with `dim` terms, and keys as terms of `dim` columns.
    keys: BlockPanels,
    values: BlockPanels,
    turned: BlockPanels,
}

/// Buffers for some queries of one head. The first dimension is that of the queries.
#[derive(Default)]
struct LongBuffers {
    /// Scaled queries, outputs and their gradients, `[.., dim]`.
    q: Vec<f32>,
    out: Vec<f32>,
    dout: Vec<f32>,
    /// Queries and gradients of outputs as terms of `dim` columns.
    q_panels: BlockPanels,
    dout_panels: BlockPanels,
    /// Gradients of scaled queries, `[.., dim]`.
    dq: Vec<f32>,
    /// Scores of all blocks of keys, then exponentials, then probabilities.
    scores: Vec<f32>,
    slopes: Vec<f32>,
    blocks: Vec<ScoreBlock>,
    /// Gradients of the scores of a block.
    ds: Vec<f32>,
    inverses: Vec<f32>,
    of_sinks: Vec<f32>,
    pulls: Vec<f32>,
}

/// Adds the gradients of the queries of a node that attend to many keys. Its other queries were added before.
pub(in crate::attention) fn add_long_gradients(view: &HeadView<'_>, grads: &mut Grads) {
    let heads = view.inputs.heads;
    let (first, end) =
        (view.node.past.max(heads.first_long()), view.node.past + view.node.own.len());
    if first >= end {
        return;
    }
    let [k, v] = [view.inputs.k, view.inputs.v].map(|x| HeadRows::of_path(x, view));
    let blocks: Vec<PackedKeys> = key_blocks(heads.first_key(first), end)
        .map(|keys| PackedKeys::pack([&k, &v], keys.start, keys.len(), heads.dim))
        .collect();
    let mut buffers = LongBuffers::default();
    for start in (first..end).step_by(ROWS) {
        for member in 0..heads.group_size() {
            let rows = LongQueries { view, start, end: end.min(start + ROWS), member };
            rows.add_gradients(&blocks, &mut buffers, grads);
        }
    }
}

impl PackedKeys {
    fn pack([k, v]: [&HeadRows<'_>; 2], start: usize, len: usize, dim: usize) -> Self {
        let [k, v] = [k, v].map(|x| copy_rows(x, start, len, dim));
        let [mut keys, mut values, mut turned] = [(); 3].map(|()| BlockPanels::default());
        keys.pack_side(BlockSide::from_rows(&k, dim));
        values.pack_side(BlockSide::from_rows(&v, dim));
        turned.pack_side(BlockSide::from_columns(&k, dim));
        Self { start, len, keys, values, turned }
    }
}

/// Copies rows of a head, and appends zeros up to a whole panel.
fn copy_rows(x: &HeadRows<'_>, start: usize, len: usize, dim: usize) -> Vec<f32> {
    let mut rows = vec![0.0; len.next_multiple_of(PANEL) * dim];
    let from = x.data[start * x.width..].chunks_exact(x.width).take(len);
    for (row, from) in rows.chunks_exact_mut(dim).zip(from) {
        row.copy_from_slice(&from[x.at..x.at + dim]);
    }
    rows
}

/// Consecutive queries of one query head.
struct LongQueries<'a> {
    view: &'a HeadView<'a>,
    /// Positions of the queries.
    start: usize,
    end: usize,
    /// Index of the query head in the group.
    member: usize,
}

impl LongQueries<'_> {
    fn heads(&self) -> Heads {
        self.view.inputs.heads
    }

    fn add_gradients(&self, blocks: &[PackedKeys], buffers: &mut LongBuffers, grads: &mut Grads) {
        let first_key = self.heads().first_key(self.start);
        let read =
            blocks.iter().filter(|keys| keys.start < self.end && first_key < keys.start + KEYS);
        self.load_queries(buffers);
        self.compute_scores(read.clone(), buffers);
        self.compute_weights(buffers, grads);
        for (i, keys) in read.enumerate() {
            self.add_block(keys, i, buffers, grads);
        }
        self.store_query_gradients(&buffers.dq, grads);
    }

    /// Copies the rows of the queries, and packs those that are the right side of a product.
    fn load_queries(&self, buffers: &mut LongBuffers) {
        let (inputs, heads) = (self.view.inputs, self.heads());
        let LongBuffers { q, out, dout, q_panels, dout_panels, dq, .. } = buffers;
        for (to, from) in [(&mut *q, inputs.q), (out, inputs.out), (&mut *dout, inputs.dout)] {
            to.clear();
            for query in self.start..self.end {
                to.extend_from_slice(&from[self.query_index(query)..][..heads.dim]);
            }
        }
        q.iter_mut().for_each(|q| *q *= heads.score_scale());
        q_panels.pack_side(BlockSide::from_columns(q, heads.dim));
        dout_panels.pack_side(BlockSide::from_columns(dout, heads.dim));
        dq.clear();
        dq.resize(q.len(), 0.0);
    }

    /// Returns the index of a query of this member of the group in arrays of queries, from its position.
    fn query_index(&self, query: usize) -> usize {
        let HeadView { inputs, node, head, .. } = *self.view;
        let heads = inputs.heads;
        (node.own.start + query - node.past) * heads.q_width()
            + (head * heads.group_size() + self.member) * heads.dim
    }

    /// Computes the scores of all blocks of keys.
    fn compute_scores<'k>(
        &self,
        read: impl Iterator<Item = &'k PackedKeys>,
        buffers: &mut LongBuffers,
    ) {
        let (rows, dim) = (self.end - self.start, self.heads().dim);
        let LongBuffers { q, scores, slopes, blocks, .. } = buffers;
        blocks.clear();
        let mut at = 0;
        for keys in read {
            let columns = (keys.len.min(self.end - keys.start)).next_multiple_of(PANEL);
            let len = rows * columns;
            scores.resize(scores.len().max(at + len), 0.0);
            let out = (&mut scores[at..at + len], columns);
            let q = (BlockSide::from_rows(q, dim), rows);
            keys.keys.set_products(q, columns, out);
            blocks.push(ScoreBlock { start: keys.start, at, columns });
            at += len;
        }
        let bounded = self.heads().scores.softcap.is_some();
        slopes.resize(if bounded { scores.len() } else { 0 }, 0.0);
    }

    /// Replaces scores by exponentials. Writes the gradients of sinks: that of a query is minus its probability times the
    /// sum of the products of `out` and its gradient, as a sink has no value.
    fn compute_weights(&self, buffers: &mut LongBuffers, grads: &mut Grads) {
        let (heads, group, rows) = (self.heads(), self.heads().group_size(), self.end - self.start);
        let LongBuffers { out, dout, scores, slopes, blocks, .. } = buffers;
        let [inverses, of_sinks, pulls] =
            [&mut buffers.inverses, &mut buffers.of_sinks, &mut buffers.pulls];
        for of_rows in [&mut *inverses, &mut *of_sinks, &mut *pulls] {
            of_rows.resize(rows, 0.0);
        }
        let sink = self.view.inputs.sinks.get(self.view.head * group + self.member).copied();
        let first = self.start;
        LongScores { blocks, scores, slopes, first, heads, sink, inverses, of_sinks }.weigh();
        RowProducts { a: dout, b: out, dim: heads.dim, out: &mut *pulls }.multiply();
        if sink.is_some() {
            let from = (self.start - self.view.node.past) * group + self.member;
            let dsinks = grads.dsinks[from..].iter_mut().step_by(group);
            for ((dsink, of_sink), pull) in dsinks.zip(of_sinks).zip(pulls) {
                *dsink = -*of_sink * *pull;
            }
        }
    }

    /// Adds the gradients by the keys of the `i`-th block that is read.
    fn add_block(&self, keys: &PackedKeys, i: usize, buffers: &mut LongBuffers, grads: &mut Grads) {
        let (rows, dim) = (self.end - self.start, self.heads().dim);
        let LongBuffers { dout, scores, slopes, blocks, ds, dq, .. } = buffers;
        let (inverses, pulls) = (&buffers.inverses[..], &buffers.pulls[..]);
        let ScoreBlock { at, columns, .. } = blocks[i];
        let here = at..at + rows * columns;
        ds.resize(ROWS * KEYS, 0.0);
        let ds = &mut ds[..rows * columns];
        let left = (BlockSide::from_rows(dout, dim), rows);
        keys.values.set_products(left, columns, (&mut *ds, columns));
        let weights = &mut scores[here.clone()];
        let slopes = slopes.get(here).unwrap_or_default();
        let of_scores = ScoreGradients {
            weights: &mut *weights,
            ds: &mut *ds,
            slopes,
            columns,
            inverses,
            pulls,
        };
        of_scores.differentiate();
        let left = (BlockSide::from_rows(ds, columns), rows);
        keys.turned.add_products(left, dim, (dq, dim));
        let (wide, len) = (padded_dim(dim), keys.len.min(columns));
        let to = keys.start * wide..(keys.start + len) * wide;
        let left = (BlockSide::from_columns(ds, columns), len);
        buffers.q_panels.add_products(left, dim, (&mut grads.dk[to.clone()], wide));
        let left = (BlockSide::from_columns(weights, columns), len);
        buffers.dout_panels.add_products(left, dim, (&mut grads.dv[to], wide));
    }

    /// Stores the gradients of the queries.
    fn store_query_gradients(&self, found: &[f32], grads: &mut Grads) {
        let (heads, past) = (self.heads(), self.view.node.past);
        let (dim, members) = (heads.dim, heads.group_size() * heads.dim);
        let dq = &mut grads.dq[(self.start - past) * members + self.member * dim..];
        for (dq, found) in dq.chunks_mut(members).zip(found.chunks_exact(dim)) {
            for (dq, found) in dq.iter_mut().zip(found) {
                *dq = found * heads.score_scale();
            }
        }
    }
}
