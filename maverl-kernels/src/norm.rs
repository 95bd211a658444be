//! Root-mean-square normalization, forward and backward.

use pulp::Simd;
use rayon::prelude::*;

use crate::lanes::{self, Kernel, Lanes};
use crate::par;

/// Rows whose weight gradients are summed before they are added to the others.
const ROWS: usize = 256;

/// Normalizes each row by its root mean square: `x [n, d]`, `w [d]`, `out [n, d]`.
///
/// ```text
/// yᵢ = wᵢ xᵢ / √(mean(x²) + ε)
/// ```
///
/// # Panics
///
/// If `x` is not whole rows of `w.len()`, or `out` has another length.
pub fn rms_norm(x: &[f32], w: &[f32], eps: f32, out: &mut [f32]) {
    check_shapes("rms_norm", x, w, [("out", out.len())]);
    let d = w.len();
    par::for_each_part(out, d, |start, out| {
        lanes::run_kernel(NormForward { x: &x[start..start + out.len()], w, eps, out });
    });
}

/// Computes the gradients of [`rms_norm`]. `dx [n, d]` is overwritten. The gradient of the weight is added to `dw [d]`,
/// which a frozen weight omits.
///
/// ```text
/// r = 1 / √(mean(x²) + ε)
/// dxᵢ = r (wᵢ dyᵢ − xᵢ r² mean(w dy x)),   dwᵢ = Σ_rows dyᵢ xᵢ r
/// ```
///
/// # Panics
///
/// If `x` is not whole rows of `w.len()`, or `dy`, `dx` or `dw` have another length than `x`, `x` and `w`.
pub fn rms_norm_bwd(
    x: &[f32],
    w: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    dw: Option<&mut [f32]>,
) {
    run_backward::<false>("rms_norm_bwd", x, w, eps, dy, dx, dw);
}

/// Computes [`rms_norm_bwd`] in a residual stream. On entry `dx [n, d]` holds the gradient that reached `x` along the
/// other branches; the norm's gradient is added to it, and the weight's to `dw [d]`.
///
/// # Panics
///
/// Under the same conditions as [`rms_norm_bwd`].
pub fn rms_norm_bwd_add(
    x: &[f32],
    w: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    dw: Option<&mut [f32]>,
) {
    run_backward::<true>("rms_norm_bwd_add", x, w, eps, dy, dx, dw);
}

/// Computes both backward passes; `ADD` keeps the old values of `dx`.
fn run_backward<const ADD: bool>(
    name: &str,
    x: &[f32],
    w: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    dw: Option<&mut [f32]>,
) {
    check_shapes(name, x, w, [("dy", dy.len()), ("dx", dx.len())]);
    let d = w.len();
    let block = ROWS * d;
    let mut partials = vec![0.0; x.len().div_ceil(block) * d];
    let given = x.chunks(block).zip(dy.chunks(block));
    let to = dx.chunks_mut(block).zip(partials.chunks_mut(d));
    let parts =
        given.zip(to).map(|((x, dy), (dx, dw))| NormBackward::<ADD> { x, w, eps, dy, dx, dw });
    let parts: Vec<_> = parts.collect();
    if par::worth_it(x.len()) {
        parts.into_par_iter().for_each(lanes::run_kernel);
    } else {
        parts.into_iter().for_each(lanes::run_kernel);
    }
    let Some(dw) = dw else { return };
    assert_eq!(dw.len(), d, "{name}: dw has {} elements, w has {d}", dw.len());
    for partial in partials.chunks_exact(d) {
        dw.iter_mut().zip(partial).for_each(|(dw, p)| *dw += p);
    }
}

fn check_shapes<const N: usize>(name: &str, x: &[f32], w: &[f32], others: [(&str, usize); N]) {
    assert!(
        !w.is_empty() && x.len().is_multiple_of(w.len()),
        "{name}: x has {} elements, not rows of {}",
        x.len(),
        w.len()
    );
    for (other, len) in others {
        assert_eq!(len, x.len(), "{name}: {other} has {len} elements, x has {}", x.len());
    }
}

/// Some rows of [`rms_norm`].
struct NormForward<'a> {
    x: &'a [f32],
    w: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for NormForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { x, w, eps, out } = self;
        for (x, out) in x.chunks_exact(w.len()).zip(out.chunks_exact_mut(w.len())) {
            let inverse = lanes.splat(inverse_rms(lanes, x, eps));
            lanes.map_lanes(
                [x, w],
                [out],
                #[inline(always)]
                |[x, w], _| [lanes.mul(w, lanes.mul(x, inverse))],
            );
        }
    }
}

/// Some rows of [`run_backward`]: overwrites or adds to `dx`, and adds to `dw`.
struct NormBackward<'a, const ADD: bool> {
    x: &'a [f32],
    w: &'a [f32],
    eps: f32,
    dy: &'a [f32],
    dx: &'a mut [f32],
    dw: &'a mut [f32],
}

impl<const ADD: bool> Kernel for NormBackward<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { x, w, eps, dy, dx, dw } = self;
        let d = w.len();
        let rows = x.chunks_exact(d).zip(dy.chunks_exact(d)).zip(dx.chunks_exact_mut(d));
        for ((x, dy), dx) in rows {
            let inverse = inverse_rms(lanes, x, eps);
            let mean = lanes.dot3(dy, w, x) / d as f32;
            let pull = lanes.splat(inverse * inverse * mean);
            let inverse = lanes.splat(inverse);
            lanes.map_lanes(
                [x, w, dy],
                [dx, dw],
                #[inline(always)]
                |[x, w, dy], [dx, dw]| {
                    let dw = lanes.add(dw, lanes.mul(dy, lanes.mul(x, inverse)));
                    let pulled = lanes.sub(lanes.mul(dy, w), lanes.mul(x, pull));
                    let share = lanes.mul(inverse, pulled);
                    [if ADD { lanes.add(dx, share) } else { share }, dw]
                },
            );
        }
    }
}

#[inline(always)]
fn inverse_rms<S: Simd, const N: usize>(lanes: Lanes<S, N>, x: &[f32], eps: f32) -> f32 {
    1.0 / (lanes.dot(x, x) / x.len() as f32 + eps).sqrt()
}

#[cfg(test)]
mod tests;
