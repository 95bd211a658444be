//! Sixteen lanes: the fixed order of every sum over a vector, on the vectors of every path.
//!
//! Lane `l` of a sum takes the elements `l, l + 16, l + 32, …` in order. The lanes are then added in a tree that halves
//! them. The order depends on the length alone. Sixteen lanes are one vector of AVX-512, two of AVX2, four of NEON, or
//! sixteen numbers, so every path gives the same bits.

mod hyperbolic;
mod wide;

use pulp::{Scalar512b, Simd, WithSimd, cast};

use crate::simd;

/// Number of lanes of every sum.
pub(crate) const LANES: usize = 16;

/// An operation written over [`Lanes`].
pub(crate) trait Kernel {
    type Output;

    /// Runs the operation on the vectors of a path. This function and everything it calls, closures included, must be
    /// `#[inline(always)]`; otherwise they are compiled without the instructions of the path.
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> Self::Output;
}

/// Runs `kernel` on the path in use.
#[inline(always)]
pub(crate) fn run_kernel<K: Kernel>(kernel: K) -> K::Output {
    simd::dispatch(OnLanes(kernel))
}

struct OnLanes<K>(K);

impl<K: Kernel> WithSimd for OnLanes<K> {
    type Output = K::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> K::Output {
        match S::F32_LANES {
            16 => self.0.run_with_lanes(Lanes::<S, 1> { simd }),
            8 => self.0.run_with_lanes(Lanes::<S, 2> { simd }),
            4 => self.0.run_with_lanes(Lanes::<S, 4> { simd }),
            // Sixteen numbers whose instructions are functions: equally correct, and far less code to compile.
            1 => self.0.run_with_lanes(Lanes::<Scalar512b, 1> { simd: Scalar512b }),
            lanes => unreachable!("a path of {lanes} lanes"),
        }
    }
}

/// Sixteen elements in `N` vectors of `S`.
pub(crate) type Sixteen<S, const N: usize> = [<S as Simd>::f32s; N];

/// The instructions of a path, on sixteen elements at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes<S, const N: usize> {
    pub(crate) simd: S,
}

/// Defines methods that apply one instruction to each vector.
macro_rules! each_vector {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),+) = $instruction:ident;)+) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(self, $($arg: Sixteen<S, N>),+) -> Sixteen<S, N> {
            let mut out = self.splat(0.0);
            for i in 0..N {
                out[i] = self.simd.$instruction($($arg[i]),+);
            }
            out
        }
    )+};
}

impl<S: Simd, const N: usize> Lanes<S, N> {
    each_vector! {
        add(a, b) = add_f32s;
        sub(a, b) = sub_f32s;
        mul(a, b) = mul_f32s;
        div(a, b) = div_f32s;
        sqrt(a) = sqrt_f32s;
        /// Returns `a b + c`, rounded once.
        mul_add(a, b, c) = mul_add_f32s;
    }

    /// True if the instructions for maximum and minimum are defined as [`Lanes::larger`] is. Those of x86 are; it has
    /// at least sixteen registers here.
    const ORDERED: bool = cfg!(target_arch = "x86_64") && S::REGISTER_COUNT >= 16;

    /// Runs a part of an operation as a function of its own, which all callers share. A function that holds everything
    /// that it calls takes the compiler far longer than its parts do.
    #[inline(always)]
    pub(crate) fn call_part<K: Kernel>(self, part: K) -> K::Output {
        self.simd.vectorize(OnLanes(part))
    }

    #[inline(always)]
    pub(crate) fn splat(self, x: f32) -> Sixteen<S, N> {
        [self.simd.splat_f32s(x); N]
    }

    #[inline(always)]
    pub(crate) fn load(self, x: &[f32; LANES]) -> Sixteen<S, N> {
        let mut out = self.splat(0.0);
        out.copy_from_slice(S::as_simd_f32s(x).0);
        out
    }

