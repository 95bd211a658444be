//! Weighted sums of rows: values weighted by probabilities, and the gradients of queries. Several rows are processed at a
//! time, so that data read once serves several queries. The grouping never changes the order of a sum.

use std::ops::Range;

use pulp::{Scalar, Simd};

use super::rows::SequenceValues;
use super::vector::is_scalar;
use crate::lanes::{Kernel, Lanes};

/// Rows of weights, and the rows that they multiply.
#[derive(Clone, Copy)]
pub(super) struct Weighted<'a> {
    /// Weights `[rows, pitch]`.
    pub(super) weights: &'a [f32],
    pub(super) pitch: usize,
    /// Number of weights of each row.
    pub(super) counts: &'a [usize],
    /// Factor of each row's sum.
    pub(super) scales: &'a [f32],
    pub(super) x: SequenceValues<'a>,
    /// Elements of a row of `x`; the columns `at..at + dim` of them are summed.
    pub(super) width: usize,
    pub(super) at: usize,
    pub(super) dim: usize,
}

impl Weighted<'_> {
    /// Overwrites the first `dim` elements of each row of `out` (of `pitch`) by `scales[m] Σⱼ weights[m][j] x[j]`, as
    /// four sums of every fourth `j` each.
    #[inline(always)]
    pub(super) fn compute_sums<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        out: &mut [f32],
        pitch: usize,
    ) {
        self.compute_columns(lanes, &mut SumPart::Whole { out, pitch });
    }

    /// Adds the products of some rows of `x`, from a multiple of sixteen on, to the four sums of each row of weights,
    /// `[rows, 4, dim]`. In ascending parts of any length, the sums get the bits of [`Weighted::compute_sums`].
    #[inline(always)]
    pub(super) fn add_keys<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        keys: Range<usize>,
        sums: &mut [f32],
    ) {
        self.compute_columns(lanes, &mut SumPart::Keys { keys, sums });
    }

    #[inline(always)]
    fn compute_columns<S: Simd, const N: usize>(&self, lanes: Lanes<S, N>, part: &mut SumPart<'_>) {
        let (dim, size) = (self.dim, S::F32_LANES);
        let mut col = 0;
        // As many columns at once as registers can hold sums for.
        let most = if has_many_registers::<S>() || self.counts.len() < 4 { 4 } else { 2 };
        while !is_scalar::<S>() && most >= 4 && col + 4 * size <= dim {
            lanes.call_part(WeightedColumns::<4> { sums: self, col, part: &mut *part });
            col += 4 * size;
        }
        while !is_scalar::<S>() && col + 2 * size <= dim {
            lanes.call_part(WeightedColumns::<2> { sums: self, col, part: &mut *part });
            col += 2 * size;
        }
        while col + size <= dim {
            lanes.call_part(WeightedColumns::<1> { sums: self, col, part: &mut *part });
            col += size;
        }
        for col in col..dim {
            WeightedColumns::<1> { sums: self, col, part: &mut *part }.all_rows(Scalar::new());
        }
    }

    /// Computes `M` rows from `row` on. At least eight sums are taken at once, which hides the latency of additions.
    #[inline(always)]
    fn compute_tile<S: Simd, const V: usize, const M: usize>(
        &self,
        simd: S,
        col: usize,
        row: usize,
        part: &mut SumPart<'_>,
    ) {
        let keys = part.keys();
        let mut weights = [<&[f32]>::default(); M];
        let mut common = usize::MAX;
        for (m, weights) in weights.iter_mut().enumerate() {
            let count = self.counts[row + m].min(keys.end);
            *weights = &self.weights[(row + m) * self.pitch..][..count];
            common = common.min(count / 4 * 4);
        }
        let common = keys.start..common.max(keys.start);
        let columns = self.at + col..self.at + col + V * S::F32_LANES;
        let mut sums = part.load::<S, V, M>(simd, row, col..self.dim);
        let registers = if has_many_registers::<S>() { 16 } else { 8 };
        match registers / (V * M) {
            0 | 1 => self.all_chains::<S, V, M, 1>(simd, &columns, weights, &common, &mut sums),
            2 | 3 => self.all_chains::<S, V, M, 2>(simd, &columns, weights, &common, &mut sums),
            _ => self.all_chains::<S, V, M, 4>(simd, &columns, weights, &common, &mut sums),
        }
        for (m, weights) in weights.into_iter().enumerate() {
            for (j, &weight) in weights.iter().enumerate().skip(common.end) {
                let x = S::as_simd_f32s(&self.x.row_at(j, self.width)[columns.clone()]).0;
                let weight = simd.splat_f32s(weight);
                for v in 0..V {
                    sums[j % 4][m][v] = simd.mul_add_f32s(weight, x[v], sums[j % 4][m][v]);
                }
            }
        }
        part.store::<S, V, M>(simd, (row, &self.scales[row..row + M]), col..self.dim, &sums);
    }

    /// Adds the products of the `common` weights of each row to the four sums, `C` of them at a time. The result is in
    /// memory: little is added to it later, and a non-constant index would keep all sums out of registers.
    #[inline(always)]
    fn all_chains<S: Simd, const V: usize, const M: usize, const C: usize>(
        &self,
        simd: S,
        columns: &Range<usize>,
        weights: [&[f32]; M],
        common: &Range<usize>,
        sums: &mut Chains<S, V, M>,
    ) {
        for (pass, sums) in sums.as_chunks_mut::<C>().0.iter_mut().enumerate() {
            *sums = self.sum_chains(simd, columns, weights, common, pass * C, *sums);
        }
    }

    /// Adds every fourth row of `x` from `first` on, and the `C - 1` rows after each, to sums.
    #[inline(always)]
    fn sum_chains<S: Simd, const V: usize, const M: usize, const C: usize>(
        &self,
        simd: S,
        columns: &Range<usize>,
        weights: [&[f32]; M],
        common: &Range<usize>,
        first: usize,
        mut sums: [[[S::f32s; V]; M]; C],
    ) -> [[[S::f32s; V]; M]; C] {
        let Self { x, width, .. } = *self;
        let mut done = common.start;
        while done < common.end {
            let (mut run, rows) = x.contiguous_rows(done, common.end, width);
            let mut here = [<&[[f32; 4]]>::default(); M];
            for m in 0..M {
                here[m] = &weights[m][done..].as_chunks().0[..rows / 4];
            }
            let mut i = 0;
            while let Some((x, rest)) = run.split_at_checked(4 * width) {
                for c in 0..C {
                    let x = S::as_simd_f32s(&x[(first + c) * width..][columns.clone()]).0;
                    for m in 0..M {
                        let weight = simd.splat_f32s(here[m][i][first + c]);
                        for v in 0..V {
                            sums[c][m][v] = simd.mul_add_f32s(weight, x[v], sums[c][m][v]);
                        }
                    }
                }
                (run, i) = (rest, i + 1);
            }
            done += rows;
        }
        sums
    }
}

