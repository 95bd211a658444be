//! Forward pass over many keys. Several rows of scores are held at once, more than a level-1 cache does, and the keys and
//! values pass in blocks: all rows read a block from a cache.
//!
//! The first pass computes scores and their maxima, the second exponentials and the sums of values. Each sum goes on from one
//! block to the next, so that the bits are those of a row whose keys are read at once.

use pulp::Simd;

use super::group::HeadGroup;
use crate::attention::rows::SequenceValues;
use crate::attention::vector;
use crate::attention::weighted::{CHAINS, Weighted, add_up_sums};
use crate::lanes::{LANES, Lanes};

/// Maximum number of rows of scores held at once; a row belongs to one query and head.
pub(super) const ROWS: usize = 64;
/// Rows that are computed together.
const TOGETHER: usize = 16;

/// State of rows between blocks.
#[derive(Default)]
pub(super) struct LongScratch {
    /// Largest score of each row.
    maxima: Vec<f32>,
    /// Sums of the exponentials of each row, by lanes.
    totals: Vec<[f32; LANES]>,
    /// Four sums of the values of each row, `[rows, 4, dim]`.
    sums: Vec<f32>,
}

/// Rows of scores. Keys are counted from a multiple of [`LANES`].
pub(super) struct LongRows<'a> {
    pub(super) group: &'a HeadGroup<'a>,
    /// Scaled queries, `[rows, dim]`.
    pub(super) queries: &'a [f32],
    /// Number of keys that each row attends to.
    pub(super) counts: &'a [usize],
    /// Number of keys before the first one.
    pub(super) skipped: usize,
    /// Scores, `[rows, pitch]`.
    pub(super) scores: &'a mut [f32],
    pub(super) pitch: usize,
    /// Values from the first key on.
    pub(super) v: SequenceValues<'a>,
}

impl LongRows<'_> {
    /// Overwrites `out [rows, dim]` by the sums of the values that the rows attend to. `scales` are overwritten.
    #[inline(always)]
    pub(super) fn attend_blocks<S: Simd, const N: usize>(
        mut self,
        lanes: Lanes<S, N>,
        (scratch, scales): (&mut LongScratch, &mut Vec<f32>),
        out: &mut [f32],
    ) {
        let (rows, dim) = (self.counts.len(), self.group.heads.dim);
        let LongScratch { maxima, totals, sums } = scratch;
        maxima.clear();
        maxima.resize(rows, f32::NEG_INFINITY);
        totals.clear();
        totals.resize(rows, [0.0; LANES]);
        sums.clear();
        sums.resize(rows * CHAINS * dim, 0.0);
        let block = vector::block_tokens(dim);
        for start in (0..self.pitch).step_by(block) {
            for first in (0..rows).step_by(TOGETHER) {
                let end = self.pitch.min(start + block);
                self.compute_scores(lanes, first, [start, end], maxima);
            }
        }
        for (row, max) in maxima.iter_mut().enumerate() {
            *max = vector::with_sink(*max, self.sink(row));
        }
        for start in (0..self.pitch).step_by(block) {
            for first in (0..rows).step_by(TOGETHER) {
                let end = self.pitch.min(start + block);
                self.add_values(lanes, first, [start, end], (maxima, totals, sums));
            }
        }
        scales.clear();
        for (row, (max, total)) in maxima.iter().zip(totals).enumerate() {
            let [scale, _] = vector::invert_sum(lanes, lanes.load(total), *max, self.sink(row));
            scales.push(scale);
        }
        add_up_sums(sums, scales, (out, dim, dim));
    }

    /// Returns the score of the sink of a row, if there is one.
    #[inline(always)]
    fn sink(&self, row: usize) -> Option<f32> {
        let HeadGroup { heads, head, sinks, .. } = self.group;
        let group = heads.group_size();
        sinks.get(head * group + row % group).copied()
    }

    /// Returns the end of the rows that are computed together from `first` on.
    #[inline(always)]
    fn end_of_rows(&self, first: usize) -> usize {
        self.counts.len().min(first + TOGETHER)
    }

    /// Computes the scores of a block of keys, and the largest so far.
    #[inline(always)]
    fn compute_scores<S: Simd, const N: usize>(
        &mut self,
        lanes: Lanes<S, N>,
        first: usize,
        [start, end]: [usize; 2],
        maxima: &mut [f32],
    ) {
        let (heads, pitch, last) = (self.group.heads, self.pitch, self.end_of_rows(first));
        let scores = &mut self.scores[first * pitch..last * pitch];
        let x = vector::PitchedRows {
            data: &self.queries[first * heads.dim..],
            pitch: heads.dim,
            dim: heads.dim,
        };
        for at in (start..end).step_by(LANES) {
            // Earlier queries attend to none of these keys.
            let attending = self.counts[first..last].partition_point(|&count| count <= at);
            let keys = self.group.key_group((self.skipped + at) / LANES);
            vector::KeyProducts { x, first: attending, keys, out: &mut *scores, pitch, at }
                .compute_products(lanes);
        }
        let rows = self.counts[first..last].iter().zip(scores.chunks_exact_mut(pitch));
        for ((&count, scores), max) in rows.zip(&mut maxima[first..last]) {
            let seen = vector::padded_dim(count).min(end);
            if seen <= start {
                continue;
            }
            let part = vector::ScorePart {
                scores: &mut scores[start..seen],
                first: start,
                keys: heads.first_key(count - 1)..count,
                softcap: heads.scores.softcap,
            };
            let found = lanes.call_part(part);
            *max = if found > *max { found } else { *max };
        }
    }

    /// Replaces the scores of a block of keys by exponentials, and adds these and the values that they weigh to the sums.
    #[inline(always)]
    fn add_values<S: Simd, const N: usize>(
        &mut self,
        lanes: Lanes<S, N>,
        first: usize,
        [start, end]: [usize; 2],
        (maxima, totals, sums): (&[f32], &mut [[f32; LANES]], &mut [f32]),
    ) {
        let (pitch, last) = (self.pitch, self.end_of_rows(first));
        let HeadGroup { heads, head, .. } = self.group;
        let (dim, counts) = (heads.dim, &self.counts[first..last]);
        let scores = &mut self.scores[first * pitch..last * pitch];
        let rows = counts.iter().zip(scores.chunks_exact_mut(pitch));
        let state = maxima[first..last].iter().zip(&mut totals[first..last]);
        for ((&count, scores), (&max, sums)) in rows.zip(state) {
            let seen = vector::padded_dim(count).min(end);
            if seen > start {
                let scores = &mut scores[start..seen];
                lanes.call_part(vector::ExpPart { scores, max, sums });
            }
        }
        let weighted = Weighted {
            weights: scores,
            pitch,
            counts,
            scales: &[1.0; TOGETHER],
            x: self.v,
            width: heads.kv_width(),
            at: head * dim,
            dim,
        };
        let sums = &mut sums[first * CHAINS * dim..last * CHAINS * dim];
        weighted.add_keys(lanes, start..end, sums);
    }
}
