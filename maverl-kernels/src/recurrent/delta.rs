//! The gated delta rule.

use std::ops::Range;

use pulp::Simd;

use super::columns::{cut_columns, for_each_tile};
use super::conv::load_columns;
use super::spans::{Span, token_count};
use crate::lanes::{self, Kernel, LANES, Lanes, Sixteen};

/// Heads of a layer. Value head `h` reads key head `h / (values / keys)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Number of query and key heads.
    pub keys: usize,
    /// Number of value heads, a multiple of that.
    pub values: usize,
    /// Width of a query or key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
}

impl DeltaHeads {
    /// Returns the width of all queries, or all keys.
    pub fn keys_width(self) -> usize {
        self.keys * self.key_dim
    }

    /// Returns the width of all values.
    pub fn values_width(self) -> usize {
        self.values * self.value_dim
    }

    /// Returns the width of queries, keys and values together.
    pub fn mixed_width(self) -> usize {
        2 * self.keys_width() + self.values_width()
    }

    /// Returns the number of elements of a state: for each sixteen columns of a value head `[key_dim, 16]`.
    pub fn state_len(self) -> usize {
        self.values * self.tiles_of_head() * self.tile_len()
    }

    /// Returns the number of elements of the state of sixteen columns.
    pub(super) fn tile_len(self) -> usize {
        self.key_dim * LANES
    }

    /// Returns the number of tiles of a value head.
    pub(super) fn tiles_of_head(self) -> usize {
        self.value_dim.div_ceil(LANES)
    }

    /// Returns the columns of each tile among those of all values; a tile has columns of one head.
    pub(super) fn tiles(self) -> Vec<Range<usize>> {
        let heads = 0..self.values;
        let columns = |head| head * self.value_dim..(head + 1) * self.value_dim;
        heads.flat_map(|head| cut_columns(columns(head))).collect()
    }

    /// Returns the key head of a value head.
    pub(super) fn key_head(self, head: usize) -> usize {
        head * self.keys / self.values
    }
}

/// Inputs of the rule for `n` tokens.
#[derive(Debug, Clone, Copy)]
pub struct DeltaRows<'a> {
    /// Normalized queries, normalized keys, and values, `[n, mixed_width]`.
    pub mixed: &'a [f32],
    /// Factor of the state, `[n, values]`, in `0..=1`.
    pub decay: &'a [f32],
    /// Weight of the new value, `[n, values]`, in `0..=1`.
    pub beta: &'a [f32],
    /// Heads.
    pub heads: DeltaHeads,
}

impl DeltaRows<'_> {
    /// Returns the query and the key of a token for a value head.
    #[inline(always)]
    pub(super) fn query_and_key(&self, token: usize, head: usize) -> (&[f32], &[f32]) {
        let DeltaHeads { key_dim, .. } = self.heads;
        let at = token * self.heads.mixed_width() + self.heads.key_head(head) * key_dim;
        let keys = at + self.heads.keys_width();
        (&self.mixed[at..at + key_dim], &self.mixed[keys..keys + key_dim])
    }

    /// Loads columns of the values of a token.
    #[inline(always)]
    pub(super) fn values<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        token: usize,
        columns: &Range<usize>,
    ) -> Sixteen<S, N> {
        let start = 2 * self.heads.keys_width();
        let columns = start + columns.start..start + columns.end;
        load_columns(lanes, self.mixed, Some(token), self.heads.mixed_width(), &columns)
    }

    /// Asserts the shapes for `n` tokens.
    #[track_caller]
    pub(super) fn assert_shapes(&self, n: usize, out: usize) {
        let Self { mixed, decay, beta, heads } = self;
        assert!(heads.values.is_multiple_of(heads.keys), "delta rule: {heads:?}");
        assert_eq!(mixed.len(), n * heads.mixed_width(), "delta rule: mixed");
        let gates = [decay.len(), beta.len()];
        assert_eq!(gates, [n * heads.values; 2], "delta rule: decay and beta");
        assert_eq!(out, n * heads.values_width(), "delta rule: out");
    }

    /// Returns the number of elements that are processed.
    fn work(&self) -> usize {
        self.decay.len() * self.heads.value_dim * self.heads.key_dim
    }
}

