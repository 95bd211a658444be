//! Weighted sums of rows: values weighted by probabilities, and the gradients. Several rows are processed at a time, so
//! that data read once serves several queries. The grouping never changes the order of a sum.

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
        let (dim, size) = (self.dim, S::F32_LANES);
        let mut col = 0;
        // As many columns at once as registers can hold sums for.
        let most = if has_many_registers::<S>() || self.counts.len() < 4 { 4 } else { 2 };
        while !is_scalar::<S>() && most >= 4 && col + 4 * size <= dim {
            lanes.call_part(WeightedColumns::<4> { sums: self, col, out, pitch });
            col += 4 * size;
        }
        while !is_scalar::<S>() && col + 2 * size <= dim {
            lanes.call_part(WeightedColumns::<2> { sums: self, col, out, pitch });
            col += 2 * size;
        }
        while col + size <= dim {
            lanes.call_part(WeightedColumns::<1> { sums: self, col, out, pitch });
            col += size;
        }
        for col in col..dim {
            WeightedColumns::<1> { sums: self, col, out, pitch }.all_rows(Scalar::new());
        }
    }

    /// Computes `M` rows from `row` on. At least eight sums are taken at once, which hides the latency of additions.
    #[inline(always)]
    fn compute_tile<S: Simd, const V: usize, const M: usize>(
        &self,
        simd: S,
        col: usize,
        row: usize,
        out: &mut [f32],
        pitch: usize,
    ) {
        let mut weights = [<&[f32]>::default(); M];
        let mut common = usize::MAX;
        for (m, weights) in weights.iter_mut().enumerate() {
            let count = self.counts[row + m];
            *weights = &self.weights[(row + m) * self.pitch..][..count];
            common = common.min(count / 4 * 4);
        }
        let columns = self.at + col..self.at + col + V * S::F32_LANES;
        let registers = if has_many_registers::<S>() { 16 } else { 8 };
        let mut sums = match registers / (V * M) {
            0 | 1 => self.all_chains::<S, V, M, 1>(simd, &columns, weights, common),
            2 | 3 => self.all_chains::<S, V, M, 2>(simd, &columns, weights, common),
            _ => self.all_chains::<S, V, M, 4>(simd, &columns, weights, common),
        };
        for (m, weights) in weights.into_iter().enumerate() {
            for (j, &weight) in weights.iter().enumerate().skip(common) {
                let x = S::as_simd_f32s(&self.x.row_at(j, self.width)[columns.clone()]).0;
                let weight = simd.splat_f32s(weight);
                for v in 0..V {
                    sums[j % 4][m][v] = simd.mul_add_f32s(weight, x[v], sums[j % 4][m][v]);
                }
            }
            let scale = simd.splat_f32s(self.scales[row + m]);
            let out = &mut out[m * pitch + col..][..V * S::F32_LANES];
            let out = S::as_mut_simd_f32s(out).0;
            for v in 0..V {
                let low = simd.add_f32s(sums[0][m][v], sums[1][m][v]);
                let high = simd.add_f32s(sums[2][m][v], sums[3][m][v]);
                out[v] = simd.mul_f32s(simd.add_f32s(low, high), scale);
            }
        }
    }

    /// Computes the four sums of the first `common` weights of each row, `C` of them at a time. The result is in
    /// memory: little is added to it later, and a non-constant index would keep all sums out of registers.
    #[inline(always)]
    fn all_chains<S: Simd, const V: usize, const M: usize, const C: usize>(
        &self,
        simd: S,
        columns: &Range<usize>,
        weights: [&[f32]; M],
        common: usize,
    ) -> [[[S::f32s; V]; M]; 4] {
        let mut sums = [[[simd.splat_f32s(0.0); V]; M]; 4];
        for (pass, sums) in sums.as_chunks_mut::<C>().0.iter_mut().enumerate() {
            *sums = self.sum_chains(simd, columns, weights, common, pass * C);
        }
        sums
    }

    /// Computes the sums of every fourth row of `x` from `first` on, and of the `C - 1` rows after each.
    #[inline(always)]
    fn sum_chains<S: Simd, const V: usize, const M: usize, const C: usize>(
        &self,
        simd: S,
        columns: &Range<usize>,
        weights: [&[f32]; M],
        common: usize,
        first: usize,
    ) -> [[[S::f32s; V]; M]; C] {
        let Self { x, width, .. } = *self;
        let mut sums = [[[simd.splat_f32s(0.0); V]; M]; C];
        let mut done = 0;
        while done < common {
            let (mut run, rows) = x.contiguous_rows(done, common, width);
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

/// `V` vectors of columns from `col` on, for all rows of `out` (of `pitch`).
struct WeightedColumns<'a, const V: usize> {
    sums: &'a Weighted<'a>,
    col: usize,
    out: &'a mut [f32],
    pitch: usize,
}

impl<const V: usize> Kernel for WeightedColumns<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        self.all_rows(lanes.simd);
    }
}