/// Overwrites the first `dim` elements of rows of `out` (of `pitch`) by the total of each row's four sums, `[rows, 4, dim]`, times
/// its scale.
#[inline(always)]
pub(super) fn add_up_sums(
    sums: &[f32],
    scales: &[f32],
    (out, dim, pitch): (&mut [f32], usize, usize),
) {
    let rows = sums.chunks_exact(CHAINS * dim).zip(out.chunks_mut(pitch));
    for ((sums, out), scale) in rows.zip(scales) {
        let (low, high) = sums.split_at(2 * dim);
        let ((a, b), (c, d)) = (low.split_at(dim), high.split_at(dim));
        for (i, out) in out[..dim].iter_mut().enumerate() {
            *out = ((a[i] + b[i]) + (c[i] + d[i])) * scale;
        }
    }
}

/// Number of sums of each element, which are added at the end.
pub(super) const CHAINS: usize = 4;

/// The four sums of `V` vectors of columns for `M` rows.
type Chains<S, const V: usize, const M: usize> = [[[<S as Simd>::f32s; V]; M]; CHAINS];

/// Part of the sums that is computed.
enum SumPart<'a> {
    /// All rows of `x`. The results are stored to rows of `pitch`.
    Whole { out: &'a mut [f32], pitch: usize },
    /// Some rows of `x`. The four sums of each row, `[rows, 4, dim]`, are continued.
    Keys { keys: Range<usize>, sums: &'a mut [f32] },
}

impl SumPart<'_> {
    #[inline(always)]
    fn keys(&self) -> Range<usize> {
        match self {
            Self::Whole { .. } => 0..usize::MAX,
            Self::Keys { keys, .. } => keys.clone(),
        }
    }

    /// Returns the sums so far of `M` rows from `row` on, from the first of the `columns` up to the last one of all.
    #[inline(always)]
    fn load<S: Simd, const V: usize, const M: usize>(
        &self,
        simd: S,
        row: usize,
        columns: Range<usize>,
    ) -> Chains<S, V, M> {
        let mut chains = [[[simd.splat_f32s(0.0); V]; M]; CHAINS];
        let Self::Keys { sums, .. } = self else { return chains };
        for (c, chain) in chains.iter_mut().enumerate() {
            for (m, vectors) in chain.iter_mut().enumerate() {
                let at = ((row + m) * CHAINS + c) * columns.end + columns.start;
                vectors.copy_from_slice(S::as_simd_f32s(&sums[at..at + V * S::F32_LANES]).0);
            }
        }
        chains
    }

    /// Stores the sums of `M` rows from `row` on, or their totals times the scales.
    #[inline(always)]
    fn store<S: Simd, const V: usize, const M: usize>(
        &mut self,
        simd: S,
        (row, scales): (usize, &[f32]),
        columns: Range<usize>,
        chains: &Chains<S, V, M>,
    ) {
        for m in 0..M {
            match self {
                Self::Whole { out, pitch } => {
                    let scale = simd.splat_f32s(scales[m]);
                    let out = &mut out[(row + m) * *pitch + columns.start..][..V * S::F32_LANES];
                    let out = S::as_mut_simd_f32s(out).0;
                    for v in 0..V {
                        let low = simd.add_f32s(chains[0][m][v], chains[1][m][v]);
                        let high = simd.add_f32s(chains[2][m][v], chains[3][m][v]);
                        out[v] = simd.mul_f32s(simd.add_f32s(low, high), scale);
                    }
                }
                Self::Keys { sums, .. } => {
                    for (c, chain) in chains.iter().enumerate() {
                        let at = ((row + m) * CHAINS + c) * columns.end + columns.start;
                        let sums = &mut sums[at..at + V * S::F32_LANES];
                        S::as_mut_simd_f32s(sums).0.copy_from_slice(&chain[m]);
                    }
                }
            }
        }
    }
}

