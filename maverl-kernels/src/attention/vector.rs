//! Products of queries with keys, and their softmax. Several rows are processed at a time, so that keys read once serve
//! several queries. The grouping never changes the order of a sum.

use std::ops::Range;

use pulp::Simd;

use crate::lanes::{Kernel, LANES, Lanes, Sixteen};

/// Returns `dim` rounded up to whole groups of lanes. The padding is zero.
pub(super) fn padded_dim(dim: usize) -> usize {
    dim.next_multiple_of(LANES)
}

/// Elements of the keys of a block: 128 KiB, so that a level-2 cache holds keys, values and their gradients.
const BLOCK_ELEMENTS: usize = 1 << 15;

/// Returns the number of tokens whose keys, and values, are read for several blocks of queries before those of the next tokens
/// are: a multiple of [`LANES`]. No bit depends on it.
pub(super) fn block_tokens(dim: usize) -> usize {
    (BLOCK_ELEMENTS / dim).clamp(64, 2048) / LANES * LANES
}

/// Transposes the first `tokens` rows of one head, columns `at..at + dim` of rows of `width`, into groups of sixteen
/// tokens: `[tokens / 16, dim, 16]`, with zeros past the last token.
#[inline(always)]
pub(super) fn transpose_head(
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
pub(super) struct PitchedRows<'a> {
    pub(super) data: &'a [f32],
    pub(super) pitch: usize,
    pub(super) dim: usize,
}

impl<'a> PitchedRows<'a> {
    #[inline(always)]
    fn row(self, i: usize) -> &'a [f32] {
        &self.data[i * self.pitch..][..self.dim]
    }
}

/// Returns true if the vectors are arrays of numbers. Taking several at once then gains nothing and compiles much code.
pub(super) const fn is_scalar<S: Simd>() -> bool {
    S::REGISTER_COUNT <= 8
}

/// Products of rows with the sixteen keys of a group.
pub(super) struct KeyProducts<'a> {
    pub(super) x: PitchedRows<'a>,
    /// Index of the first row.
    pub(super) first: usize,
    /// Keys `[dim, 16]`.
    pub(super) keys: &'a [f32],
    /// Rows of `pitch`, one for each row of `x`. Columns `at..at + 16` are overwritten.
    pub(super) out: &'a mut [f32],
    pub(super) pitch: usize,
    pub(super) at: usize,
}

impl KeyProducts<'_> {
    /// Computes the products. Each is summed in lane order, with the bits of [`Lanes::dot`].
    #[inline(always)]
    pub(super) fn compute_products<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        // The usual head sizes are constants, so that the compiler unrolls the loops.
        match self.x.dim {
            _ if is_scalar::<S>() => lanes.call_part(OfSize::<0>(self)),
            32 => lanes.call_part(OfSize::<32>(self)),
            64 => lanes.call_part(OfSize::<64>(self)),
            128 => lanes.call_part(OfSize::<128>(self)),
            _ => lanes.call_part(OfSize::<0>(self)),
        }
    }
}

/// Products of rows of `D` elements, or of any number if `D` is zero.
struct OfSize<'a, const D: usize>(KeyProducts<'a>);

impl<const D: usize> Kernel for OfSize<'_, D> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(mut self, lanes: Lanes<S, N>) {
        let rows = self.0.out.len() / self.0.pitch;
        // As many rows at once as registers can hold partial sums for.
        let most = match N {
            _ if is_scalar::<S>() => 1,
            1 => 4,
            2 => 2,
            _ => 1,
        };
        let mut row = self.0.first;
        while most >= 4 && row + 4 <= rows {
            self.multiply_rows::<S, N, 4>(lanes, row);
            row += 4;
        }
        while most >= 2 && row + 2 <= rows {
            self.multiply_rows::<S, N, 2>(lanes, row);
            row += 2;
        }
        while row < rows {
            self.multiply_rows::<S, N, 1>(lanes, row);
            row += 1;
        }
    }
}

