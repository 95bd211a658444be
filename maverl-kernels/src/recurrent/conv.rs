//! Depthwise causal convolution over tokens, forward and backward.

use std::ops::Range;

use pulp::Simd;

use super::columns::{cut_columns, for_each_tile};
use super::spans::{Span, token_count};
use crate::lanes::{self, Kernel, LANES, Lanes, Sixteen};

/// Weights of a convolution, as checkpoints have them.
#[derive(Debug, Clone, Copy)]
pub struct ConvWeights<'a> {
    /// Weights `[channels, 1, kernel]`: the last of a channel is that of the token itself.
    pub weight: &'a [f32],
    /// Bias `[channels]`.
    pub bias: Option<&'a [f32]>,
    /// Number of tokens that a result depends on; at least one.
    pub kernel: usize,
}

/// Sixteen numbers.
type Tile = [f32; LANES];

impl ConvWeights<'_> {
    /// Returns the number of channels.
    pub fn channels(&self) -> usize {
        self.weight.len() / self.kernel
    }

    /// Returns the weights of some channels, `[kernel]`, and their bias.
    fn tile(&self, channels: &Range<usize>) -> (Vec<Tile>, Tile) {
        let (mut taps, mut bias) = (vec![[0.0; LANES]; self.kernel], [0.0; LANES]);
        for (lane, channel) in channels.clone().enumerate() {
            for (i, tap) in taps.iter_mut().enumerate() {
                tap[lane] = self.weight[channel * self.kernel + i];
            }
            bias[lane] = self.bias.map_or(0.0, |bias| bias[channel]);
        }
        (taps, bias)
    }

    #[track_caller]
    fn assert_shapes(&self, n: usize, arrays: [(&str, usize); 2]) {
        let channels = self.channels();
        assert!(self.kernel > 0 && channels * self.kernel == self.weight.len(), "conv: weight");
        assert!(self.bias.is_none_or(|bias| bias.len() == channels), "conv: bias");
        for (name, len) in arrays {
            assert_eq!(len, n * channels, "conv: {name} is not [{n}, {channels}]");
        }
    }
}

/// Computes the convolution of packed tokens: `x`, `out` are `[n, channels]`.
///
/// ```text
/// yₜ = b + Σᵢ wᵢ xₜ₋ₖ₊₁₊ᵢ      k the kernel; tokens before the start of a sequence count as 0
/// ```
///
/// # Panics
///
/// If the lengths differ from the shapes.
pub fn causal_conv(x: &[f32], weights: ConvWeights<'_>, spans: &[Span], out: &mut [f32]) {
    weights.assert_shapes(token_count(spans), [("x", x.len()), ("out", out.len())]);
    convolve(x, weights, &sources(spans, weights.kernel), out);
}

/// Computes [`causal_conv`] of the next tokens of a sequence. `past [kernel - 1, channels]` has the tokens before them, the
/// oldest first (zeros before the start), and afterwards those before the next ones.
///
/// # Panics
///
/// If the lengths differ from the shapes.
pub fn causal_conv_onto(x: &[f32], weights: ConvWeights<'_>, past: &mut [f32], out: &mut [f32]) {
    let (kernel, channels) = (weights.kernel, weights.channels());
    let n = out.len() / channels;
    weights.assert_shapes(n, [("x", x.len()), ("out", out.len())]);
    assert_eq!(past.len(), (kernel - 1) * channels, "conv: past is not [{kernel} - 1, {channels}]");
    let all = [&*past, x].concat();
    let sources: Vec<_> = (0..n).flat_map(|t| (t..t + kernel).map(Some)).collect();
    convolve(&all, weights, &sources, out);
    past.copy_from_slice(&all[all.len() - past.len()..]);
}

/// Computes the gradients of [`causal_conv`]. `dx [n, channels]` is overwritten; those of the weights are added.
///
/// ```text
/// dxₜ = Σᵢ wᵢ dyₜ₊ₖ₋₁₋ᵢ,   dwᵢ = Σₜ dyₜ xₜ₋ₖ₊₁₊ᵢ,   db = Σₜ dyₜ
/// ```
///
/// A token that several sequences share gets the sum over all of them.
///
/// # Panics
///
/// If the lengths differ from the shapes.
pub fn causal_conv_bwd(
    x: &[f32],
    weights: ConvWeights<'_>,
    spans: &[Span],
    dy: &[f32],
    dx: &mut [f32],
    [dw, dbias]: [Option<&mut [f32]>; 2],
) {
    weights.assert_shapes(token_count(spans), [("x", x.len()), ("dy", dy.len())]);
    weights.assert_shapes(token_count(spans), [("x", x.len()), ("dx", dx.len())]);
    let (kernel, width) = (weights.kernel, weights.channels());
    let sources = sources(spans, kernel);
    let tiles: Vec<_> = cut_columns(0..width).collect();
    let mut sums = vec![[0.0; LANES]; tiles.len() * (kernel + 1)];
    let extras = sums.chunks_exact_mut(kernel + 1).collect();
    for_each_tile(dx, (width, &tiles), extras, x.len() * kernel, |tile, sums, dx| {
        let columns = tiles[tile].clone();
        let (taps, _) = weights.tile(&columns);
        let (taps, sources) = (taps.as_slice(), sources.as_slice());
        lanes::run_kernel(TileBackward { x, dy, taps, sources, width, columns, dx, sums });
    });
    add_sums(&sums, &tiles, kernel, [dw, dbias]);
}

