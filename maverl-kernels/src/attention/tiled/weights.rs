//! Probabilities and gradients of scores of some queries of one head, over all of their keys.

use pulp::Simd;

use crate::attention::shapes::Heads;
use crate::attention::vector::{self, ExpPart, ScorePart, SoftCap};
use crate::lanes::{self, Kernel, LANES, Lanes};

/// Scores of some queries for a block of keys.
pub(super) struct ScoreBlock {
    /// Position of the first key.
    pub(super) start: usize,
    /// Place of the first score, and elements of a row of scores.
    pub(super) at: usize,
    pub(super) columns: usize,
}

/// Scores of consecutive queries, in blocks of keys.
pub(super) struct LongScores<'a> {
    pub(super) blocks: &'a [ScoreBlock],
    /// Scores, then exponentials.
    pub(super) scores: &'a mut [f32],
    /// Derivatives of bounded scores by scores, in the layout of scores; empty without a bound.
    pub(super) slopes: &'a mut [f32],
    /// Position of the first query.
    pub(super) first: usize,
    pub(super) heads: Heads,
    pub(super) sink: Option<f32>,
    /// Inverse of the sum of each query's exponentials.
    pub(super) inverses: &'a mut [f32],
    /// Probability of the sink of each query.
    pub(super) of_sinks: &'a mut [f32],
}

impl LongScores<'_> {
    /// Replaces scores by exponentials.
    pub(super) fn weigh(self) {
        lanes::run_kernel(self);
    }

    /// Returns the elements of a row of a block that the query may attend to.
    #[inline(always)]
    fn seen(&self, block: &ScoreBlock, row: usize) -> std::ops::Range<usize> {
        let position = self.first + row;
        let keys = [self.heads.first_key(position), position + 1];
        let [start, end] = keys.map(|key| key.saturating_sub(block.start).min(block.columns));
        let at = block.at + row * block.columns;
        at..at + if start < end { vector::padded_dim(end).min(block.columns) } else { 0 }
    }
}

impl Kernel for LongScores<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        for row in 0..self.inverses.len() {
            let position = self.first + row;
            let keys = self.heads.first_key(position)..position + 1;
            let mut max = self.sink.unwrap_or(f32::NEG_INFINITY);
            for block in self.blocks {
                let seen = self.seen(block, row);
                if let Some(cap) = self.heads.scores.softcap {
                    let scores = &mut self.scores[seen.clone()];
                    let slopes = Some(&mut self.slopes[seen.clone()]);
                    lanes.call_part(SoftCap { scores, cap, slopes });
                }
                let scores = &mut self.scores[seen];
                let part =
                    ScorePart { scores, first: block.start, keys: keys.clone(), softcap: None };
                let found = lanes.call_part(part);
                max = if found > max { found } else { max };
            }
            let mut sums = [0.0; LANES];
            for block in self.blocks {
                let seen = self.seen(block, row);
                let end = block.at + (row + 1) * block.columns;
                self.scores[seen.end..end].fill(0.0);
                let scores = &mut self.scores[seen];
                lanes.call_part(ExpPart { scores, max, sums: &mut sums });
            }
            [self.inverses[row], self.of_sinks[row]] =
                vector::invert_sum(lanes, lanes.load(&sums), max, self.sink);
        }
    }
}

/// Exponentials of a block, and the products of output gradients with its values.
pub(super) struct ScoreGradients<'a> {
    /// Exponentials, then probabilities, `[rows, columns]`.
    pub(super) weights: &'a mut [f32],
    /// Products, then gradients of scores, `[rows, columns]`.
    pub(super) ds: &'a mut [f32],
    /// Derivatives of bounded scores by scores, `[rows, columns]`; empty without a bound.
    pub(super) slopes: &'a [f32],
    pub(super) columns: usize,
    /// Inverse of the sum of each query's exponentials, and the product of its `out` and `dout`.
    pub(super) inverses: &'a [f32],
    pub(super) pulls: &'a [f32],
}

impl ScoreGradients<'_> {
    /// Replaces exponentials by probabilities `p`, and products `dp` by `p (dp − pull)`.
    pub(super) fn differentiate(self) {
        lanes::run_kernel(self);
    }
}

impl Kernel for ScoreGradients<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { weights, ds, slopes, columns, inverses, pulls } = self;
        let rows = weights.chunks_exact_mut(columns).zip(ds.chunks_exact_mut(columns));
        for (row, (weights, ds)) in rows.enumerate() {
            let (inverse, pull) = (lanes.splat(inverses[row]), lanes.splat(pulls[row]));
            lanes.map_lanes(
                [],
                [weights, &mut *ds],
                #[inline(always)]
                |[], [p, dp]| {
                    let p = lanes.mul(p, inverse);
                    [p, lanes.mul(p, lanes.sub(dp, pull))]
                },
            );
            if let Some(slopes) = slopes.get(row * columns..(row + 1) * columns) {
                lanes.map_lanes(
                    [slopes],
                    [ds],
                    #[inline(always)]
                    |[slope], [ds]| [lanes.mul(ds, slope)],
                );
            }
        }
    }
}

/// Products of the rows of two arrays `[rows, dim]`, one for each row.
pub(super) struct RowProducts<'a> {
    pub(super) a: &'a [f32],
    pub(super) b: &'a [f32],
    pub(super) dim: usize,
    pub(super) out: &'a mut [f32],
}

impl RowProducts<'_> {
    pub(super) fn multiply(self) {
        lanes::run_kernel(self);
    }
}

impl Kernel for RowProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let rows = self.a.chunks_exact(self.dim).zip(self.b.chunks_exact(self.dim));
        for (out, (a, b)) in self.out.iter_mut().zip(rows) {
            *out = lanes.dot(a, b);
        }
    }
}
