//! Causal grouped-query attention over ragged rows: forward, backward, and with a KV cache.
//!
//! ```text
//! sᵢⱼ = qᵢ · kⱼ / √dim,   pᵢ = softmax(sᵢ, j ≤ i),   outᵢ = Σⱼ pᵢⱼ vⱼ
//! ```
//!
//! [`Scores`] may have another scale, a bound, and a window. Keys before a window have weights of exactly zero, and sums
//! begin at the group of sixteen keys with the first key of the window, so a window as long as the row changes no bit.
//!
//! A head may have a sink (Xiao et al., 2023, arXiv:2309.17453; gpt-oss): a score under the softmax without a key or a value.
//!
//! Scores are held for a few queries at a time; no `[T, T]` matrix exists. The order of every sum depends only on the
//! absolute index of a key in its row. All entry points therefore give a query the same bits (K-1).
//!
//! - Up to 512 keys, products over `dim` and the softmax sum use sixteen lanes, the weighted sum of values uses four. Keys are
//!   read sixteen at a time, one dimension after the other. Cache blocks store them in that layout; packed rows are transposed
//!   first.
//! - A query of more keys takes them in blocks of 256, with a running softmax, as in FlashAttention-2 (Dao, 2023,
//!   arXiv:2307.08691). Products are those of [`matmul`](crate::matmul).

mod accumulate;
mod backward;
mod blocks;
mod forward;
mod packing;
mod rows;
mod shapes;
mod tiled;
mod vector;
mod weighted;

use std::ops::Range;

use rayon::prelude::*;

use crate::par;
pub use blocks::{BLOCK_TOKENS, CacheBlock, CacheBlocks};
use forward::ForwardTask;
pub use packing::Packing;
#[cfg(feature = "cuda")]
pub(crate) use packing::PathNode;
use packing::token_rows;
use rows::{SequenceKeys, SequenceValues};
pub use shapes::{Heads, Scores, Segment};

/// Queries of one task. The keys of the task are transposed once.
const QUERIES: usize = 128;
/// Multiplications that cost as much as one element of [`par::GRAIN`].
const PER_ELEMENT: usize = 16;

/// Computes attention within packed rows: `q`, `out` are `[n, heads.q * dim]`, `k`, `v` are `[n, heads.kv * dim]`. A
/// token attends to the ancestors of its node and to its node up to itself. The bits equal those of the sequence alone,
/// wherever it is split into nodes.
///
/// # Panics
///
/// If the lengths differ from the shapes, or `packing` does not fit them.
pub fn attention(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    packing: Packing<'_>,
    heads: Heads,
    out: &mut [f32],
) {
    attention_sinks([q, k, v], &[], packing, heads, out);
}

/// Computes [`attention`] with the scores of sinks, `[heads.q]`; none if there are none.
///
/// # Panics
///
/// If the lengths differ from the shapes, or `packing` does not fit them.
pub fn attention_sinks(
    [q, k, v]: [&[f32]; 3],
    sinks: &[f32],
    packing: Packing<'_>,
    heads: Heads,
    out: &mut [f32],
) {
    heads.assert_valid("attention");
    check_sinks("attention", heads, sinks);
    let n = packing.assert_valid("attention");
    let (qw, kvw) = (heads.q_width(), heads.kv_width());
    check_rows("attention", n, qw, [("q", q.len())]);
    check_rows("attention", n, kvw, [("k", k.len()), ("v", v.len())]);
    check_rows("attention", n, qw, [("out", out.len())]);
    let nodes = packing.path_nodes();
    let mut tasks = Vec::with_capacity(nodes.len() + n / QUERIES);
    let mut out = out;
    for node in &nodes {
        let (keys, values, path) = match (node.contiguous(k, kvw), node.contiguous(v, kvw)) {
            (Some(k), Some(v)) => (k, v, &[][..]),
            _ => (k, v, node.path.as_slice()),
        };
        let rows = (SequenceKeys::Rows(keys), SequenceValues::Whole(values), path);
        let queries = token_rows(q, &node.own, qw);
        push_tasks(&mut tasks, queries, node.past, rows, (heads, sinks), &mut out);
    }
    run_tasks(tasks, heads);
}

