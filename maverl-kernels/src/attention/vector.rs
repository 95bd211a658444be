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

/// The products of `M` vectors `q [dim]` with the keys of as many groups as each of `out` holds,
/// `transposed [groups, dim, 16]`.
#[inline(always)]
pub(super) fn products<S: Simd, const M: usize>(
    simd: S,
    q: [&[f32]; M],
    transposed: &[f32],
    out: &mut [&mut [f32]; M],
) {
    for (i, keys) in transposed.chunks_exact(q[0].len() * LANES).enumerate() {
        if i * LANES >= out[0].len() {
            break;
        }
        let products = group_products(simd, q, keys);
        for m in 0..M {
            out[m].as_chunks_mut().0[i] = products[m];
        }
    }
}

/// The products of `M` vectors `q [dim]` with the sixteen keys of a group, `keys [dim, 16]`, each in lane order: the bits
/// of [`lanes::dot`].
#[inline(always)]
pub(super) fn group_products<S: Simd, const M: usize>(
    simd: S,
    q: [&[f32]; M],
    keys: &[f32],
) -> [[f32; LANES]; M] {
    // The usual sizes of a head, as constants for the compiler to unroll.
    match q[0].len() {
        32 => tree(simd, cut::<M, 32>(q), keys),
        64 => tree(simd, cut::<M, 64>(q), keys),
        128 => tree(simd, cut::<M, 128>(q), keys),
        _ => tree(simd, q, keys),
    }
}

/// The first `N` elements of each.
#[inline(always)]
fn cut<const M: usize, const N: usize>(mut q: [&[f32]; M]) -> [&[f32]; M] {
    for q in &mut q {
        *q = &q[..N];
    }
    q
}

/// [`group_products`], a lane after the other in the order in which [`lanes::sum_lanes`] adds them, so that a few
/// registers hold the sums.
#[inline(always)]
fn tree<S: Simd, const M: usize>(simd: S, q: [&[f32]; M], keys: &[f32]) -> [[f32; LANES]; M] {
    let mut out = [[0.0; LANES]; M];
    let vectors = LANES / S::F32_LANES;
    let (keys, _) = S::as_simd_f32s(&keys[..q[0].len() * LANES]);
    for part in 0..vectors {
        let mut fours = [[simd.splat_f32s(0.0); M]; 4];
        for (i, four) in fours.iter_mut().enumerate() {
            let low = pair(simd, q, keys, vectors, part, i);
            *four = add(simd, low, pair(simd, q, keys, vectors, part, i + 4));
        }
        let (even, odd) = (add(simd, fours[0], fours[2]), add(simd, fours[1], fours[3]));
        let sums = add(simd, even, odd);
        for m in 0..M {
            S::as_mut_simd_f32s(&mut out[m]).0[part] = sums[m];
        }
    }
    out
}

/// The sums of lanes `i` and `i + 8`.
#[inline(always)]
fn pair<S: Simd, const M: usize>(
    simd: S,
    q: [&[f32]; M],
    keys: &[S::f32s],
    vectors: usize,
    part: usize,
    i: usize,
) -> [S::f32s; M] {
    let mut sums = [[simd.splat_f32s(0.0); M]; 2];
    for (sums, lane) in sums.iter_mut().zip([i, i + 8]) {
        let mut d = lane;
        while d < q[0].len() {
            for m in 0..M {
                let q = simd.splat_f32s(q[m][d]);
                sums[m] = simd.mul_add_f32s(q, keys[d * vectors + part], sums[m]);
            }
            d += LANES;
        }
    }
    add(simd, sums[0], sums[1])
}

#[inline(always)]
fn add<S: Simd, const M: usize>(simd: S, mut a: [S::f32s; M], b: [S::f32s; M]) -> [S::f32s; M] {
    for m in 0..M {
        a[m] = simd.add_f32s(a[m], b[m]);
    }
    a
}

