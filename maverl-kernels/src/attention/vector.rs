//! The inner loops of attention, written for any vector width. Lanes never mix, so the width does not touch the bits.

use pulp::{Scalar, Simd};

use super::rows::Rows;
use crate::lanes::{self, LANES};

/// `dim` rounded up to whole groups of lanes; what is added is zero.
pub(super) fn padded(dim: usize) -> usize {
    dim.next_multiple_of(LANES)
}

/// Transposes the first `tokens` rows of one head, columns `at..at + dim` of rows of `width`, into groups of sixteen
/// tokens: `[tokens / 16, dim, 16]`, zeros where there is no token.
#[inline(always)]
pub(super) fn transpose(
    x: &[f32],
    width: usize,
    at: usize,
    dim: usize,
    tokens: usize,
    out: &mut Vec<f32>,
) {
    out.clear();
    out.resize(tokens.div_ceil(LANES) * dim * LANES, 0.0);
    let groups = x[..tokens * width].chunks(LANES * width);
    for (group, x) in out.chunks_exact_mut(dim * LANES).zip(groups) {
        for (lane, x) in x.chunks_exact(width).enumerate() {
            for (column, &x) in group.as_chunks_mut::<LANES>().0.iter_mut().zip(&x[at..at + dim]) {
                column[lane] = x;
            }
        }
    }
}

/// The products of `q [dim]` with the keys of as many groups as `out` holds, `transposed [out / 16, dim, 16]`.
#[inline(always)]
pub(super) fn products<S: Simd>(simd: S, q: &[f32], transposed: &[f32], out: &mut [f32]) {
    let groups = transposed.chunks_exact(q.len() * LANES);
    for (keys, out) in groups.zip(out.as_chunks_mut().0) {
        group_products(simd, q, keys, out);
    }
}

/// The products of `q [dim]` with the sixteen keys of a group, `keys [dim, 16]`, each in lane order: the bits of
/// [`lanes::dot`].
#[inline(always)]
pub(super) fn group_products<S: Simd>(simd: S, q: &[f32], keys: &[f32], out: &mut [f32; LANES]) {
    let (q, q_tail) = q.as_chunks::<LANES>();
    let (keys, keys_tail) = keys.as_chunks::<{ LANES * LANES }>();
    let (out, _) = S::as_mut_simd_f32s(out);
    let vectors = LANES / S::F32_LANES;
    for (part, out) in out.iter_mut().enumerate() {
        let mut sums = [simd.splat_f32s(0.0); LANES];
        for (q, keys) in q.iter().zip(keys) {
            let (keys, _) = S::as_simd_f32s(keys);
            for i in 0..LANES {
                sums[i] =
                    simd.mul_add_f32s(simd.splat_f32s(q[i]), keys[i * vectors + part], sums[i]);
            }
        }
        if !q_tail.is_empty() {
            sums = with_tail(simd, q_tail, keys_tail, part, sums);
        }
        for i in 0..8 {
            sums[i] = simd.add_f32s(sums[i], sums[i + 8]);
        }
        for i in 0..4 {
            sums[i] = simd.add_f32s(sums[i], sums[i + 4]);
        }
        let (even, odd) = (simd.add_f32s(sums[0], sums[2]), simd.add_f32s(sums[1], sums[3]));
        *out = simd.add_f32s(even, odd);
    }
}

/// `sums[i] + q[i] keys[i]` for fewer than sixteen dimensions, of the keys `[q, 16]` those of one vector. The sums are
/// copied, so that they stay in registers where this is not needed.
#[inline(always)]
fn with_tail<S: Simd>(
    simd: S,
    q: &[f32],
    keys: &[f32],
    part: usize,
    mut sums: [S::f32s; LANES],
) -> [S::f32s; LANES] {
    let (keys, _) = S::as_simd_f32s(keys);
    for ((sum, &q), keys) in sums.iter_mut().zip(q).zip(keys.chunks_exact(LANES / S::F32_LANES)) {
        *sum = simd.mul_add_f32s(simd.splat_f32s(q), keys[part], *sum);
    }
    sums
}

/// Replaces `scores [keys]` by `exp(s − max)` and returns one over their sum. `scores` is as long as [`padded`] says; what
/// follows the keys becomes zero.
#[inline(always)]
pub(super) fn softmax(scores: &mut [f32], keys: usize) -> f32 {
    scores[keys..].fill(f32::NEG_INFINITY);
    let max = lanes::max(scores);
    let mut sums = [0.0; LANES];
    for scores in scores.as_chunks_mut::<LANES>().0 {
        for l in 0..LANES {
            scores[l] = lanes::exp(scores[l] - max);
            sums[l] += scores[l];
        }
    }
    1.0 / lanes::sum_lanes(sums)
}

