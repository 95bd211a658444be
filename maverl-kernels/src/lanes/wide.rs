//! Sixteen lanes of f64.

use std::any::Any;

use pulp::Simd;
use pulp::bytemuck::{cast_slice, cast_slice_mut};

use super::{LANES, Lanes, Sixteen};

/// Sixteen elements: two vectors for each one of f32. Where a vector is one element, the second is unused.
pub(crate) type Wide<S, const N: usize> = [[<S as Simd>::f64s; 2]; N];

impl<S: Simd, const N: usize> Lanes<S, N> {
    #[inline(always)]
    pub(crate) fn splat_wide(self, x: f64) -> Wide<S, N> {
        [[self.simd.splat_f64s(x); 2]; N]
    }

    #[inline(always)]
    pub(crate) fn add_wide(self, mut a: Wide<S, N>, b: Wide<S, N>) -> Wide<S, N> {
        for i in 0..N {
            for half in 0..2 {
                a[i][half] = self.simd.add_f64s(a[i][half], b[i][half]);
            }
        }
        a
    }

    #[inline(always)]
    pub(crate) fn mul_wide(self, mut a: Wide<S, N>, b: Wide<S, N>) -> Wide<S, N> {
        for i in 0..N {
            for half in 0..2 {
                a[i][half] = self.simd.mul_f64s(a[i][half], b[i][half]);
            }
        }
        a
    }

    #[inline(always)]
    pub(crate) fn to_wide(self, x: Sixteen<S, N>) -> Wide<S, N> {
        let mut out = self.splat_wide(0.0);
        for i in 0..N {
            out[i] = widen_vector(self.simd, x[i]);
        }
        out
    }

    #[inline(always)]
    pub(crate) fn wide_array(self, x: Wide<S, N>) -> [f64; LANES] {
        let mut out = [0.0; LANES];
        for (out, x) in out.chunks_exact_mut(S::F32_LANES).zip(&x) {
            let x: &[f64] = cast_slice(x);
            out.copy_from_slice(&x[..S::F32_LANES]);
        }
        out
    }

    /// Returns `Σ xᵢ` in f64, in an unspecified order.
    #[inline(always)]
    pub(crate) fn wide_sum(self, x: &[f32]) -> f64 {
        let mut sums = [self.splat_wide(0.0); 2];
        let (body, tail) = x.as_chunks::<LANES>();
        let (pairs, last) = body.as_chunks::<2>();
        for pair in pairs {
            for i in 0..2 {
                sums[i] = self.add_wide(sums[i], self.to_wide(self.load(&pair[i])));
            }
        }
        for x in last {
            sums[0] = self.add_wide(sums[0], self.to_wide(self.load(x)));
        }
        let [a, b] = sums;
        let ordered = self.wide_array(self.add_wide(a, b)).iter().sum::<f64>();
        ordered + tail.iter().map(|&x| f64::from(x)).sum::<f64>()
    }
}

/// Converts the elements of a vector to f64. The vector types have no common instruction for it.
#[inline(always)]
fn widen_vector<S: Simd>(simd: S, x: S::f32s) -> [S::f64s; 2] {
    let _any: &dyn Any = &simd;
    #[cfg(target_arch = "x86_64")]
    {
        use pulp::{bytemuck::cast, f32x4, f32x8, x86};
        if let Some(simd) = _any.downcast_ref::<x86::V4>() {
            let [low, high]: [f32x8; 2] = cast(x);
            return [
                cast(simd.convert_f32x8_to_f64x8(low)),
                cast(simd.convert_f32x8_to_f64x8(high)),
            ];
        }
        if let Some(simd) = _any.downcast_ref::<x86::V3>() {
            let [low, high]: [f32x4; 2] = cast(x);
            return [
                cast(simd.convert_f32x4_to_f64x4(low)),
                cast(simd.convert_f32x4_to_f64x4(high)),
            ];
        }
    }
    let mut out = [simd.splat_f64s(0.0); 2];
    let elements = cast_slice_mut::<S::f64s, f64>(&mut out);
    for (out, &x) in elements.iter_mut().zip(cast_slice::<S::f32s, f32>(&[x])) {
        *out = f64::from(x);
    }
    out
}
