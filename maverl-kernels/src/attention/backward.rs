//! Backward pass of attention over trees of packed rows.

mod head;
mod queries;

use std::ops::Range;

use pulp::Simd;
use rayon::prelude::*;

use super::packing::PathNode;
use super::{tiled, vector};
use crate::lanes::{self, Kernel, Lanes};
pub(super) use head::{BackwardInputs, Grads, HeadRows, HeadView};
use queries::{BlockBuffers, QueryBlock, QueryBlocks};

/// A tree of nodes, and the slices of its gradients, by queries, keys, values and sinks.
pub(super) struct BackwardTree<'a> {
    pub(super) nodes: &'a [PathNode],
    pub(super) grads: [&'a mut [f32]; 4],
}

impl BackwardTree<'_> {
    /// Overwrites the gradients of the tree. With the nodes n in pre-order, of which the first overwrites:
    ///
    /// ```text
    /// dk_m = Σ_n ds_nmᵀ q_n,   dv_m = Σ_n p_nmᵀ dout_n,   m on the path of n
    /// ```
    ///
    /// About as many heads of nodes as `threads` are computed at once. The order of the sums does not depend on it.
    pub(super) fn run_tree(mut self, inputs: BackwardInputs<'_>, threads: usize) {
        let kv = inputs.heads.kv;
        for nodes in self.nodes.chunks(threads.div_ceil(kv)) {
            let block = vector::block_tokens(inputs.heads.dim);
            let views: Vec<HeadView<'_>> = nodes
                .iter()
                .flat_map(|node| (0..kv).map(move |head| HeadView { inputs, node, head, block }))
                .collect();
            if threads > 1 {
                let found: Vec<Grads> = views.par_iter().map(HeadView::head_gradients).collect();
                views.iter().zip(found).for_each(|(view, found)| self.store_head(view, &found));
            } else {
                views.iter().for_each(|view| self.store_head(view, &view.head_gradients()));
            }
        }
    }

    /// Copies the gradients of a node's tokens to the columns of a head, and adds those of its ancestors.
    fn store_head(&mut self, view: &HeadView<'_>, found: &Grads) {
        let HeadView { inputs: BackwardInputs { heads, .. }, node, head, .. } = *view;
        let (dim, wide, kvw) = (heads.dim, vector::padded_dim(heads.dim), heads.kv_width());
        let (members, qw) = (heads.group_size() * dim, heads.q_width());
        let start = self.nodes[0].own.start;
        let rows = |width: usize, tokens: &Range<usize>| {
            (tokens.start - start) * width..(tokens.end - start) * width
        };
        let [dq, dk, dv, dsinks] = &mut self.grads;
        if !dsinks.is_empty() {
            let (group, to) = (heads.group_size(), &mut dsinks[rows(heads.q, &node.own)]);
            let columns = head * group..(head + 1) * group;
            copy_columns(&found.dsinks, group, to, heads.q, columns, <[f32]>::copy_from_slice);
        }
        let columns = head * members..(head + 1) * members;
        let to = &mut dq[rows(qw, &node.own)];
        copy_columns(&found.dq, members, to, qw, columns, <[f32]>::copy_from_slice);
        let columns = head * dim..(head + 1) * dim;
        for (found, to) in [(&found.dk, dk), (&found.dv, dv)] {
            let mut before = found.as_slice();
            for tokens in node.ancestors() {
                let (of_tokens, rest) = before.split_at(tokens.len() * wide);
                before = rest;
                let to = &mut to[rows(kvw, &tokens)];
                copy_columns(of_tokens, wide, to, kvw, columns.clone(), add_numbers);
            }
            let to = &mut to[rows(kvw, &node.own)];
            copy_columns(before, wide, to, kvw, columns.clone(), <[f32]>::copy_from_slice);
        }
    }
}

/// Copies the first elements of rows of `pitch` to columns of the rows of `to`.
fn copy_columns(
    from: &[f32],
    pitch: usize,
    to: &mut [f32],
    width: usize,
    columns: Range<usize>,
    give: impl Fn(&mut [f32], &[f32]),
) {
    for (from, to) in from.chunks_exact(pitch).zip(to.chunks_exact_mut(width)) {
        give(&mut to[columns.clone()], &from[..columns.len()]);
    }
}

fn add_numbers(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

impl HeadView<'_> {
    fn head_gradients(&self) -> Grads {
        let mut grads = lanes::run_kernel(*self);
        tiled::add_long_gradients(self, &mut grads);
        grads
    }
}

/// Blocks of queries of a long row whose probabilities are held at once, so that they read the keys and values, and add to
/// their gradients, in a cache.
const BLOCKS: usize = 4;

impl Kernel for HeadView<'_> {
    type Output = Grads;

    /// Returns the gradients by the queries that attend to few keys.
    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> Grads {
        let BackwardInputs { k, v, heads, sinks, .. } = self.inputs;
        let (dim, first, queries) = (heads.dim, self.node.past, self.node.own.len());
        let (tokens, group) = (first + queries, heads.group_size());
        let wide = vector::padded_dim(dim);
        let rows = HeadRows::of_path(k, &self);
        // Tokens up to the last query that attends to few keys.
        let few = if first < heads.first_long() { tokens.min(heads.first_long()) } else { 0 };
        let (keys, values) =
            (rows.transpose(dim, few), HeadRows::of_path(v, &self).transpose(dim, few));
        let at_once = if few > self.block { BLOCKS } else { 1 };
        let mut buffers = vec![BlockBuffers::new(heads, few); at_once];
        let mut ds = vec![0.0; queries::QUERIES * vector::padded_dim(few.min(self.block))];
        let mut grads = Grads {
            dq: vec![0.0; queries * group * dim],
            dk: vec![0.0; tokens * wide],
            dv: vec![0.0; tokens * wide],
            dsinks: vec![0.0; if sinks.is_empty() { 0 } else { queries * group }],
        };
        let starts = (first..few).step_by(queries::QUERIES);
        let blocks = starts.flat_map(|start| (0..group).map(move |member| (start, member)));
        let blocks: Vec<QueryBlock<'_>> = blocks
            .map(|(start, member)| QueryBlock {
                view: &self,
                rows: &rows,
                keys: &keys,
                values: &values,
                from: heads.first_group(start),
                start,
                end: few.min(start + queries::QUERIES),
                member,
            })
            .collect();
        for blocks in blocks.chunks(at_once) {
            QueryBlocks { blocks, buffers: &mut buffers, ds: &mut ds }
                .add_gradients(lanes, &mut grads);
        }
        grads
    }
}
