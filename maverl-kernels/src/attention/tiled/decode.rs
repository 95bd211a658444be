//! The only new query of a sequence, read from the blocks of a cache in place. Sums have the order of products, so that the
//! query has the bits of the same one in a longer pass.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Scalar, Simd};

use super::online::{OnlineResults, OnlineScores, RowStates};
use super::{KEYS, key_blocks};
use crate::attention::forward::ForwardTask;
use crate::attention::rows::{SequenceKeys, SequenceValues};
use crate::attention::shapes::Heads;
use crate::attention::vector::{self, is_scalar};
use crate::lanes::{self, Kernel, LANES, Lanes, Sixteen};

/// Buffers of a task. Each thread keeps its own.
#[derive(Default)]
struct DecodeScratch {
    /// Scaled queries, `[rows, dim]`, and their positions.
    queries: Vec<f32>,
    positions: Vec<usize>,
    states: RowStates,
    /// Scores, then weights, `[rows, KEYS]`.
    scores: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<DecodeScratch> = RefCell::default();
}

/// Computes a task of one query.
pub(in crate::attention) fn decode_heads(task: ForwardTask<'_>, heads: Heads) {
    let ForwardTask { kv_heads, q, k, v, first, sinks, out, .. } = task;
    let (dim, group) = (heads.dim, heads.group_size());
    let members = group * dim;
    SCRATCH.with_borrow_mut(|scratch| {
        let heads_of_out = q.chunks_exact(members).zip(out.chunks_exact_mut(members));
        for (head, (q, out)) in kv_heads.zip(heads_of_out) {
            let sinks = sinks.get(head * group..(head + 1) * group).unwrap_or_default();
            let DecodeScratch { queries, positions, states, scores } = &mut *scratch;
            queries.clear();
            queries.extend(q.iter().map(|q| q * heads.score_scale()));
            positions.clear();
            positions.resize(group, first);
            states.clear(group, heads, |row| sinks.get(row).copied());
            scores.resize((group * KEYS).max(scores.len()), 0.0);
            for keys in key_blocks(heads.first_key(first), first + 1) {
                let tokens = keys.start.max(heads.first_group(first))..keys.end;
                let columns = vector::padded_dim(keys.len());
                let scores = &mut scores[..group * columns];
                let (start, at) = (keys.start, head * dim..(head + 1) * dim);
                let block = CacheRead { heads, tokens, start, at, columns };
                lanes::run_kernel(KeyChains { block: &block, k, v, queries, scores: &mut *scores });
                let some = states.from_row(0, group, dim);
                let positions = &positions[..];
                OnlineScores { scores, columns, start, positions, heads, states: some }.weigh();
                let sums = states.from_row(0, group, dim).sums;
                lanes::run_kernel(ValueChains { block: &block, v, weights: scores, sums });
            }
            OnlineResults { states: states.from_row(0, group, dim), sinks, dim }.divide();
            out.copy_from_slice(&states.sums);
        }
    });
}

/// Part of a cache that is read for one head.
struct CacheRead {
    heads: Heads,
    /// Tokens, the first of which begins a group of sixteen.
    tokens: Range<usize>,
    /// First key of the block.
    start: usize,
    /// Elements of a key or value.
    at: Range<usize>,
    /// Elements of a row of scores.
    columns: usize,
}

/// Scores of a block of keys: chains of multiply-adds over `dim`.
struct KeyChains<'a> {
    block: &'a CacheRead,
    k: SequenceKeys<'a>,
    /// Values, which are prefetched.
    v: SequenceValues<'a>,
    /// Scaled queries `[rows, dim]`.
    queries: &'a [f32],
    /// Scores `[rows, columns]`.
    scores: &'a mut [f32],
}

impl Kernel for KeyChains<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(mut self, lanes: Lanes<S, N>) {
        let groups = self.block.columns / LANES;
        let mut group = (self.block.tokens.start - self.block.start) / LANES;
        while !is_scalar::<S>() && group + 4 <= groups {
            self.all_rows::<S, N, 4>(lanes, group);
            group += 4;
        }
        while group < groups {
            self.all_rows::<S, N, 1>(lanes, group);
            group += 1;
        }
    }
}

