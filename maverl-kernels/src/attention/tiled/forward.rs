//! Forward pass of queries with many keys.

use std::cell::RefCell;
use std::ops::Range;

use super::queries::HeadQueries;
use super::{KEYS, PANEL, ROWS, key_blocks};
use crate::attention::forward::ForwardTask;
use crate::attention::shapes::Heads;
use crate::matmul::{BlockPanels, BlockSide};

/// Buffers of a task. Each thread keeps its own.
#[derive(Default)]
struct TiledScratch {
    queries: HeadQueries,
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
    scratch.queries.load_head(task, head, heads);
    let rows = scratch.queries.positions.len();
    for keys in key_blocks(heads.first_key(task.first), task.end(heads)) {
        pack_block(task, head, heads, &keys, scratch);
        for first in (0..rows).step_by(ROWS) {
            attend_block(first..rows.min(first + ROWS), heads, &keys, scratch);
        }
    }
    scratch.queries.store_head(task, head, heads);
}

/// Packs the keys and values of a block. Those before the windows of all queries may not exist, and are zero.
fn pack_block(
    task: &ForwardTask<'_>,
    head: usize,
    heads: Heads,
    keys: &Range<usize>,
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
fn attend_block(rows: Range<usize>, heads: Heads, keys: &Range<usize>, scratch: &mut TiledScratch) {
    let TiledScratch { queries, keys: key_panels, values, scores, .. } = scratch;
    let (count, dim) = (rows.len(), heads.dim);
    let [earliest, latest] = [rows.start, rows.end - 1].map(|row| queries.positions[row]);
    if latest < keys.start || heads.first_key(earliest) >= keys.end {
        return;
    }
    let columns = (keys.end.min(latest + 1) - keys.start).next_multiple_of(PANEL);
    scores.resize(ROWS * KEYS, 0.0);
    let scores = &mut scores[..count * columns];
    let q = BlockSide::from_rows(&queries.rows[rows.start * dim..rows.end * dim], dim);
    key_panels.set_products((q, count), columns, (&mut *scores, columns));
    queries.weigh_scores(rows.clone(), (&mut *scores, columns), keys.start, heads);
    let weights = BlockSide::from_rows(scores, columns);
    values.add_products((weights, count), dim, (queries.sums(rows, heads), dim));
}
