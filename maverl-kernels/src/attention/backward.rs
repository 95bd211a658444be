//! The gradient of attention over one row.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::forward::join;
use super::rows::Rows;
use super::{Heads, vector};
use crate::{lanes, simd};

/// Queries whose probabilities are held at once, so that a key's gradient is read and written once for all of them.
const QUERIES: usize = 16;

/// What the gradient of one row is computed from.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// `[tokens, heads.q * dim]`, as `out` and `dout`.
    pub(super) q: &'a [f32],
    /// `[tokens, heads.kv * dim]`, as `v`; with the prefix joined, `[prefix + tokens, ..]`.
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    /// Keys and values of the tokens before those of the row, empty once they are joined.
    pub(super) prefix: [&'a [f32]; 2],
    pub(super) out: &'a [f32],
    pub(super) dout: &'a [f32],
}

/// A row and the places of its gradients, by queries, keys and values.
pub(super) struct Task<'a> {
    pub(super) row: Row<'a>,
    pub(super) grads: [&'a mut [f32]; 3],
}

/// Overwrites the gradients of a row, then of those that go on after it, which add to those of its keys and values. With
/// the heads in parallel, if asked for: the same sums in the same order.
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
    /// Overwrites the gradients of this row, and adds to those of its prefix.
    fn run(
        self,
        heads: Heads,
        by_head: bool,
        grads: &mut [&mut [f32]; 3],
        mut prefix: Option<[&mut [f32]; 2]>,
    ) {
        let head = |head| simd::dispatch(Head { row: self, heads, head });
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

/// The gradients of one key head and the queries that use it.
struct Grads {
    /// `[queries, group * dim]`.
    dq: Vec<f32>,
    /// `[tokens, padded dim]`.
    dk: Vec<f32>,
    /// `[tokens, padded dim]`.
    dv: Vec<f32>,
}

impl Grads {
    /// Copies to where this head lies among the others; what is of the prefix is added.
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

/// Gives columns of the rows of `to` what rows of `pitch` begin with.
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

struct Head<'a> {
    row: Row<'a>,
    heads: Heads,
    head: usize,
}

/// Arrays that are used again for every block of queries.
struct Scratch {
    /// Scaled queries and output gradients, `[QUERIES, padded dim]`.
    q: Vec<f32>,
    dout: Vec<f32>,
    /// Probabilities and gradients of scores, `[QUERIES, padded tokens]`.
    p: Vec<f32>,
    ds: Vec<f32>,
}

impl WithSimd for Head<'_> {
    type Output = Grads;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Grads {
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
                block.run(simd, &mut scratch, &mut grads);
            }
        }
        grads
    }
}

/// A block of queries of one query head.
struct Block<'a> {
    head: &'a Head<'a>,
    /// Transposed.
    keys: &'a [f32],
    values: &'a [f32],
    /// Tokens before the first query of the row, and the queries of the block.
    first: usize,
    start: usize,
    end: usize,
    /// Which of the query heads of the group.
    member: usize,
}

impl Block<'_> {
    #[inline(always)]
    fn run<S: Simd>(&self, simd: S, scratch: &mut Scratch, grads: &mut Grads) {
        let Head { row, heads, head } = *self.head;
        let (dim, qw) = (heads.dim, heads.q_width());
        let wide = vector::padded(dim);
        let pitch = vector::padded(self.end);
        let at = (head * heads.group() + self.member) * dim;
        let scale = heads.scale();
        for i in self.start..self.end {
            let slot = i - self.start;
            let here = (i - self.first) * qw + at..(i - self.first) * qw + at + dim;
            let q = &mut scratch.q[slot * wide..][..wide];
            q.iter_mut().zip(&row.q[here.clone()]).for_each(|(to, q)| *to = q * scale);
            let dout = &mut scratch.dout[slot * wide..][..wide];
            dout[..dim].copy_from_slice(&row.dout[here]);
        }
        let mut slot = 0;
        while slot + 2 <= self.end - self.start {
            self.products::<S, 2>(simd, slot, scratch);
            slot += 2;
        }
        if slot < self.end - self.start {
            self.products::<S, 1>(simd, slot, scratch);
        }
        for i in self.start..self.end {
            let slot = i - self.start;
            let query = i - self.first;
            let out = &row.out[query * qw + at..][..dim];
            let dout = &scratch.dout[slot * wide..][..dim];
            let p = &mut scratch.p[slot * pitch..][..pitch];
            let ds = &mut scratch.ds[slot * pitch..][..pitch];
            let seen = vector::padded(i + 1);
            let inverse = vector::softmax(&mut p[..seen], i + 1);
            let pull = lanes::dot(dout, out);
            for (p, ds) in p[..seen].iter_mut().zip(&mut ds[..seen]) {
                *p *= inverse;
                *ds = *p * (*ds - pull);
            }
            p[seen..].fill(0.0);
            ds[seen..].fill(0.0);
            let dq = &mut grads.dq[(query * heads.group() + self.member) * dim..][..dim];
            let kvw = heads.kv_width();
            vector::weighted(
                simd,
                [&ds[..=i]],
                Rows::Whole(row.k),
                kvw,
                head * dim,
                [scale],
                &mut [dq],
            );
        }
        let used = (self.end - self.start) * pitch;
        let rows = (self.end - self.start) * wide;
        let (p, ds) = (&scratch.p[..used], &scratch.ds[..used]);
        let (q, dout) = (&scratch.q[..rows], &scratch.dout[..rows]);
        vector::accumulate(simd, ds, pitch, self.end, q, wide, &mut grads.dk);
        vector::accumulate(simd, p, pitch, self.end, dout, wide, &mut grads.dv);
    }

    /// The products of `M` queries from `slot` on with the keys, and of their output gradients with the values.
    #[inline(always)]
    fn products<S: Simd, const M: usize>(&self, simd: S, slot: usize, scratch: &mut Scratch) {
        let dim = self.head.heads.dim;
        let (wide, pitch) = (vector::padded(dim), vector::padded(self.end));
        let seen = vector::padded(self.start + slot + M);
        for (from, keys, to) in
            [(&scratch.q, self.keys, &mut scratch.p), (&scratch.dout, self.values, &mut scratch.ds)]
        {
            let mut from_rows = [<&[f32]>::default(); M];
            for (m, row) in from_rows.iter_mut().enumerate() {
                *row = &from[(slot + m) * wide..][..dim];
            }
            let mut to = vector::split::<M>(&mut to[slot * pitch..][..M * pitch], pitch);
            for to in &mut to {
                *to = &mut std::mem::take(to)[..seen];
            }
            vector::products(simd, from_rows, keys, &mut to);
        }
    }
}
