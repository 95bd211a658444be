//! Attention of a few queries of one row.

use std::cell::RefCell;

use pulp::{Simd, WithSimd};

use super::rows::{Keys, Rows};
use super::{Heads, vector};
use crate::{lanes::LANES, simd};

/// Consecutive queries of one row, with the keys and values at least up to the last of them.
pub(super) struct Task<'a> {
    /// `[queries, heads.q * dim]`.
    pub(super) q: &'a [f32],
    pub(super) k: Keys<'a>,
    /// `[.., heads.kv * dim]`.
    pub(super) v: Rows<'a>,
    /// Keys and values of the tokens before those of `k` and `v`, which are rows one after the other then.
    pub(super) prefix: Option<[&'a [f32]; 2]>,
    /// Index in the row of the first query; its prefix is part of it.
    pub(super) first: usize,
    /// `[queries, heads.q * dim]`.
    pub(super) out: &'a mut [f32],
}

/// What a task needs for a while; each thread keeps its own.
#[derive(Default)]
struct Scratch {
    query: Vec<f32>,
    scores: Vec<f32>,
    transposed: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Task<'_> {
    pub(super) fn run(self, heads: Heads) {
        SCRATCH.with_borrow_mut(|scratch| {
            simd::dispatch(Forward { task: self, heads, scratch });
        });
    }
}

struct Forward<'a> {
    task: Task<'a>,
    heads: Heads,
    scratch: &'a mut Scratch,
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { task, heads, scratch } = self;
        let Scratch { query, scores, transposed, keys: all_keys, values: all_values } = scratch;
        let Task { q, k, v, prefix, first, out } = task;
        let (k, v) = match (prefix, k, v) {
            (Some([keys, values]), Keys::Rows(k), Rows::Whole(v)) => {
                (Keys::Rows(join(all_keys, keys, k)), Rows::Whole(join(all_values, values, v)))
            }
            _ => (k, v),
        };
        let (qw, kvw) = (heads.q_width(), heads.kv_width());
        let tokens = first + q.len() / qw;
        for head in 0..heads.kv {
            if let Keys::Rows(k) = k {
                vector::transpose(k, kvw, head * heads.dim, heads.dim, tokens, transposed);
            }
            let keys = Group { k, v, transposed, heads, head, alone: q.len() == qw };
            let members = head * heads.group() * heads.dim..(head + 1) * heads.group() * heads.dim;
            for (i, (q, out)) in q.chunks_exact(qw).zip(out.chunks_exact_mut(qw)).enumerate() {
                query.clear();
                query.extend(q[members.clone()].iter().map(|q| q * heads.scale()));
                let mut queries = query.chunks_exact(2 * heads.dim);
                let mut out = out[members.clone()].chunks_exact_mut(2 * heads.dim);
                for (q, out) in queries.by_ref().zip(out.by_ref()) {
                    let ((q0, q1), (out0, out1)) =
                        (q.split_at(heads.dim), out.split_at_mut(heads.dim));
                    keys.attend(simd, [q0, q1], first + i + 1, scores, &mut [out0, out1]);
                }
                let (q, out) = (queries.remainder(), out.into_remainder());
                if !q.is_empty() {
                    keys.attend(simd, [q], first + i + 1, scores, &mut [out]);
                }
            }
        }
    }
}

/// A key head with its values.
struct Group<'a> {
    k: Keys<'a>,
    v: Rows<'a>,
    /// The keys of this head if `k` has rows.
    transposed: &'a [f32],
    heads: Heads,
    head: usize,
    /// Whether they are read for one token, so that it pays to ask for them early.
    alone: bool,
}

impl Group<'_> {
    /// `M` scaled queries `[dim]` of one token, which sees the first `keys` keys: what is read of them serves all.
    #[inline(always)]
    fn attend<S: Simd, const M: usize>(
        &self,
        simd: S,
        q: [&[f32]; M],
        keys: usize,
        scratch: &mut Vec<f32>,
        out: &mut [&mut [f32]; M],
    ) {
        let Self { k, v, heads, head, .. } = *self;
        let (dim, kvw, at) = (heads.dim, heads.kv_width(), head * heads.dim);
        let padded = vector::padded(keys);
        scratch.resize((M * padded).max(scratch.len()), 0.0);
        let scores = vector::split::<M>(&mut scratch[..M * padded], padded);
        for i in 0..padded / LANES {
            if self.alone {
                k.prefetch(i + 1, at * LANES..(at + dim) * LANES);
                v.prefetch(i, kvw, at..at + dim);
            }
            let products = vector::group_products(simd, q, self.keys(i));
            for m in 0..M {
                scores[m].as_chunks_mut().0[i] = products[m];
            }
        }
        let mut scales = [0.0; M];
        for m in 0..M {
            scales[m] = vector::softmax(scores[m], keys);
        }
        let mut weights = [<&[f32]>::default(); M];
        for (weights, scores) in weights.iter_mut().zip(&scores) {
            *weights = &scores[..keys];
        }
        vector::weighted(simd, weights, v, kvw, at, scales, out);
    }

    /// The `i`-th sixteen keys, `[dim, 16]`.
    #[inline(always)]
    fn keys(&self, i: usize) -> &[f32] {
        let Self { k, heads, head, .. } = *self;
        let size = heads.dim * LANES;
        match k {
            Keys::Rows(_) => &self.transposed[i * size..][..size],
            Keys::Blocks { storage, ids, at } => {
                &storage[ids[i] as usize][at + head * size..][..size]
            }
        }
    }
}

/// Two parts of a row as one.
pub(super) fn join<'a>(whole: &'a mut Vec<f32>, prefix: &[f32], own: &[f32]) -> &'a [f32] {
    whole.clear();
    whole.extend_from_slice(prefix);
    whole.extend_from_slice(own);
    whole
}
