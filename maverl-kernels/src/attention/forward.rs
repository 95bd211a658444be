//! Attention of a few queries of one row.

use std::cell::RefCell;

use pulp::{Arch, Simd, WithSimd};

use super::rows::{Keys, Rows};
use super::{Heads, vector};
use crate::lanes::LANES;

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
            Arch::new().dispatch(Forward { task: self, heads, scratch });
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
        let (dim, qw, kvw) = (heads.dim, heads.q_width(), heads.kv_width());
        let queries = q.len() / qw;
        query.resize(dim, 0.0);
        scores.resize(vector::padded(first + queries), 0.0);
        for head in 0..heads.kv {
            let at = head * dim;
            if let Keys::Rows(k) = k {
                vector::transpose(k, kvw, at, dim, first + queries, transposed);
            }
            let group = |i: usize| match k {
                Keys::Rows(_) => &transposed[i * dim * LANES..][..dim * LANES],
                Keys::Blocks { storage, ids, at: keys } => {
                    &storage[ids[i] as usize][keys + at * LANES..][..dim * LANES]
                }
            };
            for (i, (q, out)) in q.chunks_exact(qw).zip(out.chunks_exact_mut(qw)).enumerate() {
                let keys = first + i + 1;
                let scores = &mut scores[..vector::padded(keys)];
                let members = head * heads.group() * dim..(head + 1) * heads.group() * dim;
                let pairs =
                    q[members.clone()].chunks_exact(dim).zip(out[members].chunks_exact_mut(dim));
                for (member, (q, out)) in pairs.enumerate() {
                    let scale = heads.scale();
                    query.iter_mut().zip(q).for_each(|(query, q)| *query = q * scale);
                    for (i, scores) in scores.as_chunks_mut().0.iter_mut().enumerate() {
                        if member == 0 && queries == 1 {
                            k.prefetch(i + 1, at * LANES..(at + dim) * LANES);
                            v.prefetch(i, kvw, at..at + dim);
                        }
                        vector::group_products(simd, query, group(i), scores);
                    }
                    let inverse = vector::softmax(scores, keys);
                    vector::weighted(simd, &scores[..keys], v, kvw, at, inverse, out);
                }
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