/// Computes the gated delta rule of packed tokens, from a state of zeros at the start of each sequence. `out` is
/// `[n, values · value_dim]`. `states` is overwritten by the states after each span, for each sixteen columns
/// `[spans, key_dim, 16]`.
///
/// ```text
/// Sₜ = αₜ Sₜ₋₁ + kₜ uₜᵀ,   uₜ = βₜ (vₜ − αₜ Sₜ₋₁ᵀ kₜ),   oₜ = Sₜᵀ qₜ       S [key_dim, value_dim] of each value head
/// ```
///
/// A column of `S` depends on no other. Sums over `key_dim` are taken in four parts, of every fourth element.
///
/// # Panics
///
/// If the lengths differ from the shapes.
pub fn delta_rule(rows: DeltaRows<'_>, spans: &[Span], states: &mut [f32], out: &mut [f32]) {
    let heads = rows.heads;
    rows.assert_shapes(token_count(spans), out.len());
    assert_eq!(states.len(), spans.len() * heads.state_len(), "delta rule: states");
    if spans.is_empty() {
        return;
    }
    let (tiles, dim) = (heads.tiles(), heads.key_dim);
    let of_tiles = states.chunks_exact_mut(spans.len() * heads.tile_len()).collect();
    let shape = (heads.values_width(), tiles.as_slice());
    for_each_tile(out, shape, of_tiles, rows.work(), |tile, states: &mut [f32], out| {
        let states = states.as_chunks_mut().0;
        for (index, span) in spans.iter().enumerate() {
            let (before, rest) = states.split_at_mut(index * dim);
            let state = &mut rest[..dim];
            match span.before {
                None => state.fill([0.0; LANES]),
                Some(span) => state.copy_from_slice(&before[span * dim..][..dim]),
            }
            let (tokens, out) = (span.tokens.clone(), &mut out[span.tokens.clone()]);
            let (head, columns) = (tile / heads.tiles_of_head(), tiles[tile].clone());
            lanes::run_kernel(TileForward { rows, head, columns, tokens, state, out });
        }
    });
}

/// Computes [`delta_rule`] of the next tokens of a sequence, from its state, `[state_len]` (zeros before the start), which is
/// overwritten by the state after them.
///
/// # Panics
///
/// If the lengths differ from the shapes.
pub fn delta_rule_onto(rows: DeltaRows<'_>, state: &mut [f32], out: &mut [f32]) {
    let heads = rows.heads;
    let n = out.len() / heads.values_width();
    rows.assert_shapes(n, out.len());
    assert_eq!(state.len(), heads.state_len(), "delta rule: state");
    let tiles = heads.tiles();
    let of_tiles = state.chunks_exact_mut(heads.tile_len()).collect();
    let shape = (heads.values_width(), tiles.as_slice());
    for_each_tile(out, shape, of_tiles, rows.work(), |tile, state: &mut [f32], out| {
        let (head, columns) = (tile / heads.tiles_of_head(), tiles[tile].clone());
        let state = state.as_chunks_mut().0;
        lanes::run_kernel(TileForward { rows, head, columns, tokens: 0..n, state, out });
    });
}

/// Sixteen columns of a head over some tokens.
struct TileForward<'a> {
    rows: DeltaRows<'a>,
    head: usize,
    columns: Range<usize>,
    tokens: Range<usize>,
    /// State `[key_dim]`.
    state: &'a mut [[f32; LANES]],
    /// Results of the tokens.
    out: &'a mut [[f32; LANES]],
}

impl Kernel for TileForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { rows, head, columns, tokens, state, out } = self;
        for (token, out) in tokens.zip(out) {
            let (q, _) = rows.query_and_key(token, head);
            advance_state(lanes, &rows, (token, head, &columns), state);
            lanes.store(read_state(lanes, state, q), out);
        }
    }
}

/// Advances the state of sixteen columns by a token. Returns `v − αSᵀk`.
#[inline(always)]
pub(super) fn advance_state<S: Simd, const N: usize>(
    lanes: Lanes<S, N>,
    rows: &DeltaRows<'_>,
    (token, head, columns): (usize, usize, &Range<usize>),
    state: &mut [[f32; LANES]],
) -> Sixteen<S, N> {
    let (_, k) = rows.query_and_key(token, head);
    let gate = token * rows.heads.values + head;
    let decay = lanes.splat(rows.decay[gate]);
    for row in &mut *state {
        let decayed = lanes.mul(decay, lanes.load(row));
        lanes.store(decayed, row);
    }
    let seen = read_state(lanes, state, k);
    let rest = lanes.sub(rows.values(lanes, token, columns), seen);
    let new = lanes.mul(lanes.splat(rows.beta[gate]), rest);
    for (row, k) in state.iter_mut().zip(k) {
        let sum = lanes.mul_add(lanes.splat(*k), new, lanes.load(row));
        lanes.store(sum, row);
    }
    rest
}

/// Returns `Σᵢ xᵢ rowᵢ`, in four parts.
#[inline(always)]
pub(super) fn read_state<S: Simd, const N: usize>(
    lanes: Lanes<S, N>,
    state: &[[f32; LANES]],
    x: &[f32],
) -> Sixteen<S, N> {
    let mut sums = [lanes.splat(0.0); 4];
    let ((rows, last_rows), (x, last_x)) = (state.as_chunks::<4>(), x.as_chunks::<4>());
    for (rows, x) in rows.iter().zip(x) {
        for i in 0..4 {
            sums[i] = lanes.mul_add(lanes.splat(x[i]), lanes.load(&rows[i]), sums[i]);
        }
    }
    for (i, (row, x)) in last_rows.iter().zip(last_x).enumerate() {
        sums[i] = lanes.mul_add(lanes.splat(*x), lanes.load(row), sums[i]);
    }
    lanes.add(lanes.add(sums[0], sums[1]), lanes.add(sums[2], sums[3]))
}