/// Computes attention from the new tokens of each segment to its whole past: `q`, `out` are
/// `[Σ new_tokens, heads.q * dim]`, packed in the order of the segments. The `i`-th new token attends to the keys
/// `0..=past + i`. The bits equal those of [`attention`] on the whole row, however the row is split into calls and
/// wherever its blocks are stored.
///
/// # Panics
///
/// If the lengths differ from the shapes, or a block does not exist.
pub fn attention_cached(
    q: &[f32],
    blocks: CacheBlocks<'_>,
    segments: &[Segment<'_>],
    heads: Heads,
    out: &mut [f32],
) {
    attention_cached_sinks(q, blocks, segments, heads, &[], out);
}

/// Computes [`attention_cached`] with the scores of sinks, `[heads.q]`; none if there are none.
///
/// # Panics
///
/// If the lengths differ from the shapes, or a block does not exist.
pub fn attention_cached_sinks(
    q: &[f32],
    blocks: CacheBlocks<'_>,
    segments: &[Segment<'_>],
    heads: Heads,
    sinks: &[f32],
    out: &mut [f32],
) {
    heads.assert_valid("attention_cached");
    check_sinks("attention_cached", heads, sinks);
    let qw = heads.q_width();
    let n: usize = segments.iter().map(|s| s.new_tokens).sum();
    check_rows("attention_cached", n, qw, [("q", q.len()), ("out", out.len())]);
    for (i, &Segment { new_tokens, len, blocks: ids, .. }) in segments.iter().enumerate() {
        assert!(
            new_tokens <= len && len <= ids.len() * BLOCK_TOKENS,
            "attention_cached: segment {i} has {new_tokens} new of {len} tokens in {} blocks",
            ids.len()
        );
    }
    if segments.iter().all(|segment| segment.new_tokens == 1) {
        let work: usize = segments.iter().map(|segment| segment.len * qw).sum();
        let divided = par::worth_it(work / PER_ELEMENT);
        let few = divided && segments.len() < par::thread_count();
        let tasks = if few { heads.kv } else { 1 };
        return Decoding { blocks, segments, heads, sinks, tasks }.run_all(q, out, divided);
    }
    let mut tasks = Vec::with_capacity(segments.len() + n / QUERIES);
    let (mut q, mut out) = (q, out);
    for &Segment { new_tokens, len, blocks: ids, .. } in segments {
        let (queries, rest) = q.split_at(new_tokens * qw);
        q = rest;
        let rows = (
            SequenceKeys::from_blocks(&blocks, ids),
            SequenceValues::from_blocks(&blocks, ids),
            &[][..],
        );
        push_tasks(&mut tasks, queries, len - new_tokens, rows, (heads, sinks), &mut out);
    }
    run_tasks(tasks, heads);
}

/// Computes the gradients of [`attention`] from its `out` and `dout`. `dq`, `dk` and `dv` are overwritten.
/// Probabilities are recomputed. The sums of a node are taken in the order of its queries; its descendants then add their
/// parts to its gradients, in pre-order.
///
/// ```text
/// dpᵢⱼ = doutᵢ · vⱼ,   dsᵢⱼ = pᵢⱼ (dpᵢⱼ − doutᵢ · outᵢ)
/// dqᵢ = Σⱼ dsᵢⱼ kⱼ / √dim,   dkⱼ = Σᵢ dsᵢⱼ qᵢ / √dim,   dvⱼ = Σᵢ pᵢⱼ doutᵢ
/// ```
///
/// # Panics
///
/// Under the same conditions as [`attention`].
#[expect(clippy::too_many_arguments, reason = "five arrays in, three out")]
pub fn attention_bwd(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    out: &[f32],
    dout: &[f32],
    packing: Packing<'_>,
    heads: Heads,
    dq: &mut [f32],
    dk: &mut [f32],
    dv: &mut [f32],
) {
    attention_sinks_bwd([q, k, v], [out, dout], &[], packing, heads, [dq, dk, dv, &mut []]);
}

/// Computes the gradients of [`attention_sinks`] as [`attention_bwd`] does, and those of the sinks by each query,
/// `[n, heads.q]`, empty without sinks: `D` is the sum of the products of a query's `out` and `dout`.
///
/// ```text
/// dsink = −p_sink D
/// ```
///
/// # Panics
///
/// Under the same conditions as [`attention`].
pub fn attention_sinks_bwd(
    [q, k, v]: [&[f32]; 3],
    [out, dout]: [&[f32]; 2],
    sinks: &[f32],
    packing: Packing<'_>,
    heads: Heads,
    [dq, dk, dv, dsinks]: [&mut [f32]; 4],
) {
    heads.assert_valid("attention_bwd");
    check_sinks("attention_bwd", heads, sinks);
    let n = packing.assert_valid("attention_bwd");
    let (qw, kvw) = (heads.q_width(), heads.kv_width());
    let wide = [("q", q.len()), ("out", out.len()), ("dout", dout.len()), ("dq", dq.len())];
    check_rows("attention_bwd", n, qw, wide);
    let narrow = [("k", k.len()), ("v", v.len()), ("dk", dk.len()), ("dv", dv.len())];
    check_rows("attention_bwd", n, kvw, narrow);
    check_rows("attention_bwd", n, sinks.len(), [("dsinks", dsinks.len())]);
    let inputs = backward::BackwardInputs { q, k, v, out, dout, sinks, heads };
    let nodes = packing.path_nodes();
    let (mut dq, mut dk, mut dv, mut dsinks) = (dq, dk, dv, dsinks);
    let trees: Vec<_> = packing
        .trees()
        .map(|tree| {
            let nodes = &nodes[tree];
            let tokens = nodes[nodes.len() - 1].own.end - nodes[0].own.start;
            let grads = [
                split_front(&mut dq, tokens * qw),
                split_front(&mut dk, tokens * kvw),
                split_front(&mut dv, tokens * kvw),
                split_front(&mut dsinks, tokens * sinks.len()),
            ];
            backward::BackwardTree { nodes, grads }
        })
        .collect();
    let pairs = nodes.iter().map(|node| (2 * node.past + node.own.len() + 1) * node.own.len() / 2);
    let work = pairs.sum::<usize>() * qw;
    if !par::worth_it(work / PER_ELEMENT) {
        trees.into_iter().for_each(|tree| tree.run_tree(inputs, 1));
    } else if trees.len() < 2 * par::thread_count() {
        trees.into_iter().for_each(|tree| tree.run_tree(inputs, par::thread_count()));
    } else {
        trees.into_par_iter().for_each(|tree| tree.run_tree(inputs, 1));
    }
}

/// Asserts that there is a sink for each query head, or none.
#[track_caller]
fn check_sinks(kernel: &str, heads: Heads, sinks: &[f32]) {
    let count = sinks.len();
    assert!(count == 0 || count == heads.q, "{kernel}: {count} sinks of {} heads", heads.q);
}

/// Asserts that arrays are `[n, width]`.
fn check_rows<const N: usize>(kernel: &str, n: usize, width: usize, arrays: [(&str, usize); N]) {
    for (name, len) in arrays {
        assert_eq!(len, n * width, "{kernel}: {name} has {len} elements, not [{n}, {width}]");
    }
}

/// Attention from the only new token of each segment.
struct Decoding<'a> {
    blocks: CacheBlocks<'a>,
    segments: &'a [Segment<'a>],
    heads: Heads,
    sinks: &'a [f32],
    /// Tasks of a segment: one, or one for each key head.
    tasks: usize,
}

