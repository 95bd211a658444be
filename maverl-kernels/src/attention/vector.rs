//! The inner loops of attention. They take some rows at a time, so that what is read of keys and values serves several
//! queries; what is taken together never touches the order of a sum.

use pulp::{Scalar, Simd};

use super::rows::Rows;
use crate::lanes::{LANES, Lanes, Sixteen};

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

/// Rows of `dim` elements, from one to the next `pitch`.
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

/// Overwrites columns `at..at + 16` of the rows from `first` on of `out`, of `pitch`, by the products of as many vectors
/// with the sixteen keys of a group, `keys [dim, 16]`: each in lane order, the bits of [`Lanes::dot`].
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
    // As many rows at once as there are registers for the parts of their sums.
    let most = match N {
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

/// [`products`] of `M` rows.
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
    // The usual sizes of a head, as constants for the compiler to unroll.
    let products = match x.dim {
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

/// The first `D` elements of each.
#[inline(always)]
fn cut<const M: usize, const D: usize>(mut q: [&[f32]; M]) -> [&[f32]; M] {
    for q in &mut q {
        *q = &q[..D];
    }
    q
}

/// Sums of `M` rows for sixteen keys.
type Sums<S, const N: usize, const M: usize> = [Sixteen<S, N>; M];

/// A lane after the other in the order in which [`Lanes::sum`] adds them, so that few registers hold the sums.
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

/// The sums of lanes `i`, `i + 4`, `i + 8` and `i + 12`.
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

/// The sums of a lane.
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

/// Replaces `scores [keys]` by `exp(s − max)` and returns one over their sum. `scores` is as long as [`padded`] says; what
/// follows the keys becomes zero.
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

/// Rows of weights, and the rows that are added with them.
#[derive(Clone, Copy)]
pub(super) struct Weighted<'a> {
    /// `[rows, pitch]`.
    pub(super) weights: &'a [f32],
    pub(super) pitch: usize,
    /// How many weights each row has.
    pub(super) counts: &'a [usize],
    /// A factor of each row's sum.
    pub(super) scales: &'a [f32],
    pub(super) x: Rows<'a>,
    /// Elements of a row of `x`, and those of them that are added: `at..at + dim`.
    pub(super) width: usize,
    pub(super) at: usize,
    pub(super) dim: usize,
}

impl Weighted<'_> {
    /// Overwrites the first `dim` elements of each row of `out`, of `pitch`, by `scales[m] Σⱼ weights[m][j] x[j]`: four sums
    /// each, of every fourth `j`.
    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, out: &mut [f32], pitch: usize) {
        let (dim, lanes) = (self.dim, S::F32_LANES);
        let mut col = 0;
        // As many columns at once as there are registers for their sums.
        let most = if has_many_registers::<S>() || self.counts.len() < 4 { 4 } else { 2 };
        while most >= 4 && col + 4 * lanes <= dim {
            self.columns::<S, 4>(simd, col, out, pitch);
            col += 4 * lanes;
        }
        while col + 2 * lanes <= dim {
            self.columns::<S, 2>(simd, col, out, pitch);
            col += 2 * lanes;
        }
        while col + lanes <= dim {
            self.columns::<S, 1>(simd, col, out, pitch);
            col += lanes;
        }
        for col in col..dim {
            self.columns::<Scalar, 1>(Scalar::new(), col, out, pitch);
        }
    }

    /// `V` vectors of columns from `col` on, of all rows: what is read of `x` stays in the first cache.
    #[inline(always)]
    fn columns<S: Simd, const V: usize>(&self, simd: S, col: usize, out: &mut [f32], pitch: usize) {
        let rows = self.counts.len();
        let mut row = 0;
        while (V < 4 || has_many_registers::<S>()) && row + 4 <= rows {
            self.tile::<S, V, 4>(simd, col, row, &mut out[row * pitch..], pitch);
            row += 4;
        }
        while row + 2 <= rows {
            self.tile::<S, V, 2>(simd, col, row, &mut out[row * pitch..], pitch);
            row += 2;
        }
        while row < rows {
            self.tile::<S, V, 1>(simd, col, row, &mut out[row * pitch..], pitch);
            row += 1;
        }
    }

    /// `M` rows from `row` on. At least eight sums are taken at once, so that none waits for itself.
    #[inline(always)]
    fn tile<S: Simd, const V: usize, const M: usize>(
        &self,
        simd: S,
        col: usize,
        row: usize,
        out: &mut [f32],
        pitch: usize,
    ) {
        let registers = if has_many_registers::<S>() { 16 } else { 8 };
        let sums = match registers / (V * M) {
            0 | 1 => self.all_chains::<S, V, M, 1>(simd, col, row),
            2 | 3 => self.all_chains::<S, V, M, 2>(simd, col, row),
            _ => self.all_chains::<S, V, M, 4>(simd, col, row),
        };
        for m in 0..M {
            let scale = simd.splat_f32s(self.scales[row + m]);
            let out = &mut out[m * pitch + col..][..V * S::F32_LANES];
            let out = S::as_mut_simd_f32s(out).0;
            for v in 0..V {
                let low = simd.add_f32s(sums[0][m][v], sums[1][m][v]);
                let high = simd.add_f32s(sums[2][m][v], sums[3][m][v]);
                out[v] = simd.mul_f32s(simd.add_f32s(low, high), scale);
            }
        }
    }

    /// The four sums, `C` of them at a time.
    #[inline(always)]
    fn all_chains<S: Simd, const V: usize, const M: usize, const C: usize>(
        &self,
        simd: S,
        col: usize,
        row: usize,
    ) -> [[[S::f32s; V]; M]; 4] {
        let mut sums = [[[simd.splat_f32s(0.0); V]; M]; 4];
        for (pass, sums) in sums.as_chunks_mut::<C>().0.iter_mut().enumerate() {
            *sums = self.chains(simd, col, row, pass * C);
        }
        sums
    }

    /// The sums of every fourth row of `x` from `first` on, and of the `C - 1` rows after each.
    #[inline(always)]
    fn chains<S: Simd, const V: usize, const M: usize, const C: usize>(
        &self,
        simd: S,
        col: usize,
        row: usize,
        first: usize,
    ) -> [[[S::f32s; V]; M]; C] {
        let Self { x, width, .. } = *self;
        let columns = self.at + col..self.at + col + V * S::F32_LANES;
        let mut weights = [<&[f32]>::default(); M];
        let mut common = usize::MAX;
        for (m, weights) in weights.iter_mut().enumerate() {
            let count = self.counts[row + m];
            *weights = &self.weights[(row + m) * self.pitch..][..count];
            common = common.min(count / 4 * 4);
        }
        let mut sums = [[[simd.splat_f32s(0.0); V]; M]; C];
        let mut done = 0;
        for x in x.runs(common, width) {
            let fours = x.len() / (4 * width);
            let mut here = [<&[[f32; 4]]>::default(); M];
            for m in 0..M {
                here[m] = &weights[m][done..].as_chunks().0[..fours];
            }
            for (i, x) in x.chunks_exact(4 * width).enumerate() {
                for c in 0..C {
                    let x = S::as_simd_f32s(&x[(first + c) * width..][columns.clone()]).0;
                    for m in 0..M {
                        let weight = simd.splat_f32s(here[m][i][first + c]);
                        for v in 0..V {
                            sums[c][m][v] = simd.mul_add_f32s(weight, x[v], sums[c][m][v]);
                        }
                    }
                }
            }
            done += 4 * fours;
        }
        for m in 0..M {
            for c in 0..C {
                let mut j = common + first + c;
                while j < weights[m].len() {
                    let x = S::as_simd_f32s(&x.row(j, width)[columns.clone()]).0;
                    let weight = simd.splat_f32s(weights[m][j]);
                    for v in 0..V {
                        sums[c][m][v] = simd.mul_add_f32s(weight, x[v], sums[c][m][v]);
                    }
                    j += 4;
                }
            }
        }
        sums
    }
}

