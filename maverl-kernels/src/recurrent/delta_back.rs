//! Backward pass of the gated delta rule.

use std::ops::Range;

use pulp::Simd;
use rayon::prelude::*;

use super::conv::load_columns;
use super::delta::{DeltaHeads, DeltaRows, advance_state};
use super::spans::{SPAN_TOKENS, Span, token_count};
use crate::lanes::{self, Kernel, LANES, Lanes};
use crate::par;

/// Gradients of the inputs of [`delta_rule`](super::delta_rule), which are overwritten.
#[derive(Debug)]
pub struct DeltaGradients<'a> {
    /// Of queries, keys and values, `[n, mixed_width]`.
    pub mixed: &'a mut [f32],
    /// Of the logarithm `g` of the decay, `[n, values]`.
    pub log_decay: &'a mut [f32],
    /// Of beta, `[n, values]`.
    pub beta: &'a mut [f32],
}

/// Computes the gradients of [`delta_rule`](super::delta_rule) from its `states` and `dout`. States within a span are
/// computed again. `G` is the gradient of the state, from the last token down; a span gets the sum of those of the spans after
/// it.
///
/// ```text
/// G ← G + qₜ doₜᵀ,   dqₜ = Sₜ doₜ,   r = vₜ − αₜ Sₜ₋₁ᵀ kₜ,   u = βₜ r
/// du = Gᵀ kₜ,   dvₜ = βₜ du,   dβₜ = du · r,   dkₜ = G u − βₜ αₜ Sₜ₋₁ du
/// G' = G − βₜ kₜ duᵀ,   dgₜ = ⟨αₜ Sₜ₋₁, G'⟩,   G ← αₜ G'
/// ```
///
/// The parts of a key head are added in the order of its value heads.
///
/// # Panics
///
/// If the lengths differ from the shapes.
pub fn delta_rule_bwd(
    rows: DeltaRows<'_>,
    spans: &[Span],
    states: &[f32],
    dout: &[f32],
    to: DeltaGradients<'_>,
) {
    let (heads, n) = (rows.heads, token_count(spans));
    rows.assert_shapes(n, dout.len());
    assert_eq!(states.len(), spans.len() * heads.state_len(), "delta rule: states");
    assert_eq!(to.mixed.len(), rows.mixed.len(), "delta rule: gradient of mixed");
    let gates = [to.log_decay.len(), to.beta.len()];
    assert_eq!(gates, [n * heads.values; 2], "delta rule: gradients of gates");
    if n == 0 {
        return;
    }
    let layout = HeadLayout::of(heads);
    let mut found = vec![0.0; heads.values * n * layout.width];
    let of_heads = states.par_chunks_exact(states.len() / heads.values).enumerate();
    let of_heads = of_heads.zip(found.par_chunks_exact_mut(n * layout.width));
    of_heads.for_each(|((head, states), found)| {
        head_backward(rows, spans, (head, states), dout, found);
    });
    add_heads(&found, heads, to);
}

/// Places of the gradients of a value head in a row.
#[derive(Clone, Copy)]
struct HeadLayout {
    keys: usize,
    values: usize,
    log_decay: usize,
    beta: usize,
    width: usize,
}

impl HeadLayout {
    fn of(DeltaHeads { key_dim, value_dim, .. }: DeltaHeads) -> Self {
        let (keys, values) = (key_dim, 2 * key_dim);
        let log_decay = values + value_dim;
        Self { keys, values, log_decay, beta: log_decay + 1, width: log_decay + 2 }
    }
}

/// Computes the gradients of a value head, `found [n, layout]`, which are zeros before.
fn head_backward(
    rows: DeltaRows<'_>,
    spans: &[Span],
    (head, states): (usize, &[f32]),
    dout: &[f32],
    found: &mut [f32],
) {
    let heads = rows.heads;
    let (dim, tiles) = (heads.key_dim, heads.tiles_of_head());
    let mut trail = vec![[0.0; LANES]; (SPAN_TOKENS + 1) * dim];
    let mut rests = vec![[0.0; LANES]; SPAN_TOKENS];
    for (tile, states) in states.chunks_exact(states.len() / tiles).enumerate() {
        let columns = heads.tiles().swap_remove(head * tiles + tile);
        let states = states.as_chunks().0;
        let mut ends = vec![[0.0; LANES]; spans.len() * dim];
        for (index, span) in spans.iter().enumerate().rev() {
            match span.before {
                None => trail[..dim].fill([0.0; LANES]),
                Some(before) => trail[..dim].copy_from_slice(&states[before * dim..][..dim]),
            }
            let (earlier, own) = ends.split_at_mut(index * dim);
            let gradient = &mut own[..dim];
            let (tokens, columns) = (span.tokens.clone(), columns.clone());
            let (trail, rests) = (trail.as_mut_slice(), rests.as_mut_slice());
            let of = SpanBackward { rows, head, columns, tokens, dout, trail, rests };
            lanes::run_kernel(SpanGradients { of, gradient: &mut *gradient, found: &mut *found });
            if let Some(before) = span.before {
                let sums = earlier[before * dim..][..dim].as_flattened_mut();
                sums.iter_mut().zip(gradient.as_flattened()).for_each(|(sum, part)| *sum += part);
            }
        }
    }
}

