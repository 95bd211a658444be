//! Backward pass of attention over one row.

use std::ops::Range;

use pulp::Simd;
use rayon::prelude::*;

use super::forward::join_prefix;
use super::rows::SequenceValues;
use super::shapes::Heads;
use super::vector;
use super::weighted::{self, Weighted};
use crate::lanes::{self, Kernel, LANES, Lanes};

/// Queries whose probabilities are held at once, so that a key's gradient is read and written once for all of them.
const QUERIES: usize = 16;

/// Inputs of one row's gradient.
#[derive(Clone, Copy)]
pub(super) struct GradientRow<'a> {
    /// Queries `[tokens, heads.q * dim]`; `out` and `dout` have the same shape.
    pub(super) q: &'a [f32],
    /// Keys `[tokens, heads.kv * dim]`; `v` has the same shape. With the prefix joined: `[prefix + tokens, ..]`.
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    /// Keys and values of the prefix; empty once they are joined with the row's.
    pub(super) prefix: [&'a [f32]; 2],
    pub(super) out: &'a [f32],
    pub(super) dout: &'a [f32],
}

/// A row and the slices of its gradients, by queries, keys and values.
pub(super) struct BackwardTask<'a> {
    pub(super) row: GradientRow<'a>,
    pub(super) grads: [&'a mut [f32]; 3],
}

/// Overwrites the gradients of a row, then of the rows that share it as prefix. Those add to its gradients of keys and
/// values. `by_head` runs the heads in parallel, with the same sums in the same order.
pub(super) fn run_family(family: Vec<BackwardTask<'_>>, heads: Heads, by_head: bool) {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let mut family = family.into_iter();
    let Some(mut first) = family.next() else { return };
    first.row.run_row(heads, by_head, &mut first.grads, None);
    let [_, dk, dv] = &mut first.grads;
    for BackwardTask { row, mut grads } in family {
        let k = join_prefix(&mut keys, row.prefix[0], row.k);
        let v = join_prefix(&mut values, row.prefix[1], row.v);
        let row = GradientRow { k, v, prefix: [&[], &[]], ..row };
        row.run_row(heads, by_head, &mut grads, Some([dk, dv]));
    }
}

impl GradientRow<'_> {
    /// Overwrites the gradients of this row and adds to those of its prefix.
    fn run_row(
        self,
        heads: Heads,
        by_head: bool,
        grads: &mut [&mut [f32]; 3],
        mut prefix: Option<[&mut [f32]; 2]>,
    ) {
        if by_head {
            let found = (0..heads.kv).into_par_iter().map(|head| self.head_gradients(heads, head));
            for (head, found) in found.collect::<Vec<Grads>>().into_iter().enumerate() {
                found.store_head(heads, head, grads, &mut prefix);
            }
        } else {
            for head in 0..heads.kv {
                self.head_gradients(heads, head).store_head(heads, head, grads, &mut prefix);
            }
        }
    }

    fn head_gradients(self, heads: Heads, head: usize) -> Grads {
        lanes::run_kernel(HeadView { row: self, heads, head })
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
}

