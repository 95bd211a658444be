//! Hyperbolic tangent, and bounds of numbers by it.

use pulp::Simd;

use super::{Lanes, Sixteen};

impl<S: Simd, const N: usize> Lanes<S, N> {
    /// Returns `tanh x` within 2 units in the last place; NaN stays NaN. The polynomial near zero is that of Cephes `tanhf`.
    ///
    /// ```text
    /// |x| < 0.625:  x + x³ P(x²),   otherwise  sign(x) (1 − 2 / (e^(2|x|) + 1))
    /// ```
    #[inline(always)]
    pub(crate) fn tanh(self, x: Sixteen<S, N>) -> Sixteen<S, N> {
        const TERMS: [f32; 4] = [2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1];

        let square = self.mul(x, x);
        let mut p = self.splat(-5.704_988_7e-3);
        for term in TERMS {
            p = self.mul_add(p, square, self.splat(term));
        }
        let near = self.mul_add(self.mul(p, square), x, x);
        let size = self.larger(x, self.neg(x));
        let (one, two) = (self.splat(1.0), self.splat(2.0));
        let far = self.sub(one, self.div(two, self.add(self.exp(self.mul(two, size)), one)));
        let far = self.where_less(x, 0.0, self.neg(far), far);
        self.where_less(size, 0.625, near, far)
    }

    /// Replaces each number `x` by `cap tanh(x / cap)`.
    #[inline(always)]
    pub(crate) fn cap_numbers(self, numbers: &mut [f32], cap: f32) {
        let (inverse, cap) = (self.splat(1.0 / cap), self.splat(cap));
        self.map_lanes(
            [],
            [numbers],
            #[inline(always)]
            |[], [x]| [self.mul(cap, self.tanh(self.mul(x, inverse)))],
        );
    }

    /// Returns the derivative `1 − (y / cap)²` of `y = cap tanh(x / cap)` by `x`.
    #[inline(always)]
    pub(crate) fn cap_slope(self, y: Sixteen<S, N>, cap: f32) -> Sixteen<S, N> {
        let t = self.mul(y, self.splat(1.0 / cap));
        self.sub(self.splat(1.0), self.mul(t, t))
    }
}
