//! Gradients by blocks of queries and blocks of keys.
//!
//! The probabilities of a few blocks of queries are computed first: they need the scores of all keys. The products with
//! output gradients, and all sums of gradients, then take one block of keys after the other, so that the blocks of queries
//! find its keys, values and gradients in a cache. Sums over keys are continued from one block of keys to the next, and those
//! over queries take the queries in ascending order: the bits do not depend on the blocks.

use std::ops::Range;

use pulp::Simd;

use super::head::{BackwardInputs, Grads, HeadRows, HeadView};
use crate::attention::accumulate::Accumulate;
use crate::attention::rows::SequenceValues;
use crate::attention::shapes::Heads;
use crate::attention::vector;
use crate::attention::weighted::{CHAINS, Weighted, add_up_sums};
use crate::lanes::{LANES, Lanes};

/// Queries of a block, so that a key's gradient is read and written once for all of them.
pub(super) const QUERIES: usize = 16;

/// A block of queries of one query head.
pub(super) struct QueryBlock<'a> {
    pub(super) view: &'a HeadView<'a>,
    /// Keys of the path.
    pub(super) rows: &'a HeadRows<'a>,
    /// Transposed keys.
    pub(super) keys: &'a [f32],
    pub(super) values: &'a [f32],
    /// First key that is read: a multiple of [`LANES`].
    pub(super) from: usize,
    /// Positions of the queries of the block.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Index of the query head in the group.
    pub(super) member: usize,
}

/// Buffers of a block of queries.
#[derive(Clone)]
pub(super) struct BlockBuffers {
    /// Scaled queries and output gradients, `[QUERIES, padded dim]`.
    q: Vec<f32>,
    dout: Vec<f32>,
    /// Scores, then their exponentials, `[QUERIES, pitch]`.
    p: Vec<f32>,
    /// Derivatives of bounded scores by scores, `[QUERIES, pitch]`; empty without a bound.
    slopes: Vec<f32>,
    /// Inverse of the sum of each query's exponentials, and the product of its `out` and `dout`.
    inverses: [f32; QUERIES],
    pulls: [f32; QUERIES],
    /// Four sums of the gradients of each query, `[QUERIES, 4, dim]`.
    sums: Vec<f32>,
}

impl BlockBuffers {
    /// Creates buffers for rows of so many tokens.
    pub(super) fn new(heads: Heads, tokens: usize) -> Self {
        let wide = vector::padded_dim(heads.dim);
        let size = QUERIES * (vector::padded_dim(tokens) + LANES);
        Self {
            q: vec![0.0; QUERIES * wide],
            dout: vec![0.0; QUERIES * wide],
            p: vec![0.0; size],
            slopes: vec![0.0; heads.scores.softcap.map_or(0, |_| size)],
            inverses: [0.0; QUERIES],
            pulls: [0.0; QUERIES],
            sums: vec![0.0; QUERIES * CHAINS * heads.dim],
        }
    }
}

/// Blocks of queries whose gradients are computed together, each with its buffers.
pub(super) struct QueryBlocks<'a> {
    pub(super) blocks: &'a [QueryBlock<'a>],
    pub(super) buffers: &'a mut [BlockBuffers],
    /// Gradients of scores by a block of keys, `[QUERIES, padded keys]`.
    pub(super) ds: &'a mut [f32],
}

impl QueryBlocks<'_> {
    /// Adds the gradients of the blocks, in their order.
    #[inline(always)]
    pub(super) fn add_gradients<S: Simd, const N: usize>(
        self,
        lanes: Lanes<S, N>,
        grads: &mut Grads,
    ) {
        let Self { blocks, buffers, ds } = self;
        let Some(one) = blocks.first() else { return };
        let size = one.view.block;
        let from = blocks.iter().map(|block| block.from).min().unwrap_or(0);
        let end = blocks.iter().map(|block| block.end).max().unwrap_or(0);
        let parts = || (from / size * size..end).step_by(size).map(|start| start..start + size);
        for (block, buffers) in blocks.iter().zip(&mut *buffers) {
            block.load_queries(buffers);
        }
        for part in parts() {
            for (block, buffers) in blocks.iter().zip(&mut *buffers) {
                block.compute_scores(lanes, &part, buffers);
            }
        }
        for (block, buffers) in blocks.iter().zip(&mut *buffers) {
            block.compute_weights(lanes, buffers, &mut grads.dsinks);
        }
        for part in parts() {
            for (block, buffers) in blocks.iter().zip(&mut *buffers) {
                block.add_part(lanes, &part, (buffers, &mut *ds), grads);
            }
        }
        for (block, buffers) in blocks.iter().zip(&*buffers) {
            block.store_query_gradients(buffers, grads);
        }
    }
}