/// `out[dim] = scale Σⱼ weights[j] x[j]` over columns `at..at + dim` of the rows of `width`: four sums, of every fourth `j`.
#[inline(always)]
pub(super) fn weighted<S: Simd>(
    simd: S,
    weights: &[f32],
    x: Rows<'_>,
    width: usize,
    at: usize,
    scale: f32,
    out: &mut [f32],
) {
    let (dim, lanes) = (out.len(), S::F32_LANES);
    let mut col = 0;
    while col + 4 * lanes <= dim {
        let out = &mut out[col..col + 4 * lanes];
        weighted_columns::<S, 4>(simd, weights, x, width, at + col, scale, out);
        col += 4 * lanes;
    }
    while col + 2 * lanes <= dim {
        let out = &mut out[col..col + 2 * lanes];
        weighted_columns::<S, 2>(simd, weights, x, width, at + col, scale, out);
        col += 2 * lanes;
    }
    while col + lanes <= dim {
        let out = &mut out[col..col + lanes];
        weighted_columns::<S, 1>(simd, weights, x, width, at + col, scale, out);
        col += lanes;
    }
    for col in col..dim {
        let out = &mut out[col..col + 1];
        weighted_columns::<Scalar, 1>(Scalar::new(), weights, x, width, at + col, scale, out);
    }
}

#[inline(always)]
fn weighted_columns<S: Simd, const N: usize>(
    simd: S,
    weights: &[f32],
    x: Rows<'_>,
    width: usize,
    at: usize,
    scale: f32,
    out: &mut [f32],
) {
    let mut sums = [[simd.splat_f32s(0.0); N]; 4];
    let size = N * S::F32_LANES;
    let add = |weight: f32, x: &[f32], row: usize, sum: &mut [S::f32s; N]| {
        let (x, _) = S::as_simd_f32s(&x[row * width + at..][..size]);
        let weight = simd.splat_f32s(weight);
        for i in 0..N {
            sum[i] = simd.mul_add_f32s(weight, x[i], sum[i]);
        }
    };
    let mut weights = weights;
    for x in x.runs(weights.len(), width) {
        let (here, rest) = weights.split_at(x.len() / width);
        weights = rest;
        let (body, tail) = here.as_chunks::<4>();
        for (i, weights) in body.iter().enumerate() {
            for r in 0..4 {
                add(weights[r], x, 4 * i + r, &mut sums[r]);
            }
        }
        for (r, &weight) in tail.iter().enumerate() {
            add(weight, x, 4 * body.len() + r, &mut sums[r]);
        }
    }
    let (out, _) = S::as_mut_simd_f32s(out);
    for i in 0..N {
        let low = simd.add_f32s(sums[0][i], sums[1][i]);
        let high = simd.add_f32s(sums[2][i], sums[3][i]);
        out[i] = simd.mul_f32s(simd.add_f32s(low, high), simd.splat_f32s(scale));
    }
}

/// `acc[j] += Σᵢ weights[i][j] x[i]` for `keys` rows `j` of `acc`, both of `width` elements (whole groups of lanes);
/// `weights` has rows of `pitch`. Queries are added in ascending order.
#[inline(always)]
pub(super) fn accumulate<S: Simd>(
    simd: S,
    weights: &[f32],
    pitch: usize,
    keys: usize,
    x: &[f32],
    width: usize,
    acc: &mut [f32],
) {
    let lanes = S::F32_LANES;
    let mut col = 0;
    while col + 4 * lanes <= width {
        accumulate_columns::<S, 4>(simd, weights, pitch, keys, x, width, col, acc);
        col += 4 * lanes;
    }
    while col + 2 * lanes <= width {
        accumulate_columns::<S, 2>(simd, weights, pitch, keys, x, width, col, acc);
        col += 2 * lanes;
    }
    while col < width {
        accumulate_columns::<S, 1>(simd, weights, pitch, keys, x, width, col, acc);
        col += lanes;
    }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "three arrays, their widths, and where")]
fn accumulate_columns<S: Simd, const N: usize>(
    simd: S,
    weights: &[f32],
    pitch: usize,
    keys: usize,
    x: &[f32],
    width: usize,
    col: usize,
    acc: &mut [f32],
) {
    let size = N * S::F32_LANES;
    for (j, acc) in acc.chunks_exact_mut(width).take(keys).enumerate() {
        let (acc, _) = S::as_mut_simd_f32s(&mut acc[col..col + size]);
        let mut sums = [simd.splat_f32s(0.0); N];
        sums.copy_from_slice(acc);
        for (weights, x) in weights.chunks_exact(pitch).zip(x.chunks_exact(width)) {
            let weight = simd.splat_f32s(weights[j]);
            let (x, _) = S::as_simd_f32s(&x[col..col + size]);
            for i in 0..N {
                sums[i] = simd.mul_add_f32s(weight, x[i], sums[i]);
            }
        }
        acc.copy_from_slice(&sums);
    }
}
