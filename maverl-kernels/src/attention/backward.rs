//! Backward pass of attention over trees of packed rows.

use std::borrow::Cow;
use std::ops::Range;

use pulp::Simd;
use rayon::prelude::*;

use super::packing::{PathNode, token_rows};
use super::rows::SequenceValues;
use super::shapes::Heads;
use super::vector;
use super::weighted::{self, Weighted};
use crate::lanes::{self, Kernel, LANES, Lanes};

/// Queries whose probabilities are held at once, so that a key's gradient is read and written once for all of them.
const QUERIES: usize = 16;

/// Arrays of all tokens, `[n, heads.q * dim]`, or `[n, heads.kv * dim]` of keys and values.
#[derive(Clone, Copy)]
pub(super) struct BackwardInputs<'a> {
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) out: &'a [f32],
    pub(super) dout: &'a [f32],
    /// Scores of sinks, `[heads.q]`; empty without sinks.
    pub(super) sinks: &'a [f32],
    pub(super) heads: Heads,
}

/// A tree of nodes, and the slices of its gradients, by queries, keys, values and sinks.
pub(super) struct BackwardTree<'a> {
    pub(super) nodes: &'a [PathNode],
    pub(super) grads: [&'a mut [f32]; 4],
}

impl BackwardTree<'_> {
    /// Overwrites the gradients of the tree. With the nodes n in pre-order, of which the first overwrites:
    ///
    /// ```text
    /// dk_m = Σ_n ds_nmᵀ q_n,   dv_m = Σ_n p_nmᵀ dout_n,   m on the path of n
    /// ```
    ///
    /// About as many heads of nodes as `threads` are computed at once. The order of the sums does not depend on it.
    pub(super) fn run_tree(mut self, inputs: BackwardInputs<'_>, threads: usize) {
        let kv = inputs.heads.kv;
        for nodes in self.nodes.chunks(threads.div_ceil(kv)) {
            let views: Vec<HeadView<'_>> = nodes
                .iter()
                .flat_map(|node| (0..kv).map(move |head| HeadView { inputs, node, head }))
                .collect();
            if threads > 1 {
                let found: Vec<Grads> = views.par_iter().map(HeadView::head_gradients).collect();
                views.iter().zip(found).for_each(|(view, found)| self.store_head(view, &found));
            } else {
                views.iter().for_each(|view| self.store_head(view, &view.head_gradients()));
            }
        }
    }

    /// Copies the gradients of a node's tokens to the columns of a head, and adds those of its ancestors.
    fn store_head(&mut self, view: &HeadView<'_>, found: &Grads) {
        let HeadView { inputs: BackwardInputs { heads, .. }, node, head } = *view;
        let (dim, wide, kvw) = (heads.dim, vector::padded_dim(heads.dim), heads.kv_width());
        let (members, qw) = (heads.group_size() * dim, heads.q_width());
        let start = self.nodes[0].own.start;
        let rows = |width: usize, tokens: &Range<usize>| {
            (tokens.start - start) * width..(tokens.end - start) * width
        };
        let [dq, dk, dv, dsinks] = &mut self.grads;
        if !dsinks.is_empty() {
            let (group, to) = (heads.group_size(), &mut dsinks[rows(heads.q, &node.own)]);
            let columns = head * group..(head + 1) * group;
            copy_columns(&found.dsinks, group, to, heads.q, columns, <[f32]>::copy_from_slice);
        }
        let columns = head * members..(head + 1) * members;
        let to = &mut dq[rows(qw, &node.own)];
        copy_columns(&found.dq, members, to, qw, columns, <[f32]>::copy_from_slice);
        let columns = head * dim..(head + 1) * dim;
        for (found, to) in [(&found.dk, dk), (&found.dv, dv)] {
            let mut before = found.as_slice();
            for tokens in node.ancestors() {
                let (of_tokens, rest) = before.split_at(tokens.len() * wide);
                before = rest;
                let to = &mut to[rows(kvw, &tokens)];
                copy_columns(of_tokens, wide, to, kvw, columns.clone(), add_numbers);
            }
            let to = &mut to[rows(kvw, &node.own)];
            copy_columns(before, wide, to, kvw, columns.clone(), <[f32]>::copy_from_slice);
        }
    }
}

