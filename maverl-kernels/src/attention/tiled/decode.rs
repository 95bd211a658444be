//! A few queries of a sequence in a cache, whose keys and values are read in place. Sums have the order of products, so that a
//! query has the bits of the same one in a longer pass.
//!
//! Keys and values come out of memory once, whatever the number of rows: some groups of sixteen keys are multiplied with all
//! rows before the next ones are read, and so are sixteen values.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Scalar, Simd};

use super::queries::HeadQueries;
use super::{KEYS, key_blocks};
use crate::attention::forward::ForwardTask;
use crate::attention::rows::{SequenceKeys, SequenceValues};
use crate::attention::shapes::Heads;
use crate::attention::vector::{self, is_scalar};
use crate::attention::weighted::has_many_registers;
use crate::lanes::{self, Kernel, LANES, Lanes, Sixteen};

/// Groups of sixteen keys that are multiplied with all rows before the next ones are. These are prefetched meanwhile.
const KEY_GROUPS: usize = 4;
/// Groups of sixteen values that are prefetched before they are read.
const VALUE_GROUPS: usize = 2;

/// Buffers of a task. Each thread keeps its own.
#[derive(Default)]
struct DecodeScratch {
    queries: HeadQueries,
    /// Scores, then weights, `[rows, KEYS]`.
    scores: Vec<f32>,
    /// Sums of the values of a block, `[rows, dim]`.
    sums: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<DecodeScratch> = RefCell::default();
}

/// Computes a task of a few queries, all with many keys, which are in a cache.
pub(in crate::attention) fn attend_in_place(mut task: ForwardTask<'_>, heads: Heads) {
    SCRATCH.with_borrow_mut(|scratch| {
        for head in task.kv_heads.clone() {
            attend_head(&mut task, head, heads, scratch);
        }
    });
}

/// Computes the queries of one key head.
fn attend_head(task: &mut ForwardTask<'_>, head: usize, heads: Heads, scratch: &mut DecodeScratch) {
    let DecodeScratch { queries, scores, sums } = scratch;
    queries.load_head(task, head, heads);
    let (rows, dim) = (queries.positions.len(), heads.dim);
    let (earliest, at) = (heads.first_group(task.first), head * dim..(head + 1) * dim);
    scores.resize((rows * KEYS).max(scores.len()), 0.0);
    for keys in key_blocks(heads.first_key(task.first), task.end(heads)) {
        let (start, columns) = (keys.start, vector::padded_dim(keys.len()));
        let block = &CacheRead {
            heads,
            tokens: start.max(earliest)..keys.end,
            start,
            at: at.clone(),
            columns,
        };
        let scores = &mut scores[..rows * columns];
        lanes::run_kernel(KeyChains {
            block,
            k: task.k,
            queries: &queries.rows,
            scores: &mut *scores,
        });
        let first = block.tokens.start / LANES;
        (first..first + VALUE_GROUPS).for_each(|group| block.prefetch_values(task.v, group));
        queries.weigh_scores(0..rows, (&mut *scores, columns), start, heads);
        sums.clear();
        sums.resize(rows * dim, 0.0);
        let totals = queries.sums(0..rows, heads);
        lanes::run_kernel(ValueChains { block, v: task.v, weights: scores, sums, totals });
    }
    queries.store_head(task, head, heads);
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

impl CacheRead {
    /// Prefetches a group of sixteen keys, if it exists.
    #[inline(always)]
    fn prefetch_keys(&self, k: SequenceKeys<'_>, group: usize) {
        k.prefetch_keys(group, self.at.start * LANES..self.at.end * LANES);
    }

    /// Prefetches a group of sixteen values, if it exists.
    #[inline(always)]
    fn prefetch_values(&self, v: SequenceValues<'_>, group: usize) {
        v.prefetch_values(group, self.heads.kv_width(), self.at.clone());
    }
}

/// Returns the number of vectors of sums that fit registers beside their operands.
const fn sums_at_once<S: Simd>() -> usize {
    if is_scalar::<S>() {
        1
    } else if has_many_registers::<S>() {
        16
    } else {
        8
    }
}

/// Scores of a block of keys: chains of multiply-adds over `dim`.
struct KeyChains<'a> {
    block: &'a CacheRead,
    k: SequenceKeys<'a>,
    /// Scaled queries `[rows, dim]`.
    queries: &'a [f32],
    /// Scores `[rows, columns]`.
    scores: &'a mut [f32],
}

