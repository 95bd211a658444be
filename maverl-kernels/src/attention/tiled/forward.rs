//! Forward pass of queries with many keys.

use std::cell::RefCell;

use super::online::{OnlineResults, OnlineScores, RowStates};
use super::{KEYS, PANEL, ROWS, key_blocks};
use crate::attention::forward::ForwardTask;
use crate::attention::shapes::Heads;
use crate::matmul::{BlockPanels, BlockSide};

/// Buffers of a task. Each thread keeps its own.
#[derive(Default)]
struct TiledScratch {
    /// Scaled queries, `[rows, dim]`, and their positions.
    queries: Vec<f32>,
    positions: Vec<usize>,
    states: RowStates,
    /// Keys or values of a block, `[KEYS, dim]`.
    rows: Vec<f32>,
    keys: BlockPanels,
    values: BlockPanels,
    /// Scores, then weights, `[ROWS, KEYS]`.
    scores: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<TiledScratch> = RefCell::default();
}

/// Computes a task whose queries all attend to many keys.
pub(in crate::attention) fn attend_in_tiles(mut task: ForwardTask<'_>, heads: Heads) {
    SCRATCH.with_borrow_mut(|scratch| {
        for head in task.kv_heads.clone() {
            attend_head(&mut task, head, heads, scratch);
        }
    });
}

/// Computes the queries of one key head.
fn attend_head(task: &mut ForwardTask<'_>, head: usize, heads: Heads, scratch: &mut TiledScratch) {
    let (dim, group) = (heads.dim, heads.group_size());
    let members = group * dim;
    let qw = task.kv_heads.len() * members;
    let columns =
        (head - task.kv_heads.start) * members..(head + 1 - task.kv_heads.start) * members;
    let end = task.first + task.q.len() / qw;
    let sinks = task.sinks.get(head * group..(head + 1) * group).unwrap_or_default();
    let TiledScratch { queries, positions, states, .. } = scratch;
    queries.clear();
    for q in task.q.chunks_exact(qw) {
        queries.extend(q[columns.clone()].iter().map(|q| q * heads.score_scale()));
    }
    positions.clear();
    positions.extend((task.first..end).flat_map(|query| std::iter::repeat_n(query, group)));
    states.clear(positions.len(), heads, |row| sinks.get(row % group).copied());
    for keys in key_blocks(heads.first_key(task.first), end) {
        pack_block(task, head, heads, &keys, scratch);
        for first in (0..scratch.positions.len()).step_by(ROWS) {
            attend_block(first, heads, &keys, scratch);
        }
    }
    let TiledScratch { positions, states, .. } = scratch;
    let rows = positions.len();
    OnlineResults { states: states.from_row(0, rows, dim), sinks, dim }.divide();
    for (out, found) in task.out.chunks_exact_mut(qw).zip(states.sums.chunks_exact(members)) {
        out[columns.clone()].copy_from_slice(found);
    }
}

/// Packs the keys and values of a block. Those before the windows of all queries may not exist, and are zero.
fn pack_block(
    task: &ForwardTask<'_>,
    head: usize,
    heads: Heads,
    keys: &std::ops::Range<usize>,
    scratch: &mut TiledScratch,
) {
    let (dim, shape) = (heads.dim, (task.path, heads.kv_width()));
    let columns = head * dim..(head + 1) * dim;
    let tokens = keys.start.max(heads.first_group(task.first))..keys.end;
    let skipped = (tokens.start - keys.start) * dim;
    let TiledScratch { rows, keys: key_panels, values, .. } = scratch;
    rows.clear();
    rows.resize(keys.len().next_multiple_of(PANEL) * dim, 0.0);
    task.k.copy_columns(shape, columns.clone(), tokens.clone(), &mut rows[skipped..]);
    key_panels.pack_side(BlockSide::from_rows(rows, dim));
    task.v.copy_columns(shape, columns, tokens, &mut rows[skipped..]);
    values.pack_side(BlockSide::from_columns(rows, dim));
}

/// Adds a block of keys to at most [`ROWS`] rows.
fn attend_block(
    first: usize,
    heads: Heads,
    keys: &std::ops::Range<usize>,
    scratch: &mut TiledScratch,
) {
    let TiledScratch { queries, positions, states, keys: key_panels, values, scores, .. } = scratch;
    let positions = &positions[first..positions.len().min(first + ROWS)];
    let (rows, dim) = (positions.len(), heads.dim);
    let [Some(&earliest), Some(&latest)] = [positions.first(), positions.last()] else { return };
    if latest < keys.start || heads.first_key(earliest) >= keys.end {
        return;
    }
    let columns = (keys.end.min(latest + 1) - keys.start).next_multiple_of(PANEL);
    scores.resize(ROWS * KEYS, 0.0);
    let scores = &mut scores[..rows * columns];
    let q = BlockSide::from_rows(&queries[first * dim..(first + rows) * dim], dim);
    key_panels.set_products((q, rows), columns, (&mut *scores, columns));
    let some = states.from_row(first, rows, dim);
    OnlineScores { scores, columns, start: keys.start, positions, heads, states: some }.weigh();
    let sums = states.from_row(first, rows, dim).sums;
    let weights = BlockSide::from_rows(scores, columns);
    values.add_products((weights, rows), dim, (sums, dim));
}