impl Decoding<'_> {
    /// Runs all tasks, without allocating a list of them.
    fn run_all(&self, q: &[f32], out: &mut [f32], divided: bool) {
        let size = self.heads.q_width() / self.tasks;
        if divided {
            let parts = q.par_chunks_exact(size).zip(out.par_chunks_exact_mut(size)).enumerate();
            parts.for_each(|(task, (q, out))| self.run_one(task, q, out));
        } else {
            let parts = q.chunks_exact(size).zip(out.chunks_exact_mut(size)).enumerate();
            parts.for_each(|(task, (q, out))| self.run_one(task, q, out));
        }
    }

    fn run_one(&self, task: usize, q: &[f32], out: &mut [f32]) {
        let Self { blocks, segments, heads, sinks, tasks } = self;
        let Segment { len, blocks: ids, .. } = segments[task / tasks];
        let (size, part) = (heads.kv / tasks, task % tasks);
        let (kv_heads, first) = (part * size..(part + 1) * size, len - 1);
        let k = SequenceKeys::from_blocks(blocks, ids);
        let v = SequenceValues::from_blocks(blocks, ids);
        ForwardTask { kv_heads, q, k, v, path: &[], first, sinks, out }.run_task(*heads);
    }
}

/// Splits the first `len` elements off a slice.
fn split_front<'a>(slice: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (first, rest) = std::mem::take(slice).split_at_mut(len);
    *slice = rest;
    first
}

/// Appends the tasks of one row's queries from the `past`-th on, and splits their outputs off `out`.
fn push_tasks<'a>(
    tasks: &mut Vec<ForwardTask<'a>>,
    q: &'a [f32],
    past: usize,
    (k, v, path): (SequenceKeys<'a>, SequenceValues<'a>, &'a [Range<usize>]),
    (heads, sinks): (Heads, &'a [f32]),
    out: &mut &'a mut [f32],
) {
    let (mut q, mut first) = (q, past);
    while !q.is_empty() {
        let queries = match heads.first_long().checked_sub(first) {
            Some(few @ 1..) => few.min(QUERIES),
            _ => (tiled::TASK_ROWS / heads.group_size()).max(1),
        };
        let (part, rest) = q.split_at(q.len().min(queries * heads.q_width()));
        let out = split_front(out, part.len());
        tasks.push(ForwardTask { kv_heads: 0..heads.kv, q: part, k, v, path, first, sinks, out });
        (q, first) = (rest, first + queries);
    }
}

fn run_tasks(tasks: Vec<ForwardTask<'_>>, heads: Heads) {
    let work =
        tasks.iter().map(|task| (task.first + task.q.len() / heads.q_width()) * task.q.len());
    let work: usize = work.sum();
    if par::worth_it(work / PER_ELEMENT) {
        tasks.into_par_iter().for_each(|task| task.run_task(heads));
    } else {
        tasks.into_iter().for_each(|task| task.run_task(heads));
    }
}

#[cfg(test)]
mod tests;
