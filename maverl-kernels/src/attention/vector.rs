//! Products of queries with keys, and their softmax. Several rows are processed at a time, so that keys read once serve
//! several queries. The grouping never changes the order of a sum.

use pulp::Simd;

use crate::lanes::{LANES, Lanes, Sixteen};

/// Returns `dim` rounded up to whole groups of lanes. The padding is zero.
pub(super) fn padded(dim: usize) -> usize {
    dim.next_multiple_of(LANES)
}

/// Transposes the first `tokens` rows of one head, columns `at..at + dim` of rows of `width`, into groups of sixteen
/// tokens: `[tokens / 16, dim, 16]`, with zeros past the last token.
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

/// Rows of `dim` elements at a distance of `pitch`.
#[derive(Clone, Copy)]
pub(super) struct Vectors<'a> {
    pub(super) data: &'a [f32],
    pub(super) pitch: usize,
    pub(super) dim: usize,
}

impl<'a> Vectors<'a> {
    #[inline(always)]
    fn row(self, i: usize) -> &'a [f32] {
        &self.data[i * self.pitch..][..self.dim]
    }
}

/// Returns true if the vectors are arrays of numbers. Taking several at once then gains nothing and compiles much code.
pub(super) const fn is_scalar<S: Simd>() -> bool {
    S::REGISTER_COUNT <= 8
}

/// Overwrites columns `at..at + 16` of the rows of `out` (of `pitch`, from `first` on) by the products of as many
/// vectors with the sixteen keys of a group, `keys [dim, 16]`. Each product is summed in lane order, with the bits of
/// [`Lanes::dot`].
#[inline(always)]
pub(super) fn products<S: Simd, const N: usize>(
    lanes: Lanes<S, N>,
    x: Vectors<'_>,
    first: usize,
    keys: &[f32],
    out: &mut [f32],
    (pitch, at): (usize, usize),
) {
    let rows = out.len() / pitch;
    // As many rows at once as registers can hold partial sums for.
    let most = match N {
        _ if is_scalar::<S>() => 1,
        1 => 4,
        2 => 2,
        _ => 1,
    };
    let mut row = first;
    while most >= 4 && row + 4 <= rows {
        some_products::<S, N, 4>(lanes, x, row, keys, out, (pitch, at));
        row += 4;
    }
    while most >= 2 && row + 2 <= rows {
        some_products::<S, N, 2>(lanes, x, row, keys, out, (pitch, at));
        row += 2;
    }
    while row < rows {
        some_products::<S, N, 1>(lanes, x, row, keys, out, (pitch, at));
        row += 1;
    }
}

/// Computes [`products`] of `M` rows.
#[inline(always)]
fn some_products<S: Simd, const N: usize, const M: usize>(
    lanes: Lanes<S, N>,
    x: Vectors<'_>,
    row: usize,
    keys: &[f32],
    out: &mut [f32],
    (pitch, at): (usize, usize),
) {
    let mut q = [<&[f32]>::default(); M];
    for (m, q) in q.iter_mut().enumerate() {
        *q = x.row(row + m);
    }
    // The usual head sizes are constants, so that the compiler unrolls the loops.
    let products = match x.dim {
        _ if is_scalar::<S>() => tree(lanes, q, keys),
        32 => tree(lanes, cut::<M, 32>(q), keys),
        64 => tree(lanes, cut::<M, 64>(q), keys),
        128 => tree(lanes, cut::<M, 128>(q), keys),
        _ => tree(lanes, q, keys),
    };
    for (m, products) in products.into_iter().enumerate() {
        let out = &mut out[(row + m) * pitch + at..][..LANES];
        S::as_mut_simd_f32s(out).0.copy_from_slice(&products);
    }
}

/// Shortens each row to its first `D` elements.
#[inline(always)]
fn cut<const M: usize, const D: usize>(mut q: [&[f32]; M]) -> [&[f32]; M] {
    for q in &mut q {
        *q = &q[..D];
    }
    q
}

/// Sums of `M` rows for sixteen keys.
type Sums<S, const N: usize, const M: usize> = [Sixteen<S, N>; M];

/// Yields lane by lane in the order in which [`Lanes::sum`] adds them, so that few registers hold the sums.
#[inline(always)]
fn tree<S: Simd, const N: usize, const M: usize>(
    lanes: Lanes<S, N>,
    q: [&[f32]; M],
    keys: &[f32],
) -> Sums<S, N, M> {
    let keys = S::as_simd_f32s(&keys[..q[0].len() * LANES]).0;
    let mut halves = [[lanes.splat(0.0); M]; 2];
    for (half, i) in halves.iter_mut().zip([0, 1]) {
        let low = four(lanes, q, keys, i);
        *half = add(lanes, low, four(lanes, q, keys, i + 2));
    }
    add(lanes, halves[0], halves[1])
}

/// Returns the sums of lanes `i`, `i + 4`, `i + 8` and `i + 12`.
#[inline(always)]
fn four<S: Simd, const N: usize, const M: usize>(
    lanes: Lanes<S, N>,
    q: [&[f32]; M],
    keys: &[S::f32s],
    i: usize,
) -> Sums<S, N, M> {
    let low = add(lanes, lane(lanes, q, keys, i), lane(lanes, q, keys, i + 8));
    let high = add(lanes, lane(lanes, q, keys, i + 4), lane(lanes, q, keys, i + 12));
    add(lanes, low, high)
}

/// Returns the sums of one lane.
#[inline(always)]
fn lane<S: Simd, const N: usize, const M: usize>(
    lanes: Lanes<S, N>,
    q: [&[f32]; M],
    keys: &[S::f32s],
    lane: usize,
) -> Sums<S, N, M> {
    let mut sums = [lanes.splat(0.0); M];
    let mut d = lane;
    while d < q[0].len() {
        for m in 0..M {
            let q = lanes.simd.splat_f32s(q[m][d]);
            for n in 0..N {
                sums[m][n] = lanes.simd.mul_add_f32s(q, keys[d * N + n], sums[m][n]);
            }
        }
        d += LANES;
    }
    sums
}

#[inline(always)]
fn add<S: Simd, const N: usize, const M: usize>(
    lanes: Lanes<S, N>,
    mut a: Sums<S, N, M>,
    b: Sums<S, N, M>,
) -> Sums<S, N, M> {
    for m in 0..M {
        a[m] = lanes.add(a[m], b[m]);
    }
    a
}

/// Replaces `scores [keys]` by `exp(s − max)` and returns the inverse of their sum. `scores` has the length of
/// [`padded`]; the padding is set to zero.
#[inline(always)]
pub(super) fn softmax<S: Simd, const N: usize>(
    lanes: Lanes<S, N>,
    scores: &mut [f32],
    keys: usize,
) -> f32 {
    scores[keys..].fill(f32::NEG_INFINITY);
    let max = lanes.splat(lanes.max(scores));
    let mut sums = lanes.splat(0.0);
    for scores in scores.as_chunks_mut::<LANES>().0 {
        let e = lanes.exp(lanes.sub(lanes.load(scores), max));
        lanes.store(e, scores);
        sums = lanes.add(sums, e);
    }
    1.0 / lanes.sum(sums)
}
