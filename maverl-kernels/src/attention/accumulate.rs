//! Gradients of keys and values: sums over queries. Several keys are processed at a time. The grouping never changes the
//! order of a sum.

use pulp::Simd;

use super::vector::is_scalar;
use super::weighted::has_many_registers;
use crate::lanes::{Kernel, Lanes};

/// Adds `Σᵢ weights[i][j] x[i]` to the rows `j` of `acc`. Queries are added in ascending order.
pub(super) struct Accumulate<'a> {
    /// Weights, rows of `pitch`, of which the columns from `at` on are read.
    pub(super) weights: &'a [f32],
    pub(super) pitch: usize,
    pub(super) at: usize,
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
        let Self { weights, pitch, at, x, width, ref mut acc } = *self;
        let size = V * S::F32_LANES;
        let mut sums = [[simd.splat_f32s(0.0); V]; K];
        for (k, sums) in sums.iter_mut().enumerate() {
            sums.copy_from_slice(S::as_simd_f32s(&acc[(key + k) * width + col..][..size]).0);
        }
        for (weights, x) in weights.chunks_exact(pitch).zip(x.chunks_exact(width)) {
            let (weights, x) = (&weights[at + key..][..K], S::as_simd_f32s(&x[col..col + size]).0);
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