impl QueryBlock<'_> {
    /// Returns the elements from a row of scores to the next. At a distance of a page or more, rows would share few sets of a
    /// level-1 cache.
    #[inline(always)]
    fn pitch(&self) -> usize {
        let keys = vector::padded_dim(self.end - self.from);
        keys + if keys.is_multiple_of(1024) { LANES } else { 0 }
    }

    /// Returns the keys of a part that some query attends to: the first is a multiple of [`LANES`].
    #[inline(always)]
    fn keys_of(&self, part: &Range<usize>) -> Range<usize> {
        part.start.max(self.from)..part.end.min(self.end)
    }

    /// Returns the index of a query of this group member in arrays of queries, from its position.
    #[inline(always)]
    fn query_index(&self, query: usize) -> usize {
        let HeadView { inputs: BackwardInputs { heads, .. }, node, head, .. } = *self.view;
        (node.own.start + query - node.past) * heads.q_width()
            + (head * heads.group_size() + self.member) * heads.dim
    }

    /// Scales queries and copies output gradients to rows of the padded dim.
    #[inline(always)]
    fn load_queries(&self, buffers: &mut BlockBuffers) {
        let BackwardInputs { q: all_q, dout: all_dout, heads, .. } = self.view.inputs;
        let wide = vector::padded_dim(heads.dim);
        let rows = buffers.q.chunks_exact_mut(wide).zip(buffers.dout.chunks_exact_mut(wide));
        for (i, (q, dout)) in (self.start..self.end).zip(rows) {
            let here = self.query_index(i)..self.query_index(i) + heads.dim;
            q.iter_mut()
                .zip(&all_q[here.clone()])
                .for_each(|(to, q)| *to = q * heads.score_scale());
            dout[..heads.dim].copy_from_slice(&all_dout[here]);
        }
        buffers.sums.fill(0.0);
    }

    /// Computes the scores of the keys of a part.
    #[inline(always)]
    fn compute_scores<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        part: &Range<usize>,
        BlockBuffers { q, p, .. }: &mut BlockBuffers,
    ) {
        let (pitch, keys) = (self.pitch(), self.keys_of(part));
        let at = keys.start.saturating_sub(self.from);
        let p = &mut p[..(self.end - self.start) * pitch];
        self.multiply_rows(lanes, (q, self.keys), &keys, (p, pitch, at));
    }

    /// Computes the products of rows with the keys or values of a range, from column `at` of the rows of `pitch` on.
    #[inline(always)]
    fn multiply_rows<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        (rows, of_keys): (&[f32], &[f32]),
        keys: &Range<usize>,
        (out, pitch, at): (&mut [f32], usize, usize),
    ) {
        let dim = self.view.inputs.heads.dim;
        let x = vector::PitchedRows { data: rows, pitch: vector::padded_dim(dim), dim };
        for start in keys.clone().step_by(LANES) {
            // Earlier queries attend to none of these keys.
            let first = start.saturating_sub(self.start);
            let (of_keys, at) = (&of_keys[start * dim..][..LANES * dim], at + start - keys.start);
            vector::KeyProducts { x, first, keys: of_keys, out: &mut *out, pitch, at }
                .compute_products(lanes);
        }
    }

    /// Replaces scores by exponentials. Writes the gradients of sinks: that of a query is minus its probability times the
    /// sum of the products of `out` and its gradient, as a sink has no value.
    #[inline(always)]
    fn compute_weights<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        buffers: &mut BlockBuffers,
        dsinks: &mut [f32],
    ) {
        let BackwardInputs { out: all_out, heads, sinks, .. } = self.view.inputs;
        let (group, past, pitch) = (heads.group_size(), self.view.node.past, self.pitch());
        let sink = sinks.get(self.view.head * group + self.member).copied();
        let BlockBuffers { dout, p, slopes, inverses, pulls, .. } = buffers;
        let rows = p.chunks_exact_mut(pitch).zip(dout.chunks_exact(vector::padded_dim(heads.dim)));
        for (row, (i, (p, dout))) in (self.start..self.end).zip(rows).enumerate() {
            let keys = i + 1 - self.from;
            let seen = vector::padded_dim(keys);
            if let Some(cap) = heads.scores.softcap {
                let slopes = Some(&mut slopes[row * pitch..][..seen]);
                lanes.call_part(vector::SoftCap { scores: &mut p[..seen], cap, slopes });
            }
            p[..heads.first_key(i).saturating_sub(self.from)].fill(f32::NEG_INFINITY);
            let softmax = vector::Softmax { scores: &mut p[..seen], keys, sink };
            let [inverse, of_sink] = lanes.call_part(softmax);
            let out = &all_out[self.query_index(i)..][..heads.dim];
            let pull = lanes.dot(&dout[..heads.dim], out);
            if sink.is_some() {
                dsinks[(i - past) * group + self.member] = -of_sink * pull;
            }
            (inverses[row], pulls[row]) = (inverse, pull);
            p[seen..].fill(0.0);
        }
    }

    /// Adds the gradients by the keys of a part.
    #[inline(always)]
    fn add_part<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        part: &Range<usize>,
        (buffers, ds): (&mut BlockBuffers, &mut [f32]),
        grads: &mut Grads,
    ) {
        let (keys, rows) = (self.keys_of(part), self.end - self.start);
        if keys.is_empty() {
            return;
        }
        let (pitch, wide) = (self.pitch(), vector::padded_dim(self.view.inputs.heads.dim));
        let (at, columns) = (keys.start - self.from, vector::padded_dim(keys.len()));
        let ds = &mut ds[..rows * columns];
        self.multiply_rows(lanes, (&buffers.dout, self.values), &keys, (&mut *ds, columns, 0));
        self.score_gradients(lanes, &keys, buffers, ds);
        self.add_query_gradients(lanes, &keys, ds, &mut buffers.sums);
        let BlockBuffers { q, dout, p, .. } = &*buffers;
        let acc = keys.start * wide..keys.end * wide;
        let (weights, x) = (&*ds, &q[..rows * wide]);
        let acc_dk = &mut grads.dk[acc.clone()];
        lanes.call_part(Accumulate { weights, pitch: columns, at: 0, x, width: wide, acc: acc_dk });
        let (weights, x, acc) = (&p[..rows * pitch], &dout[..rows * wide], &mut grads.dv[acc]);
        lanes.call_part(Accumulate { weights, pitch, at, x, width: wide, acc });
    }

    /// Replaces exponentials by probabilities, and products `ds` with output gradients by gradients of the scores of the
    /// keys.
    #[inline(always)]
    fn score_gradients<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        keys: &Range<usize>,
        buffers: &mut BlockBuffers,
        ds: &mut [f32],
    ) {
        let bounded = self.view.inputs.heads.scores.softcap.is_some();
        let (pitch, columns) = (self.pitch(), vector::padded_dim(keys.len()));
        let at = keys.start - self.from;
        let BlockBuffers { p, slopes, inverses, pulls, .. } = buffers;
        let rows = p.chunks_exact_mut(pitch).zip(ds.chunks_exact_mut(columns));
        for (row, (i, (p, ds))) in (self.start..self.end).zip(rows).enumerate() {
            let seen = vector::padded_dim((i + 1).saturating_sub(keys.start)).min(columns);
            let (inverse, pull) = (lanes.splat(inverses[row]), lanes.splat(pulls[row]));
            lanes.map_lanes(
                [],
                [&mut p[at..at + seen], &mut ds[..seen]],
                #[inline(always)]
                |[], [p, ds]| {
                    let p = lanes.mul(p, inverse);
                    [p, lanes.mul(p, lanes.sub(ds, pull))]
                },
            );
            if bounded {
                lanes.map_lanes(
                    [&slopes[row * pitch + at..][..seen]],
                    [&mut ds[..seen]],
                    #[inline(always)]
                    |[slope], [ds]| [lanes.mul(ds, slope)],
                );
            }
            ds[seen..].fill(0.0);
        }
    }

    /// Adds the products of score gradients with the keys to the sums of the gradients of queries.
    #[inline(always)]
    fn add_query_gradients<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        keys: &Range<usize>,
        ds: &[f32],
        sums: &mut [f32],
    ) {
        let mut counts = [0; QUERIES];
        for (count, query) in counts.iter_mut().zip(self.start..self.end) {
            *count = (query + 1).saturating_sub(keys.start).min(keys.len());
        }
        let HeadRows { data, width, at } = self.rows;
        let weighted = Weighted {
            weights: ds,
            pitch: vector::padded_dim(keys.len()),
            counts: &counts[..self.end - self.start],
            scales: &[1.0; QUERIES],
            x: SequenceValues::Whole(&data[keys.start * width..]),
            width: *width,
            at: *at,
            dim: self.view.inputs.heads.dim,
        };
        weighted.add_keys(lanes, 0..keys.len(), sums);
    }

    /// Stores the gradients of the queries.
    #[inline(always)]
    fn store_query_gradients(&self, buffers: &BlockBuffers, grads: &mut Grads) {
        let HeadView { inputs: BackwardInputs { heads, .. }, node, .. } = *self.view;
        let (dim, members) = (heads.dim, heads.group_size() * heads.dim);
        let scales = [heads.score_scale(); QUERIES];
        let dq = &mut grads.dq[(self.start - node.past) * members + self.member * dim..];
        add_up_sums(&buffers.sums, &scales[..self.end - self.start], (dq, dim, members));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use crate::attention::packing::Packing;
    use crate::attention::shapes::Scores;
    use crate::testing::{random, same_bits};

    use super::*;

    /// Returns the gradients of the only key head for all nodes, with so many keys in a block.
    fn gradients(heads: Heads, sinks: &[f32], block: usize) -> Vec<Grads> {
        let n = 700;
        let (qw, kvw) = (n * heads.q_width(), n * heads.kv_width());
        let [q, out, dout] = [1, 2, 3].map(|seed| random(seed, qw));
        let [k, v] = [4, 5].map(|seed| random(seed, kvw));
        let (q, k, v, out, dout) = (&q[..], &k[..], &v[..], &out[..], &dout[..]);
        let inputs = BackwardInputs { q, k, v, out, dout, sinks, heads };
        // A root, two of its children, and a child of the second.
        let parents = [None, Some(0), Some(0), Some(2)];
        let nodes = Packing { offsets: &[0, 300, 390, 600, 700], parents: &parents }.path_nodes();
        let views = nodes.iter().map(|node| HeadView { inputs, node, head: 0, block });
        views.map(|view| view.head_gradients()).collect()
    }

    #[test]
    fn blocks_of_keys_do_not_change_a_bit_of_a_gradient() {
        let scored =
            |window, softcap| Scores { window: NonZeroU32::new(window), softcap, scale: None };
        for (heads, sinks) in [
            (Heads::new(1, 1, 64), vec![]),
            (Heads::new(3, 1, 20), vec![]),
            (Heads::new(2, 1, 8).with_scores(scored(150, None)), random(6, 2)),
            (Heads::new(5, 1, 7).with_scores(scored(0, Some(2.0))), vec![]),
        ] {
            let whole = gradients(heads, &sinks, 1024);
            for block in [16, 64, 336] {
                for (whole, found) in whole.iter().zip(gradients(heads, &sinks, block)) {
                    same_bits(&whole.dq, &found.dq);
                    same_bits(&whole.dk, &found.dk);
                    same_bits(&whole.dv, &found.dv);
                    same_bits(&whole.dsinks, &found.dsinks);
                }
            }
        }
    }
}
