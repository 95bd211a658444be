//! Sixteen lanes: the fixed order in which every sum over a vector is taken.
//!
//! Lane `l` of a sum takes the elements `l, l + 16, l + 32, …` one after the other; the lanes are then added in a tree
//! that halves them. The order depends on nothing but the length, and maps onto any vector width up to sixteen.

use crate::simd;

/// Lanes of every sum.
pub(crate) const LANES: usize = 16;

/// Runs `f` compiled for the vector instructions in use. `f` must be `#[inline(always)]`, and so must what it calls, or the
/// instructions stay narrow.
#[inline(always)]
pub(crate) fn dispatch<R>(f: impl FnOnce() -> R) -> R {
    simd::dispatch(f)
}

/// Adds the lanes in a tree: 16 to 8, 4, 2, 1.
#[inline(always)]
pub(crate) fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    for i in 0..8 {
        lanes[i] += lanes[i + 8];
    }
    for i in 0..4 {
        lanes[i] += lanes[i + 4];
    }
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
}

/// `Σ aᵢ bᵢ` in lane order.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a_body, a_tail) = a.as_chunks::<LANES>();
    let (b_body, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a_body.iter().zip(b_body) {
        for l in 0..LANES {
            lanes[l] = a[l].mul_add(b[l], lanes[l]);
        }
    }
    for l in 0..a_tail.len().min(b_tail.len()) {
        lanes[l] = a_tail[l].mul_add(b_tail[l], lanes[l]);
    }
    sum_lanes(lanes)
}

/// `Σ (aᵢ bᵢ) cᵢ` in lane order.
#[inline(always)]
pub(crate) fn dot3(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a_body, a_tail) = a.as_chunks::<LANES>();
    let (b_body, b_tail) = b.as_chunks::<LANES>();
    let (c_body, c_tail) = c.as_chunks::<LANES>();
    for ((a, b), c) in a_body.iter().zip(b_body).zip(c_body) {
        for l in 0..LANES {
            lanes[l] = (a[l] * b[l]).mul_add(c[l], lanes[l]);
        }
    }
    for (l, ((a, b), c)) in a_tail.iter().zip(b_tail).zip(c_tail).enumerate() {
        lanes[l] = (a * b).mul_add(*c, lanes[l]);
    }
    sum_lanes(lanes)
}

/// The largest element; negative infinity for none. A maximum has no order, so its bits are free.
#[inline(always)]
pub(crate) fn max(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (body, tail) = x.as_chunks::<LANES>();
    for x in body {
        for l in 0..LANES {
            lanes[l] = if x[l] > lanes[l] { x[l] } else { lanes[l] };
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(tail) {
        *lane = if x > *lane { x } else { *lane };
    }
    lanes.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

/// `eˣ` within 2 units in the last place, the same bits in every lane of every vector width.
///
/// Below −87.3 it is exactly zero, above 88 it stays at `e⁸⁸`; NaN stays NaN. The polynomial is that of Cephes `expf`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// Adding this rounds to an integer, whose bits are then the low ones of the sum.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;

    let c = if x > 88.0 { 88.0 } else { x };
    let shifted = c.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, c));
    let mut p = 1.987_569_1e-4_f32;
    p = p.mul_add(r, 1.398_199_9e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    let y = p.mul_add(r * r, r) + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    if x < -87.3 { 0.0 } else { y * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_a_few_units_of_f64() {
        for i in -87_299..88_000 {
            let x = i as f32 * 1e-3;
            let want = f64::from(x).exp();
            let got = f64::from(exp(x));
            assert!(((got - want) / want).abs() < 2.5e-7, "exp({x}) = {got}, not {want}");
        }
    }

    #[test]
    fn exp_ends_are_exact() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e30), 0.0);
        assert!(exp(f32::INFINITY).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn vector_and_scalar_exp_have_the_same_bits() {
        let x: Vec<f32> = (0..1003).map(|i| i as f32 * 0.0871 - 87.0).collect();
        let mut y = vec![0.0; x.len()];
        dispatch(
            #[inline(always)]
            || y.iter_mut().zip(&x).for_each(|(y, &x)| *y = exp(x)),
        );
        assert!(x.iter().zip(&y).all(|(&x, y)| exp(x).to_bits() == y.to_bits()));
    }
}
