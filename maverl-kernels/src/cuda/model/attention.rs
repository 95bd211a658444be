//! Attention over packed rows, forward and backward.

use std::collections::BTreeMap;

use super::super::array::{args, expect_length};
use super::elementwise::ROWS_OF_A_SUM;
use super::scores::{ATTEND, ATTEND_DKV, ATTEND_DQ, ScoreKind, halves, room};
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

/// Sinks `[heads.q]`, and the sum of their gradients, if they are trained.
pub type SinksBack<'a> = (Slice<'a, u16>, Option<SliceMut<'a, f32>>);

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
    /// `[n, heads.kv * dim]`; with `sinks [heads.q]` [`attention_sinks`](crate::attention::attention_sinks). Writes the
    /// logarithms to base 2 of the sums of weights to `lse [n, heads.q]`. A token has the same bits wherever its sequence is
    /// split into nodes, and as by [`Self::attend_cached`].
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or heads are not 32, 64, 96, 128 or 256 wide.
    pub fn attend_packed(
        &self,
        [q, k, v]: [Slice<'_, u16>; 3],
        layout: &AttentionLayout<M>,
        (heads, sinks): (Heads, Option<Slice<'_, u16>>),
        out: SliceMut<'_, u16>,
        lse: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        let Heads { q: q_heads, kv, .. } = heads;
        let n = layout.tokens;
        let by = ScoreKind::of("attend", heads, sinks);
        check_packed("attend", n, heads, [q.len(), out.len()], [k.len(), v.len()]);
        expect_length("attend", "lse", lse.len(), n * q_heads);
        let given = args![q, k, v, layout.tiles, layout.path, q_heads, kv];
        let args = [given, &by.arguments(), &by.sinks(sinks), args![out, lse]].concat();
        self.run_model_kernel(by.kernel(ATTEND), attend_shape(layout.tiles.len(), heads), &args)
    }

    /// Computes the gradients of [`Self::attend_packed`] from its `out` and `lse`. `dq`, `dk` and `dv` are overwritten; that of the
    /// sinks is added to the sum beside them, if there is one.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or heads are not 32, 64, 96, 128 or 256 wide.
    pub fn attend_back(
        &self,
        [q, k, v]: [Slice<'_, u16>; 3],
        [out, dout]: [Slice<'_, u16>; 2],
        (lse, layout): (Slice<'_, f32>, &BackwardLayout<M>),
        (heads, sinks): (Heads, Option<SinksBack<'_>>),
        [dq, dk, dv]: [SliceMut<'_, u16>; 3],
    ) -> Result<(), M::Error> {
        let (Heads { q: q_heads, kv, dim, .. }, n) = (heads, layout.tokens);
        let by = ScoreKind::of("attend_back", heads, sinks.as_ref().map(|(sinks, _)| *sinks));
        let wide = [q.len(), out.len(), dout.len(), dq.len()];
        check_packed("attend_back", n, heads, wide, [k.len(), v.len(), dk.len(), dv.len()]);
        expect_length("attend_back", "lse", lse.len(), n * q_heads);
        let rows = n * q_heads;
        let delta = self.new_array::<f32>(rows)?;
        let shape = LaunchShape::of_blocks(rows.div_ceil(8));
        self.run_model_kernel("attend_delta", shape, args![dout, out, rows, dim, delta])?;
        let scale = heads.score_scale();
        let BackwardLayout { queries, path, keys, steps, .. } = layout;
        let given = args![q, k, v, dout, lse, delta];
        let own = args![*queries, *path, q_heads, kv];
        let args = [given, own, &by.arguments(), args![scale, dq]].concat();
        self.run_model_kernel(
            by.kernel(ATTEND_DQ),
            back_shape(queries.len(), q_heads, dim),
            &args,
        )?;
        let own = args![*keys, *steps, q_heads, kv];
        let args = [given, own, &by.arguments(), args![scale, dk, dv]].concat();
        self.run_model_kernel(by.kernel(ATTEND_DKV), back_shape(keys.len(), kv, dim), &args)?;
        match sinks {
            Some((sinks, Some(dsinks))) => self.sinks_back([lse, delta.as_slice()], sinks, dsinks),
            _ => Ok(()),
        }
    }

    /// Adds the gradient of sinks from the logarithms of sums and the products of results and their gradients, `[n, heads]` each.
    fn sinks_back(
        &self,
        [lse, delta]: [Slice<'_, f32>; 2],
        sinks: Slice<'_, u16>,
        dsinks: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        let heads = sinks.len();
        let (n, blocks) = (lse.len() / heads, (lse.len() / heads).div_ceil(ROWS_OF_A_SUM));
        let partials = self.new_array::<f32>(blocks * heads)?;
        let args = args![lse, delta, sinks, n, heads, partials];
        self.run_model_kernel("attend_sinks_back", LaunchShape::of_blocks(blocks), args)?;
        self.add_rows(partials, blocks, heads, dsinks)
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
    let grid = [(words / TILE_WORDS) as u32, heads as u32, halves(dim) as u32];
    let shared = ((2 * TILE + 4 * STEP) * room(dim) * 2) as u32;
    LaunchShape { grid, threads: BACK_THREADS, shared }
}

/// Shape of attention for a list of tiles.
pub(super) fn attend_shape(words: usize, heads: Heads) -> LaunchShape {
    let dim = heads.dim;
    let queries = if dim > 64 { QUERIES * room(dim) * 2 } else { 0 };
    let grid = [(words / TILE_WORDS) as u32, heads.q as u32, halves(dim) as u32];
    let tiles = 2 * TILE * (room(dim) + room(dim) / halves(dim)) * 2;
    LaunchShape { grid, shared: (tiles + queries) as u32, ..LaunchShape::of_blocks(0) }
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