/// `V` vectors of columns from `col` on, for all rows of weights.
struct WeightedColumns<'a, 'p, const V: usize> {
    sums: &'a Weighted<'a>,
    col: usize,
    part: &'a mut SumPart<'p>,
}

impl<const V: usize> Kernel for WeightedColumns<'_, '_, V> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        self.all_rows(lanes.simd);
    }
}

impl<const V: usize> WeightedColumns<'_, '_, V> {
    /// Computes the columns of all rows. The part of `x` that they read stays in the L1 cache.
    #[inline(always)]
    fn all_rows<S: Simd>(self, simd: S) {
        let Self { sums, col, part } = self;
        let rows = sums.counts.len();
        let mut row = 0;
        while !is_scalar::<S>() && (V < 4 || has_many_registers::<S>()) && row + 4 <= rows {
            sums.compute_tile::<S, V, 4>(simd, col, row, part);
            row += 4;
        }
        while !is_scalar::<S>() && row + 2 <= rows {
            sums.compute_tile::<S, V, 2>(simd, col, row, part);
            row += 2;
        }
        while row < rows {
            sums.compute_tile::<S, V, 1>(simd, col, row, part);
            row += 1;
        }
    }
}

/// Returns true if registers remain for operands beside sixteen sums.
pub(super) const fn has_many_registers<S: Simd>() -> bool {
    S::REGISTER_COUNT >= 32
}
