//! Backward pass of attention over one row.

use std::ops::Range;

use pulp::Simd;
use rayon::prelude::*;

use super::forward::join;
use super::rows::Rows;
use super::weighted::{self, Weighted};
use super::{Heads, vector};
use crate::lanes::{self, Kernel, LANES, Lanes};

/// Queries whose probabilities are held at once, so that a key's gradient is read and written once for all of them.
const QUERIES: usize = 16;

/// Inputs of one row's gradient.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
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
pub(super) struct Task<'a> {
    pub(super) row: Row<'a>,
    pub(super) grads: [&'a mut [f32]; 3],
}

/// Overwrites the gradients of a row, then of the rows that share it as prefix. Those add to its gradients of keys and
/// values. `by_head` runs the heads in parallel, with the same sums in the same order.
pub(super) fn run(family: Vec<Task<'_>>, heads: Heads, by_head: bool) {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let mut family = family.into_iter();
    let Some(mut first) = family.next() else { return };
    first.row.run(heads, by_head, &mut first.grads, None);
    let [_, dk, dv] = &mut first.grads;
    for Task { row, mut grads } in family {
        let k = join(&mut keys, row.prefix[0], row.k);
        let v = join(&mut values, row.prefix[1], row.v);
        let row = Row { k, v, prefix: [&[], &[]], ..row };
        row.run(heads, by_head, &mut grads, Some([dk, dv]));
    }
}

impl Row<'_> {
    /// Overwrites the gradients of this row and adds to those of its prefix.
    fn run(
        self,
        heads: Heads,
        by_head: bool,
        grads: &mut [&mut [f32]; 3],
        mut prefix: Option<[&mut [f32]; 2]>,
    ) {
        let head = |head| lanes::run(HeadView { row: self, heads, head });
        let mut store = |at: usize, found: Grads| {
            let prefix = prefix.as_mut().map(|[dk, dv]| [&mut **dk, &mut **dv]);
            found.store(heads, at, grads, prefix);
        };
        if by_head {
            let found: Vec<Grads> = (0..heads.kv).into_par_iter().map(head).collect();
            found.into_iter().enumerate().for_each(|(at, found)| store(at, found));
        } else {
            (0..heads.kv).for_each(|at| store(at, head(at)));
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
}

impl Grads {
    /// Copies the gradients to the columns of this head. Those of the prefix are added.
    fn store(
        self,
        heads: Heads,
        head: usize,
        [dq, dk, dv]: &mut [&mut [f32]; 3],
        prefix: Option<[&mut [f32]; 2]>,
    ) {
        let (dim, wide, kvw) = (heads.dim, vector::padded(heads.dim), heads.kv_width());
        let members = heads.group() * dim;
        let put = |to: &mut [f32], from: &[f32]| to.copy_from_slice(from);
        let add = |to: &mut [f32], from: &[f32]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        rows(&self.dq, members, dq, heads.q_width(), head * members..(head + 1) * members, put);
        let [to_k, to_v] = prefix.unwrap_or_default();
        let before = to_k.len() / kvw * wide;
        for (found, to, own) in [(&self.dk, to_k, dk), (&self.dv, to_v, dv)] {
            let (of_prefix, of_own) = found.split_at(before);
            rows(of_prefix, wide, to, kvw, head * dim..(head + 1) * dim, add);
            rows(of_own, wide, own, kvw, head * dim..(head + 1) * dim, put);
        }
    }
}

/// Copies the first elements of rows of `pitch` to columns of the rows of `to`.
fn rows(
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

struct HeadView<'a> {
    row: Row<'a>,
    heads: Heads,
    head: usize,
}

/// Buffers reused for every block of queries.
struct Scratch {
    /// Scaled queries and output gradients, `[QUERIES, padded dim]`.
    q: Vec<f32>,
    dout: Vec<f32>,
    /// Probabilities and gradients of scores, `[QUERIES, padded tokens]`.
    p: Vec<f32>,
    ds: Vec<f32>,
}

impl Kernel for HeadView<'_> {
    type Output = Grads;

    #[inline(always)]
    fn run<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> Grads {
        let Self { row, heads, head } = self;
        let (dim, kvw) = (heads.dim, heads.kv_width());
        let (tokens, queries) = (row.k.len() / kvw, row.q.len() / heads.q_width());
        let first = tokens - queries;
        let wide = vector::padded(dim);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (x, out) in [(row.k, &mut keys), (row.v, &mut values)] {
            vector::transpose(x, kvw, head * dim, dim, tokens, out);
        }
        let size = QUERIES * vector::padded(tokens);
        let mut scratch = Scratch {
            q: vec![0.0; QUERIES * wide],
            dout: vec![0.0; QUERIES * wide],
            p: vec![0.0; size],
            ds: vec![0.0; size],
        };
        let mut grads = Grads {
            dq: vec![0.0; queries * heads.group() * dim],
            dk: vec![0.0; tokens * wide],
            dv: vec![0.0; tokens * wide],
        };
        for start in (first..tokens).step_by(QUERIES) {
            for member in 0..heads.group() {
                let block = Block {
                    head: &self,
                    keys: &keys,
                    values: &values,
                    first,
                    start,
                    end: tokens.min(start + QUERIES),
                    member,
                };
                block.run(lanes, &mut scratch, &mut grads);
            }
        }
        grads
    }
}