/// Gradients of one key head and of the query heads that use it.
struct Grads {
    /// Gradients of queries, `[queries, group * dim]`.
    dq: Vec<f32>,
    /// Gradients of keys, `[tokens, padded dim]`.
    dk: Vec<f32>,
    /// Gradients of values, `[tokens, padded dim]`.
    dv: Vec<f32>,
    /// Gradients of sinks by each query, `[queries, group]`; empty without sinks.
    dsinks: Vec<f32>,
}

/// Copies the first elements of rows of `pitch` to columns of the rows of `to`.
fn copy_columns(
    from: &[f32],
    pitch: usize,
    to: &mut [f32],
    width: usize,
    columns: Range<usize>,
    give: impl Fn(&mut [f32], &[f32]),
) {
    for (from, to) in from.chunks_exact(pitch).zip(to.chunks_exact_mut(width)) {
        give(&mut to[columns.clone()], &from[..columns.len()]);
    }
}

fn add_numbers(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

/// A node and a key head.
#[derive(Clone, Copy)]
struct HeadView<'a> {
    inputs: BackwardInputs<'a>,
    node: &'a PathNode,
    head: usize,
}

impl HeadView<'_> {
    fn head_gradients(&self) -> Grads {
        lanes::run_kernel(*self)
    }
}

/// Keys, or values, of a head for the tokens of a path: the columns `at..at + dim` of consecutive rows of `width`.
struct HeadRows<'a> {
    data: Cow<'a, [f32]>,
    width: usize,
    at: usize,
}

impl<'a> HeadRows<'a> {
    /// Returns the rows of a path in `x [n, heads.kv * dim]`. They are copied if they do not follow each other.
    fn of_path(x: &'a [f32], view: &HeadView<'_>) -> Self {
        let HeadView { inputs: BackwardInputs { heads, .. }, node, head } = *view;
        let (width, at) = (heads.kv_width(), head * heads.dim);
        if let Some(data) = node.contiguous(x, width) {
            return Self { data: Cow::Borrowed(data), width, at };
        }
        let ranges = node.path.iter().map(|tokens| token_rows(x, tokens, width));
        let rows = ranges.flat_map(|rows| rows.chunks_exact(width));
        let data = rows.flat_map(|row| &row[at..at + heads.dim]).copied().collect();
        Self { data: Cow::Owned(data), width: heads.dim, at: 0 }
    }

    fn transpose(&self, dim: usize) -> Vec<f32> {
        let mut out = Vec::new();
        let tokens = self.data.len() / self.width;
        vector::transpose_head(&self.data, self.width, self.at, dim, tokens, &mut out);
        out
    }
}

/// Buffers reused for every block of queries.
struct BackwardScratch {
    /// Scaled queries and output gradients, `[QUERIES, padded dim]`.
    q: Vec<f32>,
    dout: Vec<f32>,
    /// Probabilities and gradients of scores, `[QUERIES, padded tokens]`.
    p: Vec<f32>,
    ds: Vec<f32>,
    /// Derivatives of bounded scores by scores, `[padded tokens]`; empty without a bound.
    slopes: Vec<f32>,
}

