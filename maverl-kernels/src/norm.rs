//! Root-mean-square normalization, forward and backward.

use rayon::prelude::*;

use crate::{lanes, par};

/// Rows whose weight gradient is summed before it meets the others'.
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
    check("rms_norm", x, w, [("out", out.len())]);
    let d = w.len();
    par::parts(out, d, |start, out| {
        let x = &x[start..start + out.len()];
        lanes::dispatch(
            #[inline(always)]
            || {
                for (x, out) in x.chunks_exact(d).zip(out.chunks_exact_mut(d)) {
                    let inverse = inverse_rms(x, eps);
                    for ((out, &x), &w) in out.iter_mut().zip(x).zip(w) {
                        *out = w * (x * inverse);
                    }
                }
            },
        );
    });
}

/// The gradients of [`rms_norm`]: `dx [n, d]` is overwritten; to `dw [d]`, which a frozen weight does without, it is added.
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
    backward::<false>("rms_norm_bwd", x, w, eps, dy, dx, dw);
}

/// [`rms_norm_bwd`] in a residual stream: `dx [n, d]` has on entry what reached `x` by other ways. The norm's share is added to it, and `dw [d]` is added to.
///
/// # Panics
///
/// As [`rms_norm_bwd`].
pub fn rms_norm_bwd_add(
    x: &[f32],
    w: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    dw: Option<&mut [f32]>,
) {
    backward::<true>("rms_norm_bwd_add", x, w, eps, dy, dx, dw);
}

/// Both backward passes; `ADD` keeps what `dx` had.
fn backward<const ADD: bool>(
    name: &str,
    x: &[f32],
    w: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    dw: Option<&mut [f32]>,
) {
    check(name, x, w, [("dy", dy.len()), ("dx", dx.len())]);
    let d = w.len();
    let block = ROWS * d;
    let mut partials = vec![0.0; x.len().div_ceil(block) * d];
    let one = |start: usize, dx: &mut [f32], dw: &mut [f32]| {
        let at = start * block..start * block + dx.len();
        let (x, dy) = (&x[at.clone()], &dy[at]);
        lanes::dispatch(
            #[inline(always)]
            || {
                let rows = x.chunks_exact(d).zip(dy.chunks_exact(d)).zip(dx.chunks_exact_mut(d));
                for ((x, dy), dx) in rows {
                    row_bwd::<ADD>(x, w, eps, dy, dx, dw);
                }
            },
        );
    };
    if par::worth_it(x.len()) {
        let parts = dx.par_chunks_mut(block).zip(partials.par_chunks_mut(d)).enumerate();
        parts.for_each(|(i, (dx, dw))| one(i, dx, dw));
    } else {
        let parts = dx.chunks_mut(block).zip(partials.chunks_mut(d)).enumerate();
        parts.for_each(|(i, (dx, dw))| one(i, dx, dw));
    }
    let Some(dw) = dw else { return };
    assert_eq!(dw.len(), d, "{name}: dw has {} elements, w has {d}", dw.len());
    for partial in partials.chunks_exact(d) {
        dw.iter_mut().zip(partial).for_each(|(dw, p)| *dw += p);
    }
}

fn check<const N: usize>(name: &str, x: &[f32], w: &[f32], others: [(&str, usize); N]) {
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

#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (lanes::dot(x, x) / x.len() as f32 + eps).sqrt()
}

/// One row's `dx`, and its share added to `dw`.
#[inline(always)]
fn row_bwd<const ADD: bool>(
    x: &[f32],
    w: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    dw: &mut [f32],
) {
    let inverse = inverse_rms(x, eps);
    let mean = lanes::dot3(dy, w, x) / x.len() as f32;
    let pull = inverse * inverse * mean;
    let inputs = x.iter().zip(w).zip(dy);
    for ((dx, dw), ((&x, &w), &dy)) in dx.iter_mut().zip(dw).zip(inputs) {
        *dw += dy * (x * inverse);
        let share = inverse * (dy * w - x * pull);
        *dx = if ADD { *dx + share } else { share };
    }
}

#[cfg(test)]
mod tests;