/// A block of queries of one query head.
struct Block<'a> {
    head: &'a HeadView<'a>,
    /// Transposed keys.
    keys: &'a [f32],
    values: &'a [f32],
    /// Number of tokens before the first query of the row, and the queries of the block.
    first: usize,
    start: usize,
    end: usize,
    /// Index of the query head in the group.
    member: usize,
}

impl Block<'_> {
    #[inline(always)]
    fn run<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        scratch: &mut Scratch,
        grads: &mut Grads,
    ) {
        let (wide, pitch) = (vector::padded(self.head.heads.dim), vector::padded(self.end));
        self.load(wide, scratch);
        let rows = self.end - self.start;
        let Scratch { q, dout, p, ds } = scratch;
        let (q, dout) = (&q[..rows * wide], &dout[..rows * wide]);
        let (p, ds) = (&mut p[..rows * pitch], &mut ds[..rows * pitch]);
        for (from, keys, to) in [(q, self.keys, &mut *p), (dout, self.values, &mut *ds)] {
            self.products(lanes, from, keys, to, pitch);
        }
        self.scores(lanes, dout, p, ds, pitch);
        self.queries(lanes, ds, pitch, grads);
        for (weights, x, acc) in [(&*ds, q, &mut grads.dk), (&*p, dout, &mut grads.dv)] {
            let acc = &mut acc[..self.end * wide];
            lanes.call(weighted::Accumulate { weights, pitch, x, width: wide, acc });
        }
    }

    /// Returns the index of a query of this group member in arrays of queries.
    #[inline(always)]
    fn at(&self, query: usize) -> usize {
        let HeadView { heads, head, .. } = *self.head;
        (query - self.first) * heads.q_width() + (head * heads.group() + self.member) * heads.dim
    }

    /// Scales queries and copies output gradients to rows of `wide`.
    #[inline(always)]
    fn load(&self, wide: usize, scratch: &mut Scratch) {
        let HeadView { row, heads, .. } = *self.head;
        let rows = scratch.q.chunks_exact_mut(wide).zip(scratch.dout.chunks_exact_mut(wide));
        for (i, (q, dout)) in (self.start..self.end).zip(rows) {
            let here = self.at(i)..self.at(i) + heads.dim;
            q.iter_mut().zip(&row.q[here.clone()]).for_each(|(to, q)| *to = q * heads.scale());
            dout[..heads.dim].copy_from_slice(&row.dout[here]);
        }
    }

    /// Computes the products of rows with the keys or values that they attend to.
    #[inline(always)]
    fn products<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        from: &[f32],
        keys: &[f32],
        to: &mut [f32],
        pitch: usize,
    ) {
        let dim = self.head.heads.dim;
        let x = vector::Vectors { data: from, pitch: vector::padded(dim), dim };
        for (i, keys) in keys.chunks_exact(dim * LANES).take(pitch / LANES).enumerate() {
            // Earlier queries attend to none of these keys.
            let first = (i * LANES).saturating_sub(self.start);
            vector::Products { x, first, keys, out: to, pitch, at: i * LANES }.run(lanes);
        }
    }

    /// Replaces scores by probabilities, and products with output gradients by gradients of the scores.
    #[inline(always)]
    fn scores<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        dout: &[f32],
        p: &mut [f32],
        ds: &mut [f32],
        pitch: usize,
    ) {
        let HeadView { row, heads, .. } = *self.head;
        let rows = p.chunks_exact_mut(pitch).zip(ds.chunks_exact_mut(pitch));
        let douts = dout.chunks_exact(vector::padded(heads.dim));
        for (i, ((p, ds), dout)) in (self.start..self.end).zip(rows.zip(douts)) {
            let seen = vector::padded(i + 1);
            let softmax = vector::Softmax { scores: &mut p[..seen], keys: i + 1 };
            let inverse = lanes.splat(lanes.call(softmax));
            let out = &row.out[self.at(i)..][..heads.dim];
            let pull = lanes.splat(lanes.dot(&dout[..heads.dim], out));
            lanes.each(
                [],
                [&mut p[..seen], &mut ds[..seen]],
                #[inline(always)]
                |[], [p, ds]| {
                    let p = lanes.mul(p, inverse);
                    [p, lanes.mul(p, lanes.sub(ds, pull))]
                },
            );
            p[seen..].fill(0.0);
            ds[seen..].fill(0.0);
        }
    }

    /// Computes the gradients of queries.
    #[inline(always)]
    fn queries<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        ds: &[f32],
        pitch: usize,
        grads: &mut Grads,
    ) {
        let HeadView { row, heads, head } = *self.head;
        let (dim, members) = (heads.dim, heads.group() * heads.dim);
        let mut counts = [0; QUERIES];
        counts.iter_mut().zip(self.start + 1..).for_each(|(count, keys)| *count = keys);
        let weighted = Weighted {
            weights: ds,
            pitch,
            counts: &counts[..self.end - self.start],
            scales: &[heads.scale(); QUERIES],
            x: Rows::Whole(row.k),
            width: heads.kv_width(),
            at: head * dim,
            dim,
        };
        let dq = &mut grads.dq[(self.start - self.first) * members + self.member * dim..];
        weighted.run(lanes, dq, members);
    }
}
