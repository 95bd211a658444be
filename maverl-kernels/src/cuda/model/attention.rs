//! Attention over packed rows, forward and backward.

use std::collections::BTreeMap;

use super::super::array::{args, expect_length};
use crate::attention::{Heads, Packing, PathNode};
use crate::cuda::{DeviceArray, Kernels, LaunchShape, Machine, Slice, SliceMut};

/// Queries of a block.
pub(super) const QUERIES: usize = 128;
/// Keys of a tile; keys or queries of a block of the backward pass.
pub(super) const TILE: usize = 64;
/// Keys or queries of a step of the backward pass.
const STEP: usize = 32;
/// Threads of a block of the backward pass.
const BACK_THREADS: u32 = 128;

/// Packed rows as attention reads them.
#[derive(Debug)]
pub struct AttentionLayout<M: Machine> {
    tokens: usize,
    tiles: DeviceArray<M, i32>,
    path: DeviceArray<M, i32>,
}

/// Packed rows as the backward pass of attention reads them.
#[derive(Debug)]
pub struct BackwardLayout<M: Machine> {
    tokens: usize,
    queries: DeviceArray<M, i32>,
    path: DeviceArray<M, i32>,
    keys: DeviceArray<M, i32>,
    steps: DeviceArray<M, i32>,
}

/// Numbers of an `AttendTile` or `KeyTile` of the source.
pub(super) const TILE_WORDS: usize = 8;
/// Numbers of a `QueryStep` of the source.
const STEP_WORDS: usize = 4;

impl<M: Machine> Kernels<M> {
    /// Copies the rows of a packing to the machine.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If the offsets do not rise from 0, or the nodes are not in pre-order.
    pub fn attention_layout(&self, packing: Packing<'_>) -> Result<AttentionLayout<M>, M::Error> {
        let tokens = packing.assert_valid("attention");
        let (tiles, path) = query_tiles(packing, QUERIES);
        Ok(AttentionLayout { tokens, tiles: self.array_of(&tiles)?, path: self.array_of(&path)? })
    }

    /// Copies what the backward pass reads of the rows of a packing to the machine.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If the offsets do not rise from 0, or the nodes are not in pre-order.
    pub fn backward_layout(&self, packing: Packing<'_>) -> Result<BackwardLayout<M>, M::Error> {
        let tokens = packing.assert_valid("attention");
        let (keys, steps) = key_tiles(packing);
        let (queries, path) = query_tiles(packing, TILE);
        let (queries, path) = (self.array_of(&queries)?, self.array_of(&path)?);
        let (keys, steps) = (self.array_of(&keys)?, self.array_of(&steps)?);
        Ok(BackwardLayout { tokens, queries, path, keys, steps })
    }