/// Adds the gradients of value heads, `[values, n, layout]`, to those of the inputs.
fn add_heads(found: &[f32], heads: DeltaHeads, to: DeltaGradients<'_>) {
    let DeltaGradients { mixed, log_decay, beta } = to;
    let (layout, group) = (HeadLayout::of(heads), heads.values / heads.keys);
    let (dim, keys, width) = (heads.key_dim, heads.keys_width(), heads.mixed_width());
    let n = beta.len() / heads.values;
    let row_of =
        |head: usize, token: usize| &found[(head * n + token) * layout.width..][..layout.width];
    par::for_each_part(mixed, width, |start, mixed| {
        for (token, mixed) in (start / width..).zip(mixed.chunks_exact_mut(width)) {
            mixed.fill(0.0);
            for head in 0..heads.values {
                let (row, at) = (row_of(head, token), head / group * dim);
                add_to(&mut mixed[at..at + dim], &row[..dim]);
                add_to(&mut mixed[keys + at..keys + at + dim], &row[layout.keys..layout.values]);
                let at = 2 * keys + head * heads.value_dim;
                mixed[at..at + heads.value_dim]
                    .copy_from_slice(&row[layout.values..layout.log_decay]);
            }
        }
    });
    let gates = log_decay.chunks_exact_mut(heads.values);
    let gates = gates.zip(beta.chunks_exact_mut(heads.values)).enumerate();
    for (token, (log_decay, beta)) in gates {
        for head in 0..heads.values {
            let row = row_of(head, token);
            (log_decay[head], beta[head]) = (row[layout.log_decay], row[layout.beta]);
        }
    }
}

fn add_to(sums: &mut [f32], parts: &[f32]) {
    sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
}

/// Sixteen columns of a head over a span.
struct SpanBackward<'a> {
    rows: DeltaRows<'a>,
    head: usize,
    columns: Range<usize>,
    tokens: Range<usize>,
    dout: &'a [f32],
    /// States before each token, and after the last one; the first is given.
    trail: &'a mut [[f32; LANES]],
    /// `v − αSᵀk` of each token.
    rests: &'a mut [[f32; LANES]],
}

/// Gradients of [`SpanBackward`].
struct SpanGradients<'a> {
    of: SpanBackward<'a>,
    /// Gradient of the state, after the span and then before it.
    gradient: &'a mut [[f32; LANES]],
    /// Gradients of all tokens.
    found: &'a mut [f32],
}

impl Kernel for SpanGradients<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { mut of, gradient, found } = self;
        of.recompute(lanes);
        let width = HeadLayout::of(of.rows.heads).width;
        for step in (0..of.tokens.len()).rev() {
            let token = of.tokens.start + step;
            of.token_backward(lanes, step, gradient, &mut found[token * width..][..width]);
        }
    }
}

impl SpanBackward<'_> {
    /// Computes the states of the span again.
    #[inline(always)]
    fn recompute<S: Simd, const N: usize>(&mut self, lanes: Lanes<S, N>) {
        let dim = self.rows.heads.key_dim;
        for (step, token) in self.tokens.clone().enumerate() {
            let (before, after) = self.trail[step * dim..(step + 2) * dim].split_at_mut(dim);
            after.copy_from_slice(before);
            let rest = advance_state(lanes, &self.rows, (token, self.head, &self.columns), after);
            lanes.store(rest, &mut self.rests[step]);
        }
    }

    /// Computes the gradients of a token, and adds those of its query and key, which have a part of each tile.
    #[inline(always)]
    fn token_backward<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        step: usize,
        gradient: &mut [[f32; LANES]],
        found: &mut [f32],
    ) {
        let (rows, heads, token) = (&self.rows, self.rows.heads, self.tokens.start + step);
        let (layout, dim) = (HeadLayout::of(heads), heads.key_dim);
        let ((q, k), gate) =
            (rows.query_and_key(token, self.head), token * heads.values + self.head);
        let (decay, beta) = (lanes.splat(rows.decay[gate]), lanes.splat(rows.beta[gate]));
        let dout = load_columns(lanes, self.dout, Some(token), heads.values_width(), &self.columns);
        let (before, after) = self.trail[step * dim..(step + 2) * dim].split_at(dim);
        let rest = lanes.load(&self.rests[step]);

        let (dq, others) = found.split_at_mut(layout.keys);
        let mut du = lanes.splat(0.0);
        for i in 0..dim {
            let g = lanes.mul_add(lanes.splat(q[i]), dout, lanes.load(&gradient[i]));
            lanes.store(g, &mut gradient[i]);
            du = lanes.mul_add(lanes.splat(k[i]), g, du);
            dq[i] += lanes.sum(lanes.mul(lanes.load(&after[i]), dout));
        }
        let (dk, others) = others.split_at_mut(layout.values - layout.keys);
        let (new, weighted) = (lanes.mul(beta, rest), lanes.mul(beta, du));
        let (minus, mut dg) = (lanes.neg(weighted), lanes.splat(0.0));
        for i in 0..dim {
            let (g, decayed) = (lanes.load(&gradient[i]), lanes.mul(decay, lanes.load(&before[i])));
            dk[i] += lanes.sum(lanes.mul_add(g, new, lanes.mul(decayed, minus)));
            let g = lanes.mul_add(lanes.splat(k[i]), minus, g);
            dg = lanes.mul_add(decayed, g, dg);
            lanes.store(lanes.mul(decay, g), &mut gradient[i]);
        }
        let own = self.columns.start - self.head * heads.value_dim;
        others[own..][..self.columns.len()]
            .copy_from_slice(&lanes.array(weighted)[..self.columns.len()]);
        others[layout.log_decay - layout.values] += lanes.sum(dg);
        others[layout.beta - layout.values] += lanes.sum(lanes.mul(du, rest));
    }
}