/// If sixteen sums leave registers for what is added to them.
const fn has_many_registers<S: Simd>() -> bool {
    S::REGISTER_COUNT >= 32
}

/// Adds `Σᵢ weights[i][j] x[i]` to the rows `j` of `acc`, `keys` of them, both of `width` elements (whole groups of lanes);
/// `weights` has rows of `pitch`. Queries are added in ascending order.
#[inline(always)]
pub(super) fn accumulate<S: Simd>(
    simd: S,
    (weights, pitch): (&[f32], usize),
    keys: usize,
    (x, width): (&[f32], usize),
    acc: &mut [f32],
) {
    let lanes = S::F32_LANES;
    let acc = &mut acc[..keys * width];
    let mut col = 0;
    while has_many_registers::<S>() && col + 4 * lanes <= width {
        accumulate_columns::<S, 4>(simd, (weights, pitch), (x, width), col, acc);
        col += 4 * lanes;
    }
    while col + 2 * lanes <= width {
        accumulate_columns::<S, 2>(simd, (weights, pitch), (x, width), col, acc);
        col += 2 * lanes;
    }
    while col < width {
        accumulate_columns::<S, 1>(simd, (weights, pitch), (x, width), col, acc);
        col += lanes;
    }
}

/// [`accumulate`] for `V` vectors of columns from `col` on.
#[inline(always)]
fn accumulate_columns<S: Simd, const V: usize>(
    simd: S,
    weights: (&[f32], usize),
    (x, width): (&[f32], usize),
    col: usize,
    acc: &mut [f32],
) {
    let keys = acc.len() / width;
    let mut key = 0;
    while has_many_registers::<S>() && V < 4 && key + 8 <= keys {
        accumulate_tile::<S, V, 8>(simd, weights, (x, width), (key, col), acc);
        key += 8;
    }
    while key + 4 <= keys {
        accumulate_tile::<S, V, 4>(simd, weights, (x, width), (key, col), acc);
        key += 4;
    }
    while key < keys {
        accumulate_tile::<S, V, 1>(simd, weights, (x, width), (key, col), acc);
        key += 1;
    }
}

/// [`accumulate_columns`] for `K` keys from `key` on.
#[inline(always)]
fn accumulate_tile<S: Simd, const V: usize, const K: usize>(
    simd: S,
    (weights, pitch): (&[f32], usize),
    (x, width): (&[f32], usize),
    (key, col): (usize, usize),
    acc: &mut [f32],
) {
    let size = V * S::F32_LANES;
    let mut sums = [[simd.splat_f32s(0.0); V]; K];
    for (k, sums) in sums.iter_mut().enumerate() {
        sums.copy_from_slice(S::as_simd_f32s(&acc[(key + k) * width + col..][..size]).0);
    }
    for (weights, x) in weights.chunks_exact(pitch).zip(x.chunks_exact(width)) {
        let (weights, x) = (&weights[key..key + K], S::as_simd_f32s(&x[col..col + size]).0);
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