impl<const D: usize> OfSize<'_, D> {
    /// Computes the products of `M` rows from `row` on.
    #[inline(always)]
    fn multiply_rows<S: Simd, const N: usize, const M: usize>(
        &mut self,
        lanes: Lanes<S, N>,
        row: usize,
    ) {
        let KeyProducts { x, keys, ref mut out, pitch, at, .. } = self.0;
        let mut q = [<&[f32]>::default(); M];
        for (m, q) in q.iter_mut().enumerate() {
            *q = x.row(row + m);
            if D > 0 {
                *q = &q[..D];
            }
        }
        for (m, products) in sum_tree(lanes, q, keys).into_iter().enumerate() {
            let out = &mut out[(row + m) * pitch + at..][..LANES];
            S::as_mut_simd_f32s(out).0.copy_from_slice(&products);
        }
    }
}

/// Sums of `M` rows for sixteen keys.
type LaneSums<S, const N: usize, const M: usize> = [Sixteen<S, N>; M];

/// Yields lane by lane in the order in which [`Lanes::sum`] adds them, so that few registers hold the sums.
#[inline(always)]
fn sum_tree<S: Simd, const N: usize, const M: usize>(
    lanes: Lanes<S, N>,
    q: [&[f32]; M],
    keys: &[f32],
) -> LaneSums<S, N, M> {
    let keys = S::as_simd_f32s(&keys[..q[0].len() * LANES]).0;
    let mut halves = [[lanes.splat(0.0); M]; 2];
    for (half, i) in halves.iter_mut().zip([0, 1]) {
        // From here on, `i` is lane 0. Whole groups of lanes have one length for both halves, which the compiler knows
        // for usual head sizes: it then knows every index.
        let len = q[0].len() - if q[0].len().is_multiple_of(LANES) { 1 } else { i };
        let (mut q, keys) = (q, &keys[i * N..][..len * N]);
        for q in &mut q {
            *q = &q[i..][..len];
        }
        let low = sum_four_lanes(lanes, q, keys, 0);
        *half = add_sums(lanes, low, sum_four_lanes(lanes, q, keys, 2));
    }
    add_sums(lanes, halves[0], halves[1])
}

/// Returns the sums of lanes `i`, `i + 4`, `i + 8` and `i + 12`.
#[inline(always)]
fn sum_four_lanes<S: Simd, const N: usize, const M: usize>(
    lanes: Lanes<S, N>,
    q: [&[f32]; M],
    keys: &[S::f32s],
    i: usize,
) -> LaneSums<S, N, M> {
    let low = add_sums(lanes, sum_lane(lanes, q, keys, i), sum_lane(lanes, q, keys, i + 8));
    let high = add_sums(lanes, sum_lane(lanes, q, keys, i + 4), sum_lane(lanes, q, keys, i + 12));
    add_sums(lanes, low, high)
}

/// Returns the sums of one lane.
#[inline(always)]
fn sum_lane<S: Simd, const N: usize, const M: usize>(
    lanes: Lanes<S, N>,
    q: [&[f32]; M],
    keys: &[S::f32s],
    lane: usize,
) -> LaneSums<S, N, M> {
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
fn add_sums<S: Simd, const N: usize, const M: usize>(
    lanes: Lanes<S, N>,
    mut a: LaneSums<S, N, M>,
    b: LaneSums<S, N, M>,
) -> LaneSums<S, N, M> {
    for m in 0..M {
        a[m] = lanes.add(a[m], b[m]);
    }
    a
}

/// Scores of the keys that one query attends to.
pub(super) struct Softmax<'a> {
    /// Scores of [`padded_dim`] length. The padding is set to zero.
    pub(super) scores: &'a mut [f32],
    pub(super) keys: usize,
    /// Score of a key without a value, if there is one.
    pub(super) sink: Option<f32>,
}