impl Kernel for HeadView<'_> {
    type Output = Grads;

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> Grads {
        let BackwardInputs { k, v, heads, sinks, .. } = self.inputs;
        let (dim, first, queries) = (heads.dim, self.node.past, self.node.own.len());
        let tokens = first + queries;
        let wide = vector::padded_dim(dim);
        let rows = HeadRows::of_path(k, &self);
        let (keys, values) = (rows.transpose(dim), HeadRows::of_path(v, &self).transpose(dim));
        let size = QUERIES * vector::padded_dim(tokens);
        let mut scratch = BackwardScratch {
            q: vec![0.0; QUERIES * wide],
            dout: vec![0.0; QUERIES * wide],
            p: vec![0.0; size],
            ds: vec![0.0; size],
            slopes: vec![0.0; heads.scores.softcap.map_or(0, |_| size / QUERIES)],
        };
        let mut grads = Grads {
            dq: vec![0.0; queries * heads.group_size() * dim],
            dk: vec![0.0; tokens * wide],
            dv: vec![0.0; tokens * wide],
            dsinks: vec![0.0; if sinks.is_empty() { 0 } else { queries * heads.group_size() }],
        };
        for start in (first..tokens).step_by(QUERIES) {
            for member in 0..heads.group_size() {
                let block = QueryBlock {
                    view: &self,
                    rows: &rows,
                    keys: &keys,
                    values: &values,
                    from: heads.first_group(start),
                    start,
                    end: tokens.min(start + QUERIES),
                    member,
                };
                block.run_block(lanes, &mut scratch, &mut grads);
            }
        }
        grads
    }
}

/// A block of queries of one query head.
struct QueryBlock<'a> {
    view: &'a HeadView<'a>,
    /// Keys of the path.
    rows: &'a HeadRows<'a>,
    /// Transposed keys.
    keys: &'a [f32],
    values: &'a [f32],
    /// First key that is read: a multiple of [`LANES`].
    from: usize,
    /// Positions of the queries of the block.
    start: usize,
    end: usize,
    /// Index of the query head in the group.
    member: usize,
}