impl KeyChains<'_> {
    /// Computes the scores of `G` groups of sixteen keys, from `group` of the block on, for all rows.
    #[inline(always)]
    fn all_rows<S: Simd, const N: usize, const G: usize>(
        &mut self,
        lanes: Lanes<S, N>,
        group: usize,
    ) {
        let CacheRead { heads, start, ref at, .. } = *self.block;
        let (dim, width) = (heads.dim, heads.kv_width());
        let mut keys = [<&[[f32; LANES]]>::default(); G];
        for (g, keys) in keys.iter_mut().enumerate() {
            let of_all = start / LANES + group + g;
            self.k.prefetch_keys(of_all + G, at.start * LANES..at.end * LANES);
            self.v.prefetch_values(of_all, width, at.clone());
            *keys = &self.k.group_at(of_all)[at.clone()];
        }
        let rows = self.queries.len() / dim;
        let mut row = 0;
        while !is_scalar::<S>() && N == 1 && row + 4 <= rows {
            self.some_rows::<S, N, G, 4>(lanes, group, row, keys);
            row += 4;
        }
        while !is_scalar::<S>() && N == 1 && row + 2 <= rows {
            self.some_rows::<S, N, G, 2>(lanes, group, row, keys);
            row += 2;
        }
        while row < rows {
            self.some_rows::<S, N, G, 1>(lanes, group, row, keys);
            row += 1;
        }
    }

    /// Computes the scores of `M` rows from `row` on.
    #[inline(always)]
    fn some_rows<S: Simd, const N: usize, const G: usize, const M: usize>(
        &mut self,
        lanes: Lanes<S, N>,
        group: usize,
        row: usize,
        keys: [&[[f32; LANES]]; G],
    ) {
        let dim = self.block.heads.dim;
        let mut q = [<&[f32]>::default(); M];
        for (m, q) in q.iter_mut().enumerate() {
            *q = &self.queries[(row + m) * dim..][..dim];
        }
        let mut sums: [[Sixteen<S, N>; G]; M] = [[lanes.splat(0.0); G]; M];
        for d in 0..dim {
            for g in 0..G {
                let key = lanes.load(&keys[g][d]);
                for m in 0..M {
                    sums[m][g] = lanes.mul_add(lanes.splat(q[m][d]), key, sums[m][g]);
                }
            }
        }
        for (m, sums) in sums.into_iter().enumerate() {
            let scores = &mut self.scores[(row + m) * self.block.columns..];
            let scores = scores.as_chunks_mut::<LANES>().0[group..].iter_mut();
            scores.zip(sums).for_each(|(scores, sums)| lanes.store(sums, scores));
        }
    }
}

/// Values of a block, weighted: chains of multiply-adds over its keys, which are then added to sums.
struct ValueChains<'a> {
    block: &'a CacheRead,
    v: SequenceValues<'a>,
    /// Weights `[rows, columns]`.
    weights: &'a [f32],
    /// Sums `[rows, dim]`.
    sums: &'a mut [f32],
}

impl Kernel for ValueChains<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(mut self, lanes: Lanes<S, N>) {
        let (dim, size) = (self.block.heads.dim, S::F32_LANES);
        let mut column = 0;
        while !is_scalar::<S>() && column + 4 * size <= dim {
            self.all_rows::<S, 4>(lanes.simd, column);
            column += 4 * size;
        }
        while column + size <= dim {
            self.all_rows::<S, 1>(lanes.simd, column);
            column += size;
        }
        for column in column..dim {
            self.all_rows::<Scalar, 1>(Scalar::new(), column);
        }
    }
}

impl ValueChains<'_> {
    /// Adds to `V` vectors of columns of all rows.
    #[inline(always)]
    fn all_rows<S: Simd, const V: usize>(&mut self, simd: S, column: usize) {
        let rows = self.sums.len() / self.block.heads.dim;
        let mut row = 0;
        while !is_scalar::<S>() && S::REGISTER_COUNT >= 32 && row + 4 <= rows {
            self.some_rows::<S, V, 4>(simd, column, row);
            row += 4;
        }
        while !is_scalar::<S>() && row + 2 <= rows {
            self.some_rows::<S, V, 2>(simd, column, row);
            row += 2;
        }
        while row < rows {
            self.some_rows::<S, V, 1>(simd, column, row);
            row += 1;
        }
    }

    /// Adds to `M` rows from `row` on.
    #[inline(always)]
    fn some_rows<S: Simd, const V: usize, const M: usize>(
        &mut self,
        simd: S,
        column: usize,
        row: usize,
    ) {
        let CacheRead { heads, ref tokens, start, ref at, columns } = *self.block;
        let (dim, width, size) = (heads.dim, heads.kv_width(), V * S::F32_LANES);
        let mut weights = [<&[f32]>::default(); M];
        for (m, weights) in weights.iter_mut().enumerate() {
            *weights = &self.weights[(row + m) * columns..][..columns];
        }
        let mut sums = [[simd.splat_f32s(0.0); V]; M];
        for first in tokens.clone().step_by(LANES) {
            let (values, count) = self.v.contiguous_rows(first, tokens.end, width);
            let mut here = [<&[f32]>::default(); M];
            for m in 0..M {
                here[m] = &weights[m][first - start..][..count];
            }
            for (j, x) in values.chunks_exact(width).enumerate() {
                let x = S::as_simd_f32s(&x[at.start + column..][..size]).0;
                for m in 0..M {
                    let weight = simd.splat_f32s(here[m][j]);
                    for v in 0..V {
                        sums[m][v] = simd.mul_add_f32s(weight, x[v], sums[m][v]);
                    }
                }
            }
        }
        for (m, sums) in sums.iter().enumerate() {
            let out = &mut self.sums[(row + m) * dim + column..][..size];
            for (out, sum) in S::as_mut_simd_f32s(out).0.iter_mut().zip(sums) {
                *out = simd.add_f32s(*out, *sum);
            }
        }
    }
}
