//! Forward pass of attention for a few queries of one row.

mod group;

use std::cell::RefCell;
use std::ops::Range;

use pulp::Simd;

use super::packing::token_rows;
use super::rows::{SequenceKeys, SequenceValues};
use super::shapes::Heads;
use super::weighted::Weighted;
use super::{tiled, vector};
use crate::lanes::{self, Kernel, LANES, Lanes};
use group::HeadGroup;

/// Maximum number of rows of scores held at once; a row belongs to one query and head.
const ROWS: usize = 16;
/// Maximum number of scores held at once, unless four rows have more: half of a small L1 cache.
const SCORES: usize = 4096;

/// Consecutive queries of one row, with keys and values up to at least the last query.
pub(super) struct ForwardTask<'a> {
    /// Key heads whose queries are computed.
    pub(super) kv_heads: Range<usize>,
    /// Queries of these heads, `[queries, kv_heads * group * dim]`.
    pub(super) q: &'a [f32],
    pub(super) k: SequenceKeys<'a>,
    /// Values `[.., heads.kv * dim]`.
    pub(super) v: SequenceValues<'a>,
    /// Tokens of the row in `k` and `v`, which are then consecutive rows of all tokens; empty if `k` and `v` are the row's own.
    pub(super) path: &'a [Range<usize>],
    /// Index of the first query in the row.
    pub(super) first: usize,
    /// Scores of sinks, `[heads.q]`; empty without sinks.
    pub(super) sinks: &'a [f32],
    /// Output, in the shape of the queries.
    pub(super) out: &'a mut [f32],
}

/// Buffers of a task. Each thread keeps its own.
#[derive(Default)]
struct ForwardScratch {
    transposed: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    rows: RowScratch,
}

/// Buffers of a block of rows.
#[derive(Default)]
struct RowScratch {
    /// Scaled queries `[rows, dim]`, and the sums of the values that they attend to.
    queries: Vec<f32>,
    out: Vec<f32>,
    /// Scores, then weights, `[rows, padded keys]`.
    scores: Vec<f32>,
    /// Number of keys that each row attends to, and the inverse of the sum of their weights.
    counts: Vec<usize>,
    scales: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<ForwardScratch> = RefCell::default();
}

impl ForwardTask<'_> {
    /// Returns the number of elements of a token's queries.
    pub(super) fn q_width(&self, heads: Heads) -> usize {
        self.kv_heads.len() * heads.group_size() * heads.dim
    }

    /// Returns the position after the last query.
    pub(super) fn end(&self, heads: Heads) -> usize {
        self.first + self.q.len() / self.q_width(heads)
    }

    /// Computes the queries. Either all of them attend to few keys, or none does.
    pub(super) fn run_task(self, heads: Heads) {
        if self.first >= heads.first_long() {
            let rows = self.q.len() / (self.kv_heads.len() * heads.dim);
            let few = rows <= tiled::FEW_ROWS.max(heads.group_size());
            return if few && matches!(self.k, SequenceKeys::Blocks { .. }) {
                tiled::attend_in_place(self, heads)
            } else {
                tiled::attend_in_tiles(self, heads)
            };
        }
        SCRATCH.with_borrow_mut(|scratch| {
            lanes::run_kernel(AttentionForward { task: self, heads, scratch })
        });
    }
}

struct AttentionForward<'a> {
    task: ForwardTask<'a>,
    heads: Heads,
    scratch: &'a mut ForwardScratch,
}

impl Kernel for AttentionForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { task, heads, scratch } = self;
        let ForwardScratch { transposed, keys: all_keys, values: all_values, rows } = scratch;
        let ForwardTask { kv_heads, q, k, v, path, first, sinks, out } = task;
        let (members, kvw) = (heads.group_size() * heads.dim, heads.kv_width());
        let qw = kv_heads.len() * members;
        let (k, v) = match (k, v) {
            (SequenceKeys::Rows(k), SequenceValues::Whole(v)) if !path.is_empty() => (
                SequenceKeys::Rows(join_path(all_keys, k, path, kvw)),
                SequenceValues::Whole(join_path(all_values, v, path, kvw)),
            ),
            _ => (k, v),
        };
        // Tokens before the windows of all queries are skipped. From here on, they do not count.
        let skipped = heads.first_group(first);
        let (k, v) = (k.skip_tokens(skipped, kvw), v.skip_tokens(skipped, kvw));
        let first = first - skipped;
        let tokens = first + q.len() / qw;
        let alone = q.len() == qw;
        let most_rows = (SCORES / vector::padded_dim(tokens)).clamp(4, ROWS);
        let most_queries = (most_rows / heads.group_size()).max(1);
        for (i, head) in kv_heads.enumerate() {
            if let SequenceKeys::Rows(k) = k {
                vector::transpose_head(k, kvw, head * heads.dim, heads.dim, tokens, transposed);
            }
            let columns = i * members..(i + 1) * members;
            let group = HeadGroup { k, v, transposed, heads, head, qw, columns, sinks, alone };
            let blocks = q.chunks(most_queries * qw).zip(out.chunks_mut(most_queries * qw));
            for (i, (q, out)) in blocks.enumerate() {
                group.attend_queries(lanes, q, first + i * most_queries, rows, out);
            }
        }
    }
}