/// `M` parts of `size`.
#[inline(always)]
pub(super) fn split<const M: usize>(mut x: &mut [f32], size: usize) -> [&mut [f32]; M] {
    let mut parts = [(); M].map(|()| <&mut [f32]>::default());
    for part in &mut parts {
        (*part, x) = std::mem::take(&mut x).split_at_mut(size);
    }
    parts
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

/// `out[m][dim] = scales[m] Σⱼ weights[m][j] x[j]` for `M` rows of weights over columns `at..at + dim` of the rows of `width`:
/// four sums each, of every fourth `j`.
#[inline(always)]
pub(super) fn weighted<S: Simd, const M: usize>(
    simd: S,
    weights: [&[f32]; M],
    x: Rows<'_>,
    width: usize,
    at: usize,
    scales: [f32; M],
    out: &mut [&mut [f32]; M],
) {
    let (dim, lanes) = (out[0].len(), S::F32_LANES);
    let mut col = 0;
    // As many columns at once as there are registers for their sums.
    while M == 1 && col + 4 * lanes <= dim {
        weighted_columns::<S, M, 4>(simd, weights, x, width, at, col, scales, out);
        col += 4 * lanes;
    }
    while (M == 1 || lanes == LANES) && col + 2 * lanes <= dim {
        weighted_columns::<S, M, 2>(simd, weights, x, width, at, col, scales, out);
        col += 2 * lanes;
    }
    while col + lanes <= dim {
        weighted_columns::<S, M, 1>(simd, weights, x, width, at, col, scales, out);
        col += lanes;
    }
    for col in col..dim {
        weighted_columns::<Scalar, M, 1>(Scalar::new(), weights, x, width, at, col, scales, out);
    }
}

/// [`weighted`] for columns from `col` on.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "weights, rows, where in them, and where to")]
fn weighted_columns<S: Simd, const M: usize, const N: usize>(
    simd: S,
    mut weights: [&[f32]; M],
    x: Rows<'_>,
    width: usize,
    at: usize,
    col: usize,
    scales: [f32; M],
    out: &mut [&mut [f32]; M],
) {
    let mut sums = [[[simd.splat_f32s(0.0); N]; M]; 4];
    let (start, size) = (at + col, N * S::F32_LANES);
    for x in x.runs(weights[0].len(), width) {
        let rows = x.len() / width;
        let whole = rows / 4 * 4;
        for i in (0..whole).step_by(4) {
            for r in 0..4 {
                let x = &x[(i + r) * width + start..][..size];
                sums[r] = plus::<S, M, N>(simd, weights, i + r, x, sums[r]);
            }
        }
        for r in 0..rows - whole {
            let x = &x[(whole + r) * width + start..][..size];
            sums[r] = plus::<S, M, N>(simd, weights, whole + r, x, sums[r]);
        }
        for weights in &mut weights {
            *weights = &weights[rows..];
        }
    }
    for m in 0..M {
        let (out, _) = S::as_mut_simd_f32s(&mut out[m][col..col + size]);
        for n in 0..N {
            let low = simd.add_f32s(sums[0][m][n], sums[1][m][n]);
            let high = simd.add_f32s(sums[2][m][n], sums[3][m][n]);
            out[n] = simd.mul_f32s(simd.add_f32s(low, high), simd.splat_f32s(scales[m]));
        }
    }
}

/// `sums[m] + weights[m][i] x`.
#[inline(always)]
fn plus<S: Simd, const M: usize, const N: usize>(
    simd: S,
    weights: [&[f32]; M],
    i: usize,
    x: &[f32],
    mut sums: [[S::f32s; N]; M],
) -> [[S::f32s; N]; M] {
    let (x, _) = S::as_simd_f32s(x);
    for m in 0..M {
        let weight = simd.splat_f32s(weights[m][i]);
        for n in 0..N {
            sums[m][n] = simd.mul_add_f32s(weight, x[n], sums[m][n]);
        }
    }
    sums
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