    /// Loads at most sixteen elements and fills the remaining lanes with `rest`.
    #[inline(always)]
    pub(crate) fn load_first(self, x: &[f32], rest: f32) -> Sixteen<S, N> {
        let mut all = [rest; LANES];
        all[..x.len()].copy_from_slice(x);
        self.load(&all)
    }

    #[inline(always)]
    pub(crate) fn store(self, x: Sixteen<S, N>, out: &mut [f32; LANES]) {
        S::as_mut_simd_f32s(out).0.copy_from_slice(&x);
    }

    #[inline(always)]
    pub(crate) fn array(self, x: Sixteen<S, N>) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        self.store(x, &mut out);
        out
    }

    /// Returns `a` where `a > b`, else `b`. If either is NaN, the result is `b`.
    #[inline(always)]
    pub(crate) fn larger(self, a: Sixteen<S, N>, b: Sixteen<S, N>) -> Sixteen<S, N> {
        let mut out = b;
        for i in 0..N {
            out[i] = if Self::ORDERED {
                self.simd.max_f32s(a[i], b[i])
            } else {
                self.select_lanes(self.simd.greater_than_f32s(a[i], b[i]), a[i], b[i])
            };
        }
        out
    }

    /// Returns `a` where `a < b`, else `b`. If either is NaN, the result is `b`.
    #[inline(always)]
    pub(crate) fn smaller(self, a: Sixteen<S, N>, b: Sixteen<S, N>) -> Sixteen<S, N> {
        let mut out = b;
        for i in 0..N {
            out[i] = if Self::ORDERED {
                self.simd.min_f32s(a[i], b[i])
            } else {
                self.select_lanes(self.simd.less_than_f32s(a[i], b[i]), a[i], b[i])
            };
        }
        out
    }

    /// Returns `then` where `x` is less than a bound, else `other`.
    #[inline(always)]
    pub(crate) fn where_less(
        self,
        x: Sixteen<S, N>,
        bound: f32,
        then: Sixteen<S, N>,
        other: Sixteen<S, N>,
    ) -> Sixteen<S, N> {
        let mut out = other;
        for i in 0..N {
            let less = self.simd.less_than_f32s(x[i], self.simd.splat_f32s(bound));
            out[i] = self.select_lanes(less, then[i], other[i]);
        }
        out
    }

    #[inline(always)]
    fn select_lanes(self, mask: S::m32s, then: S::f32s, other: S::f32s) -> S::f32s {
        cast(self.simd.select_u32s(mask, cast(then), cast(other)))
    }

    #[inline(always)]
    pub(crate) fn neg(self, mut x: Sixteen<S, N>) -> Sixteen<S, N> {
        for x in &mut x {
            *x = cast(self.simd.xor_u32s(cast(*x), self.simd.splat_u32s(1 << 31)));
        }
        x
    }

    /// Adds the lanes in a tree: 16 to 8, 4, 2, 1.
    #[inline(always)]
    pub(crate) fn sum(self, mut x: Sixteen<S, N>) -> f32 {
        let mut vectors = N;
        while vectors > 1 {
            vectors /= 2;
            for i in 0..vectors {
                x[i] = self.simd.add_f32s(x[i], x[i + vectors]);
            }
        }
        match S::F32_LANES {
            // These instructions are the rest of the tree.
            16 | 8 => self.simd.reduce_sum_f32s(x[0]),
            4 => {
                let x = pulp::bytemuck::cast_slice::<S::f32s, f32>(&x[..1]);
                (x[0] + x[2]) + (x[1] + x[3])
            }
            _ => pulp::bytemuck::cast_slice::<S::f32s, f32>(&x[..1])[0],
        }
    }

    /// Returns the largest element; negative infinity if there are none. NaN is skipped. A maximum does not depend on
    /// order, so any order gives the same bits.
    #[inline(always)]
    pub(crate) fn max(self, x: &[f32]) -> f32 {
        let mut lanes = [self.splat(f32::NEG_INFINITY); 2];
        let (body, tail) = x.as_chunks::<LANES>();
        let (pairs, last) = body.as_chunks::<2>();
        for [a, b] in pairs {
            lanes = [self.larger(self.load(a), lanes[0]), self.larger(self.load(b), lanes[1])];
        }
        for x in last {
            lanes[0] = self.larger(self.load(x), lanes[0]);
        }
        if !tail.is_empty() {
            lanes[0] = self.larger(self.load_first(tail, f32::NEG_INFINITY), lanes[0]);
        }
        self.largest_lane(self.larger(lanes[0], lanes[1]))
    }

    /// Returns the largest of sixteen elements, none of them NaN.
    #[inline(always)]
    pub(crate) fn largest_lane(self, mut x: Sixteen<S, N>) -> f32 {
        let mut vectors = N;
        while vectors > 1 {
            vectors /= 2;
            for i in 0..vectors {
                x[i] = self.simd.max_f32s(x[i], x[i + vectors]);
            }
        }
        self.simd.reduce_max_f32s(x[0])
    }

    /// Returns true if an element is NaN.
    #[inline(always)]
    pub(crate) fn has_nan(self, x: &[f32]) -> bool {
        let simd = self.simd;
        // One where NaN was found.
        let mut met = self.splat(0.0);
        let (body, tail) = x.as_chunks();
        for x in body {
            let x = self.load(x);
            for i in 0..N {
                met[i] =
                    self.select_lanes(simd.equal_f32s(x[i], x[i]), met[i], simd.splat_f32s(1.0));
            }
        }
        self.largest_lane(met) > 0.0 || tail.iter().any(|x| x.is_nan())
    }

    /// Returns `Σ aᵢ bᵢ` in lane order.
    #[inline(always)]
    pub(crate) fn dot(self, a: &[f32], b: &[f32]) -> f32 {
        let n = a.len().min(b.len());
        let ((a, a_tail), (b, b_tail)) = (a[..n].as_chunks(), b[..n].as_chunks());
        let mut lanes = self.splat(0.0);
        for (a, b) in a.iter().zip(b) {
            lanes = self.mul_add(self.load(a), self.load(b), lanes);
        }
        if !a_tail.is_empty() {
            // A lane without an element keeps its value: adding a product of zeros would turn -0 into 0.
            let mut all = self.array(lanes);
            for ((lane, a), b) in all.iter_mut().zip(a_tail).zip(b_tail) {
                *lane = a.mul_add(*b, *lane);
            }
            lanes = self.load(&all);
        }
        self.sum(lanes)
    }

    /// Returns `Σ (aᵢ bᵢ) cᵢ` in lane order.
    #[inline(always)]
    pub(crate) fn dot3(self, a: &[f32], b: &[f32], c: &[f32]) -> f32 {
        let n = a.len().min(b.len()).min(c.len());
        let ((a, a_tail), (b, b_tail)) = (a[..n].as_chunks(), b[..n].as_chunks());
        let (c, c_tail) = c[..n].as_chunks();
        let mut lanes = self.splat(0.0);
        for ((a, b), c) in a.iter().zip(b).zip(c) {
            lanes = self.mul_add(self.mul(self.load(a), self.load(b)), self.load(c), lanes);
        }
        if !a_tail.is_empty() {
            let mut all = self.array(lanes);
            for (((lane, a), b), c) in all.iter_mut().zip(a_tail).zip(b_tail).zip(c_tail) {
                *lane = (a * b).mul_add(*c, *lane);
            }
            lanes = self.load(&all);
        }
        self.sum(lanes)
    }

    /// Returns `eˣ` within 2 units in the last place.
    ///
    /// Below −87.3 the result is exactly zero, above 88 it is `e⁸⁸`; NaN stays NaN. The polynomial is that of Cephes
    /// `expf`.
    #[inline(always)]
    pub(crate) fn exp(self, x: Sixteen<S, N>) -> Sixteen<S, N> {
        /// Adding this number rounds to an integer, whose bits are then the low bits of the sum.
        const ROUND: f32 = 12_582_912.0;
        const LN2_HIGH: f32 = 0.693_359_4;
        const LN2_LOW: f32 = -2.121_944_4e-4;
        const TERMS: [f32; 5] = [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

        let c = self.smaller(self.splat(88.0), x);
        let shifted = self.mul_add(c, self.splat(std::f32::consts::LOG2_E), self.splat(ROUND));
        let n = self.sub(shifted, self.splat(ROUND));
        let r = self.mul_add(n, self.splat(-LN2_HIGH), c);
        let r = self.mul_add(n, self.splat(-LN2_LOW), r);
        let mut p = self.splat(1.987_569_1e-4);
        for term in TERMS {
            p = self.mul_add(p, r, self.splat(term));
        }
        let y = self.add(self.mul_add(p, self.mul(r, r), r), self.splat(1.0));
        let power = self.power_of_two(shifted);
        self.where_less(x, -87.3, self.splat(0.0), self.mul(y, power))
    }

    /// Returns `2ⁿ` for an integer `n` in the low bits.
    #[inline(always)]
    fn power_of_two(self, shifted: Sixteen<S, N>) -> Sixteen<S, N> {
        let simd = self.simd;
        let mut out = shifted;
        for i in 0..N {
            let bits = simd.wrapping_dyn_shl_u32s(cast(shifted[i]), simd.splat_u32s(23));
            out[i] = cast(simd.add_u32s(bits, simd.splat_u32s(0x3f80_0000)));
        }
        out
    }

    /// Adds `x` to `sum`.
    #[inline(always)]
    pub(crate) fn add_to(self, sum: &mut [f32], x: &[f32]) {
        self.map_lanes(
            [x],
            [sum],
            #[inline(always)]
            |[x], [sum]| [self.add(sum, x)],
        );
    }

    /// Overwrites arrays by the result of `f` on sixteen elements of each at a time. `f` gets the elements of the
    /// `read` arrays and the old elements of the `written` arrays. All arrays have the length of the first written one.
    #[inline(always)]
    pub(crate) fn map_lanes<const R: usize, const W: usize>(
        self,
        read: [&[f32]; R],
        written: [&mut [f32]; W],
        f: impl Fn([Sixteen<S, N>; R], [Sixteen<S, N>; W]) -> [Sixteen<S, N>; W],
    ) {
        let n = written[0].len();
        let whole = n / LANES;
        let mut ends = [<&[f32]>::default(); R];
        let mut bodies = [<&[[f32; LANES]]>::default(); R];
        for (r, x) in read.into_iter().enumerate() {
            (bodies[r], ends[r]) = x[..n].as_chunks();
            bodies[r] = &bodies[r][..whole];
        }
        let mut out_ends = [(); W].map(|()| <&mut [f32]>::default());
        let mut outs = [(); W].map(|()| <&mut [[f32; LANES]]>::default());
        for (w, x) in written.into_iter().enumerate() {
            let (body, end) = x[..n].as_chunks_mut();
            (outs[w], out_ends[w]) = (&mut body[..whole], end);
        }
        let (mut x, mut y) = ([self.splat(0.0); R], [self.splat(0.0); W]);
        for i in 0..whole {
            for r in 0..R {
                x[r] = self.load(&bodies[r][i]);
            }
            for w in 0..W {
                y[w] = self.load(&outs[w][i]);
            }
            y = f(x, y);
            for w in 0..W {
                self.store(y[w], &mut outs[w][i]);
            }
        }
        if n > whole * LANES {
            for r in 0..R {
                x[r] = self.load_first(ends[r], 0.0);
            }
            for w in 0..W {
                y[w] = self.load_first(out_ends[w], 0.0);
            }
            y = f(x, y);
            for w in 0..W {
                let len = out_ends[w].len();
                out_ends[w].copy_from_slice(&self.array(y[w])[..len]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