/// Adds the sums of each tile, `[kernel]` of weights and one of the bias, to the gradients.
fn add_sums(
    sums: &[Tile],
    tiles: &[Range<usize>],
    kernel: usize,
    [mut dw, mut dbias]: [Option<&mut [f32]>; 2],
) {
    for (sums, columns) in sums.chunks_exact(kernel + 1).zip(tiles) {
        for (lane, channel) in columns.clone().enumerate() {
            if let Some(dw) = &mut dw {
                let taps = dw[channel * kernel..][..kernel].iter_mut();
                taps.zip(sums).for_each(|(tap, sums)| *tap += sums[lane]);
            }
            if let Some(dbias) = &mut dbias {
                dbias[channel] += sums[kernel][lane];
            }
        }
    }
}

/// Returns the tokens that each result depends on, `[n, kernel]`, the oldest first.
fn sources(spans: &[Span], kernel: usize) -> Vec<Option<usize>> {
    let mut sources = Vec::with_capacity(token_count(spans) * kernel);
    for span in spans {
        for token in span.tokens.clone() {
            let mut path = vec![None; kernel];
            let (mut at, mut of) = (Some(token), span);
            for source in path.iter_mut().rev() {
                *source = at;
                let Some(token) = at else { break };
                if token > of.tokens.start {
                    at = Some(token - 1);
                } else {
                    let before = of.before.map(|before| &spans[before]);
                    of = before.unwrap_or(of);
                    at = before.map(|before| before.tokens.end - 1);
                }
            }
            sources.extend(path);
        }
    }
    sources
}

fn convolve(x: &[f32], weights: ConvWeights<'_>, sources: &[Option<usize>], out: &mut [f32]) {
    let width = weights.channels();
    let tiles: Vec<_> = cut_columns(0..width).collect();
    let work = out.len() * weights.kernel;
    for_each_tile(out, (width, &tiles), vec![(); tiles.len()], work, |tile, (), out| {
        let columns = tiles[tile].clone();
        let (taps, bias) = weights.tile(&columns);
        lanes::run_kernel(TileForward { x, taps: &taps, bias, sources, width, columns, out });
    });
}

/// Some channels of [`causal_conv`].
struct TileForward<'a> {
    x: &'a [f32],
    taps: &'a [Tile],
    bias: Tile,
    sources: &'a [Option<usize>],
    width: usize,
    columns: Range<usize>,
    out: &'a mut [Tile],
}

impl Kernel for TileForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { x, taps, bias, sources, width, columns, out } = self;
        for (out, sources) in out.iter_mut().zip(sources.chunks_exact(taps.len())) {
            let mut sum = lanes.load(&bias);
            for (tap, source) in taps.iter().zip(sources) {
                let row = load_columns(lanes, x, *source, width, &columns);
                sum = lanes.mul_add(lanes.load(tap), row, sum);
            }
            lanes.store(sum, out);
        }
    }
}

/// Some channels of [`causal_conv_bwd`].
struct TileBackward<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    taps: &'a [Tile],
    sources: &'a [Option<usize>],
    width: usize,
    columns: Range<usize>,
    dx: &'a mut [Tile],
    sums: &'a mut [Tile],
}

impl Kernel for TileBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { x, dy, taps, sources, width, columns, dx, sums } = self;
        let (dw, dbias) = sums.split_at_mut(taps.len());
        for (token, sources) in sources.chunks_exact(taps.len()).enumerate() {
            let dy = load_columns(lanes, dy, Some(token), width, &columns);
            for ((tap, source), dw) in taps.iter().zip(sources).zip(&mut *dw) {
                let Some(row) = *source else { continue };
                let dx = &mut dx[row];
                let sum = lanes.mul_add(lanes.load(tap), dy, lanes.load(dx));
                lanes.store(sum, dx);
                let row = load_columns(lanes, x, Some(row), width, &columns);
                lanes.store(lanes.mul_add(dy, row, lanes.load(dw)), dw);
            }
            lanes.store(lanes.add(lanes.load(&dbias[0]), dy), &mut dbias[0]);
        }
    }
}

/// Loads some columns of a row of `x [n, width]`; zeros without a row.
#[inline(always)]
pub(super) fn load_columns<S: Simd, const N: usize>(
    lanes: Lanes<S, N>,
    x: &[f32],
    row: Option<usize>,
    width: usize,
    columns: &Range<usize>,
) -> Sixteen<S, N> {
    let Some(row) = row else { return lanes.splat(0.0) };
    let x = &x[row * width..][columns.start..columns.end];
    match x.first_chunk() {
        Some(whole) => lanes.load(whole),
        None => lanes.load_first(x, 0.0),
    }
}