impl HeadGroup<'_> {
    /// Computes the heads of this group for some consecutive queries. The first of them attends to `first + 1` keys.
    #[inline(always)]
    fn attend_queries<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        q: &[f32],
        first: usize,
        scratch: &mut RowScratch,
        out: &mut [f32],
    ) {
        let Self { v, heads, head, qw, sinks, .. } = *self;
        let (dim, group) = (heads.dim, heads.group_size());
        // Groups of keys before the window of the first query. From here on, keys are counted from the next one.
        let skipped = heads.first_group(first);
        let (v, first) = (v.skip_tokens(skipped, heads.kv_width()), first - skipped);
        let RowScratch { queries, out: found, scores, counts, scales } = scratch;
        queries.clear();
        counts.clear();
        for (i, q) in q.chunks_exact(qw).enumerate() {
            queries.extend(q[self.columns.clone()].iter().map(|q| q * heads.score_scale()));
            counts.extend(std::iter::repeat_n(first + i + 1, group));
        }
        let rows = counts.len();
        let pitch = vector::padded_dim(first + rows / group);
        scores.resize((rows * pitch).max(scores.len()), 0.0);
        let scores = &mut scores[..rows * pitch];
        found.resize((rows * dim).max(found.len()), 0.0);
        let found = &mut found[..rows * dim];
        let x = vector::PitchedRows { data: queries, pitch: dim, dim };
        for i in 0..pitch / LANES {
            let of_all = i + skipped / LANES;
            if self.alone {
                self.prefetch_group(v, i, of_all + 1);
            }
            // Earlier queries attend to none of these keys.
            let from = (i * LANES).saturating_sub(first) * group;
            let (keys, at) = (self.key_group(of_all), i * LANES);
            vector::KeyProducts { x, first: from, keys, out: scores, pitch, at }
                .compute_products(lanes);
        }
        scales.clear();
        for (row, (scores, &keys)) in scores.chunks_exact_mut(pitch).zip(&*counts).enumerate() {
            let scores = &mut scores[..vector::padded_dim(keys)];
            if let Some(cap) = heads.scores.softcap {
                lanes.call_part(vector::SoftCap { scores, cap, slopes: None });
            }
            scores[..heads.first_key(keys - 1)].fill(f32::NEG_INFINITY);
            let sink = sinks.get(head * group + row % group).copied();
            let [scale, _] = lanes.call_part(vector::Softmax { scores, keys, sink });
            scales.push(scale);
        }
        let (width, at) = (heads.kv_width(), head * dim);
        let weighted = Weighted { weights: scores, pitch, counts, scales, x: v, width, at, dim };
        weighted.compute_sums(lanes, found, dim);
        self.store_rows(found, out);
    }

    /// Copies the results of the group to its columns of the output.
    #[inline(always)]
    fn store_rows(&self, found: &[f32], out: &mut [f32]) {
        for (out, found) in
            out.chunks_exact_mut(self.qw).zip(found.chunks_exact(self.columns.len()))
        {
            out[self.columns.clone()].copy_from_slice(found);
        }
    }
}

/// Concatenates the tokens of a path in `x [n, width]`.
fn join_path<'a>(
    whole: &'a mut Vec<f32>,
    x: &[f32],
    path: &[Range<usize>],
    width: usize,
) -> &'a [f32] {
    whole.clear();
    path.iter().for_each(|tokens| whole.extend_from_slice(token_rows(x, tokens, width)));
    whole
}
