//! The gradient of attention over one row.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::rows::Rows;
use super::{Heads, vector};
use crate::lanes;

/// Queries whose probabilities are held at once, so that a key's gradient is read and written once for all of them.
const QUERIES: usize = 16;

/// What the gradient of one row is computed from.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// `[tokens, heads.q * dim]`, as `out` and `dout`.
    pub(super) q: &'a [f32],
    /// `[tokens, heads.kv * dim]`, as `v`.
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) out: &'a [f32],
    pub(super) dout: &'a [f32],
    pub(super) tokens: usize,
}

impl Row<'_> {
    /// Overwrites the gradients of this row, one head after the other.
    pub(super) fn run(self, heads: Heads, dq: &mut [f32], dk: &mut [f32], dv: &mut [f32]) {
        for head in 0..heads.kv {
            self.head(heads, head).store(self, heads, head, dq, dk, dv);
        }
    }

    /// [`Row::run`] with the heads in parallel: the same sums in the same order.
    pub(super) fn run_by_head(self, heads: Heads, dq: &mut [f32], dk: &mut [f32], dv: &mut [f32]) {
        let grads: Vec<Grads> =
            (0..heads.kv).into_par_iter().map(|head| self.head(heads, head)).collect();
        for (head, grads) in grads.into_iter().enumerate() {
            grads.store(self, heads, head, dq, dk, dv);
        }
    }

    fn head(self, heads: Heads, head: usize) -> Grads {
        Arch::new().dispatch(Head { row: self, heads, head })
    }
}

/// The gradients of one key head and the queries that use it.
struct Grads {
    /// `[tokens, group * dim]`.
    dq: Vec<f32>,
    /// `[tokens, padded dim]`.
    dk: Vec<f32>,
    /// `[tokens, padded dim]`.
    dv: Vec<f32>,
}

impl Grads {
    /// Copies to where this head lies among the others.
    fn store(
        self,
        row: Row<'_>,
        heads: Heads,
        head: usize,
        dq: &mut [f32],
        dk: &mut [f32],
        dv: &mut [f32],
    ) {
        let dim = heads.dim;
        let copy = |from: &[f32], pitch: usize, to: &mut [f32], width: usize, size: usize| {
            for (from, to) in from.chunks_exact(pitch).zip(to.chunks_exact_mut(width)) {
                to[head * size..][..size].copy_from_slice(&from[..size]);
            }
        };
        debug_assert_eq!(self.dk.len(), row.tokens * vector::padded(dim));
        copy(&self.dq, heads.group() * dim, dq, heads.q_width(), heads.group() * dim);
        copy(&self.dk, vector::padded(dim), dk, heads.kv_width(), dim);
        copy(&self.dv, vector::padded(dim), dv, heads.kv_width(), dim);
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
        let (dim, tokens, kvw) = (heads.dim, row.tokens, heads.kv_width());
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
            dq: vec![0.0; tokens * heads.group() * dim],
            dk: vec![0.0; tokens * wide],
            dv: vec![0.0; tokens * wide],
        };
        for start in (0..tokens).step_by(QUERIES) {
            for member in 0..heads.group() {
                let block = Block {
                    head: &self,
                    keys: &keys,
                    values: &values,
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
            let here = i * qw + at..i * qw + at + dim;
            let q = &mut scratch.q[slot * wide..][..wide];
            q.iter_mut().zip(&row.q[here.clone()]).for_each(|(to, q)| *to = q * scale);
            let dout = &mut scratch.dout[slot * wide..][..wide];
            dout[..dim].copy_from_slice(&row.dout[here.clone()]);

            let p = &mut scratch.p[slot * pitch..][..pitch];
            let ds = &mut scratch.ds[slot * pitch..][..pitch];
            let seen = vector::padded(i + 1);
            vector::products(simd, &q[..dim], self.keys, &mut p[..seen]);
            let inverse = vector::softmax(&mut p[..seen], i + 1);
            vector::products(simd, &dout[..dim], self.values, &mut ds[..seen]);
            let pull = lanes::dot(&dout[..dim], &row.out[here]);
            for (p, ds) in p[..seen].iter_mut().zip(&mut ds[..seen]) {
                *p *= inverse;
                *ds = *p * (*ds - pull);
            }
            p[seen..].fill(0.0);
            ds[seen..].fill(0.0);
            let dq = &mut grads.dq[(i * heads.group() + self.member) * dim..][..dim];
            let kvw = heads.kv_width();
            vector::weighted(simd, &ds[..=i], Rows::Whole(row.k), kvw, head * dim, scale, dq);
        }
        let used = (self.end - self.start) * pitch;
        let rows = (self.end - self.start) * wide;
        let (p, ds) = (&scratch.p[..used], &scratch.ds[..used]);
        let (q, dout) = (&scratch.q[..rows], &scratch.dout[..rows]);
        vector::accumulate(simd, ds, pitch, self.end, q, wide, &mut grads.dk);
        vector::accumulate(simd, p, pitch, self.end, dout, wide, &mut grads.dv);
    }
}
