//! Running softmax of rows of scores, block by block.

use std::ops::Range;

use pulp::Simd;

use crate::attention::shapes::Heads;
use crate::attention::vector::{self, ExpPart, ScorePart};
use crate::lanes::{self, Kernel, LANES, Lanes};

/// State of rows between blocks of keys. A row belongs to one query and head; those of a query follow each other.
#[derive(Default)]
pub(super) struct RowStates {
    /// Largest score of each row.
    pub(super) maxima: Vec<f32>,
    /// Sums of the exponentials of each row, by lanes.
    pub(super) totals: Vec<[f32; LANES]>,
    /// Sums of the values of each row, `[rows, dim]`.
    pub(super) sums: Vec<f32>,
}

impl RowStates {
    /// Prepares for so many rows. The maximum of a row begins with the score of its sink, if there is one.
    pub(super) fn clear(&mut self, rows: usize, heads: Heads, sink: impl Fn(usize) -> Option<f32>) {
        self.maxima.clear();
        self.maxima.extend((0..rows).map(|row| sink(row).unwrap_or(f32::NEG_INFINITY)));
        self.totals.clear();
        self.totals.resize(rows, [0.0; LANES]);
        self.sums.clear();
        self.sums.resize(rows * heads.dim, 0.0);
    }

    /// Returns the state of some rows.
    pub(super) fn slice_rows(&mut self, rows: Range<usize>, dim: usize) -> SomeStates<'_> {
        SomeStates {
            sums: &mut self.sums[rows.start * dim..rows.end * dim],
            maxima: &mut self.maxima[rows.clone()],
            totals: &mut self.totals[rows],
        }
    }
}

/// State of some rows.
pub(super) struct SomeStates<'a> {
    pub(super) maxima: &'a mut [f32],
    pub(super) totals: &'a mut [[f32; LANES]],
    pub(super) sums: &'a mut [f32],
}

/// Scores of rows for a block of keys.
pub(super) struct OnlineScores<'a> {
    /// Scores `[rows, columns]`, whole groups of lanes.
    pub(super) scores: &'a mut [f32],
    pub(super) columns: usize,
    /// Position of the first key.
    pub(super) start: usize,
    /// Positions of the queries.
    pub(super) positions: &'a [usize],
    pub(super) heads: Heads,
    pub(super) states: SomeStates<'a>,
}

impl OnlineScores<'_> {
    /// Replaces scores by weights, and updates the states.
    pub(super) fn weigh(self) {
        lanes::run_kernel(self);
    }
}

impl Kernel for OnlineScores<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { scores, columns, start, positions, heads, states } = self;
        let SomeStates { maxima, totals, sums } = states;
        let rows = scores.chunks_exact_mut(columns).zip(positions);
        let state = maxima.iter_mut().zip(totals).zip(sums.chunks_exact_mut(heads.dim));
        for ((scores, &position), ((max, totals), sums)) in rows.zip(state) {
            let keys = heads.first_key(position)..position + 1;
            if keys.start >= start + columns || keys.end <= start {
                scores.fill(0.0);
                continue;
            }
            let (scores, unseen) =
                scores.split_at_mut(vector::padded_dim(keys.end - start).min(columns));
            unseen.fill(0.0);
            let softcap = heads.scores.softcap;
            let part = ScorePart { scores: &mut *scores, first: start, keys, softcap };
            let found = lanes.call_part(part);
            let new = if found > *max { found } else { *max };
            let fall = lanes.exp(lanes.splat(*max - new));
            *max = new;
            if lanes.array(fall)[0] != 1.0 {
                lanes.map_lanes(
                    [],
                    [&mut totals[..]],
                    #[inline(always)]
                    |[], [x]| [lanes.mul(x, fall)],
                );
                lanes.map_lanes(
                    [],
                    [sums],
                    #[inline(always)]
                    |[], [x]| [lanes.mul(x, fall)],
                );
            }
            lanes.call_part(ExpPart { scores, max: new, sums: totals });
        }
    }
}

/// Results of rows: their sums of values over those of their exponentials.
pub(super) struct OnlineResults<'a> {
    pub(super) states: SomeStates<'a>,
    /// Score of the sink of each row; none if there are none.
    pub(super) sinks: &'a [f32],
    pub(super) dim: usize,
}

impl OnlineResults<'_> {
    /// Replaces sums by results.
    pub(super) fn divide(self) {
        lanes::run_kernel(self);
    }
}

impl Kernel for OnlineResults<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let SomeStates { maxima, totals, sums } = self.states;
        let rows = sums.chunks_exact_mut(self.dim).zip(maxima.iter().zip(totals)).enumerate();
        for (row, (sums, (&max, totals))) in rows {
            let sink = (!self.sinks.is_empty()).then(|| self.sinks[row % self.sinks.len()]);
            let [inverse, _] = vector::invert_sum(lanes, lanes.load(totals), max, sink);
            let (inverse, zero) = (lanes.splat(inverse), lanes.splat(0.0));
            // A sum that keys without weight were added to may be zero with another sign.
            lanes.map_lanes(
                [],
                [sums],
                #[inline(always)]
                |[], [x]| [lanes.add(lanes.mul(x, inverse), zero)],
            );
        }
    }
}