impl QueryBlock<'_> {
    #[inline(always)]
    fn run_block<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        scratch: &mut BackwardScratch,
        grads: &mut Grads,
    ) {
        let wide = vector::padded_dim(self.view.inputs.heads.dim);
        let pitch = vector::padded_dim(self.end - self.from);
        self.load_queries(wide, scratch);
        let rows = self.end - self.start;
        let BackwardScratch { q, dout, p, ds, slopes } = scratch;
        let (q, dout) = (&q[..rows * wide], &dout[..rows * wide]);
        let (p, ds) = (&mut p[..rows * pitch], &mut ds[..rows * pitch]);
        for (from, keys, to) in [(q, self.keys, &mut *p), (dout, self.values, &mut *ds)] {
            self.multiply_rows(lanes, from, keys, to, pitch);
        }
        let dsinks = &mut grads.dsinks;
        self.score_gradients(lanes, dout, [&mut *p, &mut *ds, slopes, dsinks], pitch);
        self.query_gradients(lanes, ds, pitch, grads);
        for (weights, x, acc) in [(&*ds, q, &mut grads.dk), (&*p, dout, &mut grads.dv)] {
            let acc = &mut acc[self.from * wide..self.end * wide];
            lanes.call_part(weighted::Accumulate { weights, pitch, x, width: wide, acc });
        }
    }

    /// Returns the index of a query of this group member in arrays of queries, from its position.
    #[inline(always)]
    fn query_index(&self, query: usize) -> usize {
        let HeadView { inputs: BackwardInputs { heads, .. }, node, head } = *self.view;
        (node.own.start + query - node.past) * heads.q_width()
            + (head * heads.group_size() + self.member) * heads.dim
    }

    /// Scales queries and copies output gradients to rows of `wide`.
    #[inline(always)]
    fn load_queries(&self, wide: usize, scratch: &mut BackwardScratch) {
        let BackwardInputs { q: all_q, dout: all_dout, heads, .. } = self.view.inputs;
        let rows = scratch.q.chunks_exact_mut(wide).zip(scratch.dout.chunks_exact_mut(wide));
        for (i, (q, dout)) in (self.start..self.end).zip(rows) {
            let here = self.query_index(i)..self.query_index(i) + heads.dim;
            q.iter_mut()
                .zip(&all_q[here.clone()])
                .for_each(|(to, q)| *to = q * heads.score_scale());
            dout[..heads.dim].copy_from_slice(&all_dout[here]);
        }
    }

    /// Computes the products of rows with the keys or values that they attend to.
    #[inline(always)]
    fn multiply_rows<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        from: &[f32],
        keys: &[f32],
        to: &mut [f32],
        pitch: usize,
    ) {
        let dim = self.view.inputs.heads.dim;
        let x = vector::PitchedRows { data: from, pitch: vector::padded_dim(dim), dim };
        let keys = &keys[self.from * dim..];
        for (i, keys) in keys.chunks_exact(dim * LANES).take(pitch / LANES).enumerate() {
            // Earlier queries attend to none of these keys.
            let first = (self.from + i * LANES).saturating_sub(self.start);
            vector::KeyProducts { x, first, keys, out: to, pitch, at: i * LANES }
                .compute_products(lanes);
        }
    }

    /// Replaces scores `p` by probabilities, and products `ds` with output gradients by gradients of the scores. `slopes`
    /// are those of a bound. Writes the gradients of sinks: that of a query is minus its probability times the sum of the
    /// products of `out` and its gradient, as a sink has no value.
    #[inline(always)]
    fn score_gradients<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        dout: &[f32],
        [p, ds, slopes, dsinks]: [&mut [f32]; 4],
        pitch: usize,
    ) {
        let BackwardInputs { out: all_out, heads, sinks, .. } = self.view.inputs;
        let (group, past) = (heads.group_size(), self.view.node.past);
        let sink = sinks.get(self.view.head * group + self.member).copied();
        let rows = p.chunks_exact_mut(pitch).zip(ds.chunks_exact_mut(pitch));
        let douts = dout.chunks_exact(vector::padded_dim(heads.dim));
        for (i, ((p, ds), dout)) in (self.start..self.end).zip(rows.zip(douts)) {
            let keys = i + 1 - self.from;
            let seen = vector::padded_dim(keys);
            if let Some(cap) = heads.scores.softcap {
                let slopes = Some(&mut slopes[..seen]);
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
            let (inverse, pull) = (lanes.splat(inverse), lanes.splat(pull));
            lanes.map_lanes(
                [],
                [&mut p[..seen], &mut ds[..seen]],
                #[inline(always)]
                |[], [p, ds]| {
                    let p = lanes.mul(p, inverse);
                    [p, lanes.mul(p, lanes.sub(ds, pull))]
                },
            );
            if heads.scores.softcap.is_some() {
                lanes.map_lanes(
                    [&slopes[..seen]],
                    [&mut ds[..seen]],
                    #[inline(always)]
                    |[slope], [ds]| [lanes.mul(ds, slope)],
                );
            }
            p[seen..].fill(0.0);
            ds[seen..].fill(0.0);
        }
    }

    /// Computes the gradients of queries.
    #[inline(always)]
    fn query_gradients<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        ds: &[f32],
        pitch: usize,
        grads: &mut Grads,
    ) {
        let HeadView { inputs: BackwardInputs { heads, .. }, node, .. } = *self.view;
        let (dim, members) = (heads.dim, heads.group_size() * heads.dim);
        let mut counts = [0; QUERIES];
        let keys = self.start + 1 - self.from..;
        counts.iter_mut().zip(keys).for_each(|(count, keys)| *count = keys);
        let HeadRows { data, width, at } = self.rows;
        let weighted = Weighted {
            weights: ds,
            pitch,
            counts: &counts[..self.end - self.start],
            scales: &[heads.score_scale(); QUERIES],
            x: SequenceValues::Whole(&data[self.from * width..]),
            width: *width,
            at: *at,
            dim,
        };
        let dq = &mut grads.dq[(self.start - node.past) * members + self.member * dim..];
        weighted.compute_sums(lanes, dq, members);
    }
}