impl Kernel for KeyChains<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(mut self, lanes: Lanes<S, N>) {
        let CacheRead { ref tokens, start, columns, .. } = *self.block;
        let end = columns / LANES;
        for group in ((tokens.start - start) / LANES..end).step_by(KEY_GROUPS) {
            let groups = group..end.min(group + KEY_GROUPS);
            for next in groups.clone() {
                self.block.prefetch_keys(self.k, start / LANES + next + KEY_GROUPS);
            }
            self.all_rows(lanes, &groups);
        }
    }
}

impl KeyChains<'_> {
    /// Computes the scores of some groups of sixteen keys of the block for all rows.
    #[inline(always)]
    fn all_rows<S: Simd, const N: usize>(&mut self, lanes: Lanes<S, N>, groups: &Range<usize>) {
        let rows = self.queries.len() / self.block.heads.dim;
        let mut row = 0;
        while !is_scalar::<S>() && row + 4 <= rows {
            self.some_rows::<S, N, 4>(lanes, row, groups);
            row += 4;
        }
        while !is_scalar::<S>() && row + 2 <= rows {
            self.some_rows::<S, N, 2>(lanes, row, groups);
            row += 2;
        }
        while row < rows {
            self.some_rows::<S, N, 1>(lanes, row, groups);
            row += 1;
        }
    }

    /// Computes the scores of `M` rows from `row` on.
    #[inline(always)]
    fn some_rows<S: Simd, const N: usize, const M: usize>(
        &mut self,
        lanes: Lanes<S, N>,
        row: usize,
        groups: &Range<usize>,
    ) {
        let most = sums_at_once::<S>() / (M * N);
        let mut group = groups.start;
        while most >= 4 && group + 4 <= groups.end {
            self.compute_tile::<S, N, M, 4>(lanes, row, group);
            group += 4;
        }
        while most >= 2 && group + 2 <= groups.end {
            self.compute_tile::<S, N, M, 2>(lanes, row, group);
            group += 2;
        }
        while group < groups.end {
            self.compute_tile::<S, N, M, 1>(lanes, row, group);
            group += 1;
        }
    }

    /// Computes the scores of `M` rows for `G` groups. Every index of a sum is known to the compiler, which then keeps all of
    /// them in registers.
    #[inline(always)]
    fn compute_tile<S: Simd, const N: usize, const M: usize, const G: usize>(
        &mut self,
        lanes: Lanes<S, N>,
        row: usize,
        group: usize,
    ) {
        let CacheRead { heads, start, ref at, columns, .. } = *self.block;
        let dim = heads.dim;
        let mut q = [<&[f32]>::default(); M];
        for (m, q) in q.iter_mut().enumerate() {
            *q = &self.queries[(row + m) * dim..][..dim];
        }
        let mut keys = [<&[S::f32s]>::default(); G];
        for (g, keys) in keys.iter_mut().enumerate() {
            let group = &self.k.group_at(start / LANES + group + g)[at.start..][..dim];
            *keys = &S::as_simd_f32s(group.as_flattened()).0[..dim * N];
        }
        let mut sums: [[Sixteen<S, N>; G]; M] = [[lanes.splat(0.0); G]; M];
        for d in 0..dim {
            for g in 0..G {
                for n in 0..N {
                    let key = keys[g][d * N + n];
                    for m in 0..M {
                        let q = lanes.simd.splat_f32s(q[m][d]);
                        sums[m][g][n] = lanes.simd.mul_add_f32s(q, key, sums[m][g][n]);
                    }
                }
            }
        }
        for (m, sums) in sums.iter().enumerate() {
            let scores = &mut self.scores[(row + m) * columns + group * LANES..][..G * LANES];
            let scores = S::as_mut_simd_f32s(scores).0;
            for (i, sums) in sums.as_flattened().iter().enumerate() {
                scores[i] = *sums;
            }
        }
    }
}

