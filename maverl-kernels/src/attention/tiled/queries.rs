//! Queries of a key head: rows of their products, and what is known of each between blocks of keys.

use std::ops::Range;

use super::online::{OnlineResults, OnlineScores, RowStates};
use crate::attention::forward::ForwardTask;
use crate::attention::shapes::Heads;

/// Queries of a task that use one key head. A row belongs to one query and head; those of a query follow each other.
#[derive(Default)]
pub(super) struct HeadQueries {
    /// Scaled queries, `[rows, dim]`.
    pub(super) rows: Vec<f32>,
    /// Position of the query of each row.
    pub(super) positions: Vec<usize>,
    states: RowStates,
}

impl HeadQueries {
    /// Prepares the queries of a task for the first block of keys.
    pub(super) fn load_head(&mut self, task: &ForwardTask<'_>, head: usize, heads: Heads) {
        let (columns, group) = (columns_of_head(task, head, heads), heads.group_size());
        let Self { rows, positions, states } = self;
        rows.clear();
        positions.clear();
        for (i, q) in task.q.chunks_exact(task.q_width(heads)).enumerate() {
            rows.extend(q[columns.clone()].iter().map(|q| q * heads.score_scale()));
            positions.extend(std::iter::repeat_n(task.first + i, group));
        }
        let sinks = sinks_of_head(task.sinks, head, heads);
        states.clear(positions.len(), heads, |row| sinks.get(row % group).copied());
    }

    /// Returns the sums of the values of some rows, `[.., dim]`.
    pub(super) fn sums(&mut self, rows: Range<usize>, heads: Heads) -> &mut [f32] {
        self.states.slice_rows(rows, heads.dim).sums
    }

    /// Replaces the scores of some rows for a block of keys by weights, and updates what is known of the rows. `start` is the
    /// position of the first key, and `columns` the elements of a row of scores.
    pub(super) fn weigh_scores(
        &mut self,
        rows: Range<usize>,
        (scores, columns): (&mut [f32], usize),
        start: usize,
        heads: Heads,
    ) {
        let positions = &self.positions[rows.clone()];
        let states = self.states.slice_rows(rows, heads.dim);
        OnlineScores { scores, columns, start, positions, heads, states }.weigh();
    }

    /// Writes the results to the output of the task.
    pub(super) fn store_head(&mut self, task: &mut ForwardTask<'_>, head: usize, heads: Heads) {
        let (dim, columns) = (heads.dim, columns_of_head(task, head, heads));
        let (sinks, width) = (sinks_of_head(task.sinks, head, heads), task.q_width(heads));
        let states = self.states.slice_rows(0..self.positions.len(), dim);
        OnlineResults { states, sinks, dim }.divide();
        let outs = task.out.chunks_exact_mut(width);
        for (out, found) in outs.zip(self.states.sums.chunks_exact(columns.len())) {
            out[columns.clone()].copy_from_slice(found);
        }
    }
}

/// Returns the elements of a token's queries in a task that use a key head.
fn columns_of_head(task: &ForwardTask<'_>, head: usize, heads: Heads) -> Range<usize> {
    let (members, i) = (heads.group_size() * heads.dim, head - task.kv_heads.start);
    i * members..(i + 1) * members
}

/// Returns the sinks of the queries that use a key head; none if there are none.
fn sinks_of_head(sinks: &[f32], head: usize, heads: Heads) -> &[f32] {
    let group = heads.group_size();
    sinks.get(head * group..(head + 1) * group).unwrap_or_default()
}