impl Grads {
    /// Copies the gradients to the columns of this head. Those of the prefix are added.
    fn store_head(
        self,
        heads: Heads,
        head: usize,
        [dq, dk, dv]: &mut [&mut [f32]; 3],
        prefix: &mut Option<[&mut [f32]; 2]>,
    ) {
        let (dim, wide, kvw) = (heads.dim, vector::padded_dim(heads.dim), heads.kv_width());
        let (members, qw) = (heads.group_size() * dim, heads.q_width());
        let columns = head * members..(head + 1) * members;
        copy_columns(&self.dq, members, dq, qw, columns, <[f32]>::copy_from_slice);
        let prefix = prefix.as_mut().map(|[dk, dv]| [&mut **dk, &mut **dv]);
        let [to_k, to_v] = prefix.unwrap_or_default();
        let before = to_k.len() / kvw * wide;
        for (found, to, own) in [(&self.dk, to_k, dk), (&self.dv, to_v, dv)] {
            let (of_prefix, of_own) = found.split_at(before);
            let columns = head * dim..(head + 1) * dim;
            copy_columns(of_prefix, wide, to, kvw, columns.clone(), add_numbers);
            copy_columns(of_own, wide, own, kvw, columns, <[f32]>::copy_from_slice);
        }
    }
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

struct HeadView<'a> {
    row: GradientRow<'a>,
    heads: Heads,
    head: usize,
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
        let Self { row, heads, head } = self;
        let (dim, kvw) = (heads.dim, heads.kv_width());
        let (tokens, queries) = (row.k.len() / kvw, row.q.len() / heads.q_width());
        let first = tokens - queries;
        let wide = vector::padded_dim(dim);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (x, out) in [(row.k, &mut keys), (row.v, &mut values)] {
            vector::transpose_head(x, kvw, head * dim, dim, tokens, out);
        }
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
        };
        for start in (first..tokens).step_by(QUERIES) {
            for member in 0..heads.group_size() {
                let block = QueryBlock {
                    head: &self,
                    keys: &keys,
                    values: &values,
                    first,
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
    head: &'a HeadView<'a>,
    /// Transposed keys.
    keys: &'a [f32],
    values: &'a [f32],
    /// Number of tokens before the first query of the row, and the queries of the block.
    first: usize,
    /// First key that is read: a multiple of [`LANES`].
    from: usize,
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
        let wide = vector::padded_dim(self.head.heads.dim);
        let pitch = vector::padded_dim(self.end - self.from);
        self.load_queries(wide, scratch);
        let rows = self.end - self.start;
        let BackwardScratch { q, dout, p, ds, slopes } = scratch;
        let (q, dout) = (&q[..rows * wide], &dout[..rows * wide]);
        let (p, ds) = (&mut p[..rows * pitch], &mut ds[..rows * pitch]);
        for (from, keys, to) in [(q, self.keys, &mut *p), (dout, self.values, &mut *ds)] {
            self.multiply_rows(lanes, from, keys, to, pitch);
        }
        self.score_gradients(lanes, dout, [&mut *p, &mut *ds, slopes], pitch);
        self.query_gradients(lanes, ds, pitch, grads);
        for (weights, x, acc) in [(&*ds, q, &mut grads.dk), (&*p, dout, &mut grads.dv)] {
            let acc = &mut acc[self.from * wide..self.end * wide];
            lanes.call_part(weighted::Accumulate { weights, pitch, x, width: wide, acc });
        }
    }

    /// Returns the index of a query of this group member in arrays of queries.
    #[inline(always)]
    fn query_index(&self, query: usize) -> usize {
        let HeadView { heads, head, .. } = *self.head;
        (query - self.first) * heads.q_width()
            + (head * heads.group_size() + self.member) * heads.dim
    }

    /// Scales queries and copies output gradients to rows of `wide`.
    #[inline(always)]
    fn load_queries(&self, wide: usize, scratch: &mut BackwardScratch) {
        let HeadView { row, heads, .. } = *self.head;
        let rows = scratch.q.chunks_exact_mut(wide).zip(scratch.dout.chunks_exact_mut(wide));
        for (i, (q, dout)) in (self.start..self.end).zip(rows) {
            let here = self.query_index(i)..self.query_index(i) + heads.dim;
            q.iter_mut()
                .zip(&row.q[here.clone()])
                .for_each(|(to, q)| *to = q * heads.score_scale());
            dout[..heads.dim].copy_from_slice(&row.dout[here]);
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
        let dim = self.head.heads.dim;
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
    /// are those of a bound.
    #[inline(always)]
    fn score_gradients<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        dout: &[f32],
        [p, ds, slopes]: [&mut [f32]; 3],
        pitch: usize,
    ) {
        let HeadView { row, heads, .. } = *self.head;
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
            let softmax = vector::Softmax { scores: &mut p[..seen], keys };
            let inverse = lanes.splat(lanes.call_part(softmax));
            let out = &row.out[self.query_index(i)..][..heads.dim];
            let pull = lanes.splat(lanes.dot(&dout[..heads.dim], out));
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
        let HeadView { row, heads, head } = *self.head;
        let (dim, members) = (heads.dim, heads.group_size() * heads.dim);
        let mut counts = [0; QUERIES];
        let keys = self.start + 1 - self.from..;
        counts.iter_mut().zip(keys).for_each(|(count, keys)| *count = keys);
        let weighted = Weighted {
            weights: ds,
            pitch,
            counts: &counts[..self.end - self.start],
            scales: &[heads.score_scale(); QUERIES],
            x: SequenceValues::Whole(&row.k[self.from * heads.kv_width()..]),
            width: heads.kv_width(),
            at: head * dim,
            dim,
        };
        let dq = &mut grads.dq[(self.start - self.first) * members + self.member * dim..];
        weighted.compute_sums(lanes, dq, members);
    }
}