impl<const V: usize> WeightedColumns<'_, V> {
    /// Computes the columns of all rows. The part of `x` that they read stays in the L1 cache.
    #[inline(always)]
    fn all_rows<S: Simd>(self, simd: S) {
        let Self { sums, col, out, pitch } = self;
        let rows = sums.counts.len();
        let mut row = 0;
        while !is_scalar::<S>() && (V < 4 || has_many_registers::<S>()) && row + 4 <= rows {
            sums.compute_tile::<S, V, 4>(simd, col, row, &mut out[row * pitch..], pitch);
            row += 4;
        }
        while !is_scalar::<S>() && row + 2 <= rows {
            sums.compute_tile::<S, V, 2>(simd, col, row, &mut out[row * pitch..], pitch);
            row += 2;
        }
        while row < rows {
            sums.compute_tile::<S, V, 1>(simd, col, row, &mut out[row * pitch..], pitch);
            row += 1;
        }
    }
}

/// Returns true if registers remain for operands beside sixteen sums.
const fn has_many_registers<S: Simd>() -> bool {
    S::REGISTER_COUNT >= 32
}

/// Adds `Σᵢ weights[i][j] x[i]` to the rows `j` of `acc`. Queries are added in ascending order.
pub(super) struct Accumulate<'a> {
    /// Weights, rows of `pitch`.
    pub(super) weights: &'a [f32],
    pub(super) pitch: usize,
    /// Rows of `width`, whole groups of lanes.
    pub(super) x: &'a [f32],
    pub(super) width: usize,
    /// Sums `[keys, width]`.
    pub(super) acc: &'a mut [f32],
}

impl Kernel for Accumulate<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(mut self, lanes: Lanes<S, N>) {
        let (simd, size) = (lanes.simd, S::F32_LANES);
        let mut col = 0;
        while has_many_registers::<S>() && col + 4 * size <= self.width {
            self.add_to_columns::<S, 4>(simd, col);
            col += 4 * size;
        }
        while col + 2 * size <= self.width {
            self.add_to_columns::<S, 2>(simd, col);
            col += 2 * size;
        }
        while col < self.width {
            self.add_to_columns::<S, 1>(simd, col);
            col += size;
        }
    }
}

impl Accumulate<'_> {
    /// Adds to `V` vectors of columns from `col` on.
    #[inline(always)]
    fn add_to_columns<S: Simd, const V: usize>(&mut self, simd: S, col: usize) {
        let keys = self.acc.len() / self.width;
        let mut key = 0;
        while has_many_registers::<S>() && V < 4 && key + 8 <= keys {
            self.add_to_keys::<S, V, 8>(simd, key, col);
            key += 8;
        }
        while !is_scalar::<S>() && key + 4 <= keys {
            self.add_to_keys::<S, V, 4>(simd, key, col);
            key += 4;
        }
        while key < keys {
            self.add_to_keys::<S, V, 1>(simd, key, col);
            key += 1;
        }
    }

    /// Adds to `K` keys from `key` on.
    #[inline(always)]
    fn add_to_keys<S: Simd, const V: usize, const K: usize>(
        &mut self,
        simd: S,
        key: usize,
        col: usize,
    ) {
        let Self { weights, pitch, x, width, ref mut acc } = *self;
        let size = V * S::F32_LANES;
        let mut sums = [[simd.splat_f32s(0.0); V]; K];
        for (k, sums) in sums.iter_mut().enumerate() {
            sums.copy_from_slice(S::as_simd_f32s(&acc[(key + k) * width + col..][..size]).0);
        }
        for (weights, x) in weights.chunks_exact(pitch).zip(x.chunks_exact(width)) {
            let (weights, x) = (&weights[key..key + K], S::as_simd_f32s(&x[col..col + size]).0);
            for k in 0..K {
                let weight = simd.splat_f32s(weights[k]);
                for v in 0..V {
                    sums[k][v] = simd.mul_add_f32s(weight, x[v], sums[k][v]);
                }
            }
        }
        for (k, sums) in sums.iter().enumerate() {
            let acc = &mut acc[(key + k) * width + col..][..size];
            S::as_mut_simd_f32s(acc).0.copy_from_slice(sums);
        }
    }
}