    /// Computes [`attention`](crate::attention::attention): `q`, `out` are `[n, heads.q * dim]`, `k`, `v` are
    /// `[n, heads.kv * dim]`. Writes the logarithms to base 2 of the sums of weights to `lse [n, heads.q]`. A token has
    /// the same bits wherever its sequence is split into nodes, and as by [`Self::attend_cached`].
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or heads are not 32, 64 or 128 wide.
    pub fn attend_packed(
        &self,
        [q, k, v]: [Slice<'_, u16>; 3],
        layout: &AttentionLayout<M>,
        heads: Heads,
        out: SliceMut<'_, u16>,
        lse: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        let Heads { q: q_heads, kv, dim, .. } = heads;
        let n = layout.tokens;
        check_heads("attend", heads);
        check_packed("attend", n, heads, [q.len(), out.len()], [k.len(), v.len()]);
        expect_length("attend", "lse", lse.len(), n * q_heads);
        let kernel = by_width(dim, ["attend_32", "attend_64", "attend_128"]);
        let args = args![q, k, v, layout.tiles, layout.path, q_heads, kv, scale2(dim), out, lse];
        self.run_model_kernel(kernel, attend_shape(layout.tiles.len(), heads), args)
    }

    /// Computes the gradients of [`Self::attend_packed`] from its `out` and `lse`. `dq`, `dk` and `dv` are overwritten.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or heads are not 32, 64 or 128 wide.
    pub fn attend_back(
        &self,
        [q, k, v]: [Slice<'_, u16>; 3],
        [out, dout]: [Slice<'_, u16>; 2],
        lse: Slice<'_, f32>,
        layout: &BackwardLayout<M>,
        heads: Heads,
        [dq, dk, dv]: [SliceMut<'_, u16>; 3],
    ) -> Result<(), M::Error> {
        let (Heads { q: q_heads, kv, dim, .. }, n) = (heads, layout.tokens);
        check_heads("attend_back", heads);
        let wide = [q.len(), out.len(), dout.len(), dq.len()];
        check_packed("attend_back", n, heads, wide, [k.len(), v.len(), dk.len(), dv.len()]);
        expect_length("attend_back", "lse", lse.len(), n * q_heads);
        let rows = n * q_heads;
        let delta = self.new_array::<f32>(rows)?;
        let shape = LaunchShape::of_blocks(rows.div_ceil(8));
        self.run_model_kernel("attend_delta", shape, args![dout, out, rows, dim, delta])?;
        let (scale2, scale) = (scale2(dim), 1.0 / (dim as f32).sqrt());
        let BackwardLayout { queries, path, keys, steps, .. } = layout;
        let given = args![q, k, v, dout, lse, delta];
        let kernel = by_width(dim, ["attend_dq_32", "attend_dq_64", "attend_dq_128"]);
        let args = [given, args![*queries, *path, q_heads, kv, scale2, scale, dq]].concat();
        self.run_model_kernel(kernel, back_shape(queries.len(), q_heads, dim), &args)?;
        let kernel = by_width(dim, ["attend_dkv_32", "attend_dkv_64", "attend_dkv_128"]);
        let args = [given, args![*keys, *steps, q_heads, kv, scale2, scale, dk, dv]].concat();
        self.run_model_kernel(kernel, back_shape(keys.len(), kv, dim), &args)
    }
}

/// Lists tiles of at most `most` queries of one node, those that see the most keys first, and the tokens of their paths.
fn query_tiles(packing: Packing<'_>, most: usize) -> (Vec<i32>, Vec<i32>) {
    let nodes = packing.path_nodes();
    let (starts, path) = path_tokens(packing, &nodes);
    let mut tiles: Vec<[usize; TILE_WORDS]> = Vec::new();
    for (node, start) in nodes.iter().zip(starts) {
        let last = &node.path[node.path.len() - 1];
        let past = node.past - (node.own.start - last.start);
        for begin in (0..node.own.len()).step_by(most) {
            let (query, first) = (node.own.start + begin, node.past + begin);
            let count = most.min(node.own.len() - begin);
            tiles.push([query, first, count, last.start, start, past, 0, 0]);
        }
    }
    (heaviest_first(&mut tiles), path)
}

/// Lists the tokens before the last range of each path, and where those of each node begin in the list. Siblings share them.
fn path_tokens(packing: Packing<'_>, nodes: &[PathNode]) -> (Vec<usize>, Vec<i32>) {
    let (mut starts, mut path) = (Vec::with_capacity(nodes.len()), Vec::new());
    let mut listed: BTreeMap<usize, usize> = BTreeMap::new();
    for (n, node) in nodes.iter().enumerate() {
        let follows = node.path.last().is_some_and(|last| last.start < node.own.start);
        starts.push(match packing.parent_of_node(n) {
            None => 0,
            Some(parent) if follows => starts[parent],
            Some(parent) => *listed.entry(parent).or_insert_with(|| {
                let begin = path.len();
                path.extend(nodes[parent].path.iter().cloned().flatten().map(|token| token as i32));
                begin
            }),
        });
    }
    // An array of a device is not empty.
    path.push(0);
    (starts, path)
}

/// Sorts tiles by the keys they see, and returns their numbers.
pub(super) fn heaviest_first(tiles: &mut [[usize; TILE_WORDS]]) -> Vec<i32> {
    tiles.sort_by_key(|[_, first, count, ..]| std::cmp::Reverse(first + count));
    tiles.iter().flatten().map(|&word| word as i32).collect()
}

/// Lists tiles of 64 keys of one node, and the steps of 32 queries that see them: of the node, ascending, then of each
/// descendant, in pre-order.
fn key_tiles(packing: Packing<'_>) -> (Vec<i32>, Vec<i32>) {
    let nodes = packing.path_nodes();
    let (mut tiles, mut steps) = (Vec::new(), Vec::<i32>::new());
    for (n, node) in nodes.iter().enumerate() {
        let descendants = &nodes[n + 1..packing.subtree_end(n)];
        for begin in (0..node.own.len()).step_by(TILE) {
            let first_step = steps.len() / STEP_WORDS;
            push_steps(&mut steps, node, begin);
            descendants.iter().for_each(|node| push_steps(&mut steps, node, 0));
            let count = TILE.min(node.own.len() - begin);
            let end = steps.len() / STEP_WORDS;
            let (token, first) = (node.own.start + begin, node.past + begin);
            tiles.extend([token, first, count, first_step, end, 0, 0, 0].map(|word| word as i32));
        }
    }
    (tiles, steps)
}

/// Appends the steps of a node's queries, those of its tokens from the `from`-th on.
fn push_steps(steps: &mut Vec<i32>, node: &PathNode, from: usize) {
    for at in (from..node.own.len()).step_by(STEP) {
        let step = [node.own.start + at, node.past + at, STEP.min(node.own.len() - at), 0];
        steps.extend(step.map(|word| word as i32));
    }
}

/// Shape of gradients for a list of tiles.
fn back_shape(words: usize, heads: usize, dim: usize) -> LaunchShape {
    let grid = [(words / TILE_WORDS) as u32, heads as u32, 1];
    let shared = ((2 * TILE + 4 * STEP) * dim * 2) as u32;
    LaunchShape { grid, threads: BACK_THREADS, shared }
}

/// Shape of attention for a list of tiles.
pub(super) fn attend_shape(words: usize, heads: Heads) -> LaunchShape {
    let dim = heads.dim;
    let queries = if dim > 64 { QUERIES * dim * 2 } else { 0 };
    let grid = [(words / TILE_WORDS) as u32, heads.q as u32, 1];
    LaunchShape { grid, shared: (4 * TILE * dim * 2 + queries) as u32, ..LaunchShape::of_blocks(0) }
}

/// Returns the scale of scores, for powers of two.
pub(super) fn scale2(dim: usize) -> f32 {
    std::f32::consts::LOG2_E / (dim as f32).sqrt()
}

/// Returns the kernel of this width of heads.
pub(super) fn by_width(dim: usize, kernels: [&'static str; 3]) -> &'static str {
    kernels[dim.trailing_zeros() as usize - 5]
}

#[track_caller]
pub(super) fn check_heads(kernel: &str, heads: Heads) {
    let Heads { q, kv, dim, .. } = heads;
    assert!(kv > 0 && q > 0 && q.is_multiple_of(kv), "{kernel}: {q} query heads over {kv}");
    assert!([32, 64, 128].contains(&dim), "{kernel}: heads of {dim}; there are 32, 64 and 128");
}

#[track_caller]
fn check_packed<const A: usize, const B: usize>(
    kernel: &str,
    n: usize,
    heads: Heads,
    wide: [usize; A],
    narrow: [usize; B],
) {
    wide.iter().for_each(|&len| {
        expect_length(kernel, "an array of queries", len, n * heads.q * heads.dim)
    });
    narrow
        .iter()
        .for_each(|&len| expect_length(kernel, "an array of keys", len, n * heads.kv * heads.dim));
}