/// Weighted values of a block: chains of multiply-adds over its keys, which are then added to totals.
struct ValueChains<'a> {
    block: &'a CacheRead,
    v: SequenceValues<'a>,
    /// Weights `[rows, columns]`.
    weights: &'a [f32],
    /// Sums of the block, and of all blocks so far, `[rows, dim]`.
    sums: &'a mut [f32],
    totals: &'a mut [f32],
}

/// Values of at most sixteen tokens, `[.., width]`, from a column of the weights on.
struct ValueGroup<'a> {
    values: &'a [f32],
    first: usize,
}

impl Kernel for ValueChains<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(mut self, lanes: Lanes<S, N>) {
        let CacheRead { heads, ref tokens, start, .. } = *self.block;
        for token in tokens.clone().step_by(LANES) {
            self.block.prefetch_values(self.v, token / LANES + VALUE_GROUPS);
            let (values, _) = self.v.contiguous_rows(token, tokens.end, heads.kv_width());
            self.all_rows(lanes.simd, &ValueGroup { values, first: token - start });
        }
        lanes.add_to(self.totals, self.sums);
    }
}

impl ValueChains<'_> {
    /// Adds some values to the sums of all rows.
    #[inline(always)]
    fn all_rows<S: Simd>(&mut self, simd: S, group: &ValueGroup<'_>) {
        let rows = self.sums.len() / self.block.heads.dim;
        let mut row = 0;
        while !is_scalar::<S>() && row + 4 <= rows {
            self.some_rows::<S, 4>(simd, row, group);
            row += 4;
        }
        while !is_scalar::<S>() && row + 2 <= rows {
            self.some_rows::<S, 2>(simd, row, group);
            row += 2;
        }
        while row < rows {
            self.some_rows::<S, 1>(simd, row, group);
            row += 1;
        }
    }

    /// Adds to `M` rows from `row` on.
    #[inline(always)]
    fn some_rows<S: Simd, const M: usize>(&mut self, simd: S, row: usize, group: &ValueGroup<'_>) {
        let (dim, size) = (self.block.heads.dim, S::F32_LANES);
        let most = sums_at_once::<S>() / M;
        let mut column = 0;
        while most >= 4 && column + 4 * size <= dim {
            self.add_tile::<S, 4, M>(simd, row, column, group);
            column += 4 * size;
        }
        while most >= 2 && column + 2 * size <= dim {
            self.add_tile::<S, 2, M>(simd, row, column, group);
            column += 2 * size;
        }
        while column + size <= dim {
            self.add_tile::<S, 1, M>(simd, row, column, group);
            column += size;
        }
        for column in column..dim {
            self.add_tile::<Scalar, 1, M>(Scalar::new(), row, column, group);
        }
    }

    /// Adds to `V` vectors of columns of `M` rows.
    #[inline(always)]
    fn add_tile<S: Simd, const V: usize, const M: usize>(
        &mut self,
        simd: S,
        row: usize,
        column: usize,
        group: &ValueGroup<'_>,
    ) {
        let CacheRead { heads, ref at, columns, .. } = *self.block;
        let (dim, width, size) = (heads.dim, heads.kv_width(), V * S::F32_LANES);
        let mut weights = [<&[f32]>::default(); M];
        let mut sums = [[simd.splat_f32s(0.0); V]; M];
        for m in 0..M {
            // A row of weights has whole groups of lanes.
            weights[m] = &self.weights[(row + m) * columns + group.first..][..LANES];
            let from = S::as_simd_f32s(&self.sums[(row + m) * dim + column..][..size]).0;
            for (v, sum) in sums[m].iter_mut().enumerate() {
                *sum = from[v];
            }
        }
        for (j, values) in group.values.chunks_exact(width).take(LANES).enumerate() {
            let x = S::as_simd_f32s(&values[at.start + column..][..size]).0;
            for m in 0..M {
                let weight = simd.splat_f32s(weights[m][j]);
                for v in 0..V {
                    sums[m][v] = simd.mul_add_f32s(weight, x[v], sums[m][v]);
                }
            }
        }
        for (m, sums) in sums.iter().enumerate() {
            let to = &mut self.sums[(row + m) * dim + column..][..size];
            let to = S::as_mut_simd_f32s(to).0;
            for (v, sum) in sums.iter().enumerate() {
                to[v] = *sum;
            }
        }
    }
}