impl Kernel for Softmax<'_> {
    type Output = [f32; 2];

    /// Replaces the scores by `exp(s − max)`. Returns the inverse of their sum, the sink's included, and the probability of
    /// the sink.
    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> [f32; 2] {
        let Self { scores, keys, sink } = self;
        scores[keys..].fill(f32::NEG_INFINITY);
        let max = with_sink(lanes.max(scores), sink);
        let mut sums = [0.0; LANES];
        ExpPart { scores, max, sums: &mut sums }.run_with_lanes(lanes);
        invert_sum(lanes, lanes.load(&sums), max, sink)
    }
}

/// Returns the larger of a score and that of a sink.
#[inline(always)]
pub(super) fn with_sink(max: f32, sink: Option<f32>) -> f32 {
    sink.map_or(max, |sink| if sink > max { sink } else { max })
}

/// Some of the scores of a row, whole groups of lanes.
pub(super) struct ScorePart<'a> {
    pub(super) scores: &'a mut [f32],
    /// Key of the first score, and the keys that the row attends to.
    pub(super) first: usize,
    pub(super) keys: Range<usize>,
    /// Bound of scores.
    pub(super) softcap: Option<f32>,
}

impl Kernel for ScorePart<'_> {
    type Output = f32;

    /// Bounds the scores, and sets those of other keys to negative infinity. Returns the largest.
    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> f32 {
        let Self { scores, first, keys, softcap } = self;
        if let Some(cap) = softcap {
            lanes.cap_numbers(scores, cap);
        }
        let [start, end] = [keys.start, keys.end].map(|key| key.saturating_sub(first));
        let len = scores.len();
        scores[..start.min(len)].fill(f32::NEG_INFINITY);
        scores[end.min(len)..].fill(f32::NEG_INFINITY);
        lanes.max(scores)
    }
}

/// Some of the scores of a row, whole groups of lanes, whose exponentials are added to sums.
pub(super) struct ExpPart<'a> {
    pub(super) scores: &'a mut [f32],
    pub(super) max: f32,
    pub(super) sums: &'a mut [f32; LANES],
}

impl Kernel for ExpPart<'_> {
    type Output = ();

    /// Replaces the scores by `exp(s − max)`, as [`Softmax`] does.
    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let (max, mut sums) = (lanes.splat(self.max), lanes.load(self.sums));
        for scores in self.scores.as_chunks_mut::<LANES>().0 {
            let e = lanes.exp(lanes.sub(lanes.load(scores), max));
            lanes.store(e, scores);
            sums = lanes.add(sums, e);
        }
        lanes.store(sums, self.sums);
    }
}

/// Returns the inverse of the sum of exponentials, and the probability of a sink.
#[inline(always)]
pub(super) fn invert_sum<S: Simd, const N: usize>(
    lanes: Lanes<S, N>,
    sums: Sixteen<S, N>,
    max: f32,
    sink: Option<f32>,
) -> [f32; 2] {
    let sum = lanes.sum(sums);
    let Some(sink) = sink else { return [1.0 / sum, 0.0] };
    let e = lanes.array(lanes.exp(lanes.sub(lanes.splat(sink), lanes.splat(max))))[0];
    let inverse = 1.0 / (sum + e);
    [inverse, e * inverse]
}

/// Bounds of scores, `cap tanh(s / cap)`.
pub(super) struct SoftCap<'a> {
    /// Scores of whole groups of lanes.
    pub(super) scores: &'a mut [f32],
    pub(super) cap: f32,
    /// Derivatives `1 − (y / cap)²` of the results `y`, if they are wanted.
    pub(super) slopes: Option<&'a mut [f32]>,
}

impl Kernel for SoftCap<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { scores, cap, slopes } = self;
        lanes.cap_numbers(scores, cap);
        let Some(slopes) = slopes else { return };
        lanes.map_lanes(
            [scores],
            [slopes],
            #[inline(always)]
            |[y], _| [lanes.cap_slope(y, cap)],
        );
    }
}
