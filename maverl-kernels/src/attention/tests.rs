#![allow(clippy::unwrap_used)] // golden values

mod long;
mod sinks;

use std::num::NonZeroU32;

use super::*;
use crate::testing::{close, numeric, random, same_bits, threads, weigh, wide};

fn reference(q: &[f64], k: &[f64], v: &[f64], offsets: &[usize], heads: Heads) -> Vec<f64> {
    let Heads { q: hq, kv: hkv, dim, scores: Scores { scale, window, softcap }, .. } = heads;
    let scale = scale.map_or(1.0 / (dim as f64).sqrt(), f64::from);
    let mut out = vec![0.0; q.len()];
    for row in offsets.windows(2) {
        for i in row[0]..row[1] {
            for h in 0..hq {
                let g = h / (hq / hkv);
                let at = |j: usize, d: usize| (j * hkv + g) * dim + d;
                let query = &q[(i * hq + h) * dim..][..dim];
                let score = |j: usize| {
                    let dot: f64 = (0..dim).map(|d| query[d] * k[at(j, d)]).sum();
                    let s = dot * scale;
                    softcap.map_or(s, |cap| f64::from(cap) * (s / f64::from(cap)).tanh())
                };
                let first = window.map_or(row[0], |window| {
                    row[0].max((i + 1).saturating_sub(window.get() as usize))
                });
                let scores: Vec<f64> = (first..=i).map(score).collect();
                let max = scores.iter().fold(f64::MIN, |a, &b| a.max(b));
                let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                for (j, s) in (first..=i).zip(&scores) {
                    let p = (s - max).exp() / sum;
                    for d in 0..dim {
                        out[(i * hq + h) * dim + d] += p * v[at(j, d)];
                    }
                }
            }
        }
    }
    out
}

struct Case {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

fn case(n: usize, heads: Heads) -> Case {
    let (qw, kvw) = (n * heads.q_width(), n * heads.kv_width());
    let q = random(1, qw).iter().map(|q| q * 4.0).collect();
    Case { q, k: random(2, kvw), v: random(3, kvw) }
}

fn forward(c: &Case, offsets: &[usize], heads: Heads) -> Vec<f32> {
    let mut out = vec![f32::NAN; c.q.len()];
    attention(&c.q, &c.k, &c.v, Packing::from_offsets(offsets), heads, &mut out);
    out
}

fn backward(c: &Case, dout: &[f32], offsets: &[usize], heads: Heads) -> [Vec<f32>; 3] {
    let out = forward(c, offsets, heads);
    packed_gradients(c, [&out, dout], Packing::from_offsets(offsets), heads)
}

const fn scored(window: u32, softcap: Option<f32>, scale: Option<f32>) -> Scores {
    Scores { scale, window: NonZeroU32::new(window), softcap }
}

const SHAPES: [Heads; 10] = [
    Heads::new(4, 4, 32),
    Heads::new(4, 2, 16),
    Heads::new(3, 1, 7),
    Heads::new(2, 1, 128),
    Heads::new(1, 1, 1),
    Heads::new(6, 3, 40),
    Heads::new(4, 2, 16).with_scores(scored(7, None, None)),
    Heads::new(3, 1, 7).with_scores(scored(21, Some(1.5), Some(0.3))),
    Heads::new(2, 1, 64).with_scores(scored(100, None, Some(0.1))),
    Heads::new(2, 2, 20).with_scores(scored(1, Some(0.5), None)),
];

#[test]
fn a_window_of_the_whole_row_changes_no_bit() {
    for heads in &SHAPES[..6] {
        let (offsets, c) = ([0, 1, 60, 190], case(190, *heads));
        let dout = random(4, c.q.len());
        let wide = heads.with_scores(scored(130, None, None));
        same_bits(&forward(&c, &offsets, *heads), &forward(&c, &offsets, wide));
        let [plain, windowed] = [*heads, wide].map(|heads| backward(&c, &dout, &offsets, heads));
        plain.iter().zip(&windowed).for_each(|(a, b)| same_bits(a, b));
    }
}

#[test]
fn keys_before_the_window_are_not_read() {
    let heads = SHAPES[6];
    let mut c = case(100, heads);
    let before = cached(&c, 0, 100, 1, heads);
    // The last query attends to the keys from 93 on, which are in the blocks from 80 on.
    c.k[..80 * heads.kv_width()].fill(f32::NAN);
    c.v[..80 * heads.kv_width()].fill(f32::NAN);
    same_bits(&cached(&c, 0, 100, 1, heads), &before);
}

#[test]
fn forward_agrees_with_f64_on_ragged_rows() {
    for heads in SHAPES {
        let offsets = [0, 1, 1, 18, 19, 60, 190];
        let c = case(190, heads);
        let want = reference(&wide(&c.q), &wide(&c.k), &wide(&c.v), &offsets, heads);
        close(&forward(&c, &offsets, heads), &want, 2e-6);
    }
}

#[test]
fn backward_agrees_with_central_differences_on_ragged_rows() {
    let scored = SHAPES[6..].iter().filter(|heads| heads.dim < 64).copied();
    for heads in [SHAPES[1], SHAPES[2], SHAPES[4], Heads::new(2, 2, 20)].into_iter().chain(scored) {
        let offsets = [0, 1, 4, 4, 22];
        let c = case(22, heads);
        let dout = random(4, c.q.len());
        let [dq, dk, dv] = backward(&c, &dout, &offsets, heads);
        let (q, k, v) = (wide(&c.q), wide(&c.k), wide(&c.v));
        let loss =
            |q: &[f64], k: &[f64], v: &[f64]| weigh(&reference(q, k, v, &offsets, heads), &dout);
        close(&dq, &numeric(&q, |q| loss(q, &k, &v)), 1e-4);
        close(&dk, &numeric(&k, |k| loss(&q, k, &v)), 1e-4);
        close(&dv, &numeric(&v, |v| loss(&q, &k, v)), 1e-4);
    }
}

/// Sequences in blocks of sixteen tokens in arbitrary order. Slots that no token wrote are NaN.
#[derive(Default)]
struct Store {
    storage: Vec<CacheBlock>,
}

impl Store {
    const TOKENS: usize = BLOCK_TOKENS;

    /// Writes tokens `start..start + len` to blocks of their own, between blocks that no sequence uses.
    fn put(&mut self, c: &Case, start: usize, len: usize, heads: Heads) -> Vec<u32> {
        let kvw = heads.kv_width();
        let mut ids = Vec::new();
        for first in (0..len).step_by(Self::TOKENS) {
            let mut block = vec![f32::NAN; 2 * Self::TOKENS * kvw];
            let at = (start + first) * kvw..(start + len.min(first + Self::TOKENS)) * kvw;
            let (keys, values) = block.split_at_mut(Self::TOKENS * kvw);
            for (token, k) in c.k[at.clone()].chunks_exact(kvw).enumerate() {
                for (line, k) in keys.chunks_exact_mut(Self::TOKENS).zip(k) {
                    line[token] = *k;
                }
            }
            values[..at.len()].copy_from_slice(&c.v[at]);
            self.storage.push(block.into());
            self.storage.push(CacheBlock::default());
            ids.insert(0, self.storage.len() as u32 - 2);
        }
        // First tokens of the last block.
        let last = self.storage.len();
        self.storage[last - 2 * ids.len()..].reverse();
        ids.iter_mut().for_each(|id| *id += 1);
        ids
    }

    fn blocks(&self, heads: Heads) -> CacheBlocks<'_> {
        let values = Self::TOKENS * heads.kv_width();
        CacheBlocks { storage: &self.storage, keys: 0, values }
    }
}

/// Computes attention of the last `new` tokens of the first `len` of a row.
fn cached(c: &Case, start: usize, len: usize, new: usize, heads: Heads) -> Vec<f32> {
    let qw = heads.q_width();
    let mut store = Store::default();
    let ids = store.put(c, start, len, heads);
    let q = &c.q[(start + len - new) * qw..(start + len) * qw];
    let mut out = vec![f32::NAN; q.len()];
    let segment = Segment { new_tokens: new, len, blocks: &ids, state: 0 };
    attention_cached(q, store.blocks(heads), &[segment], heads, &mut out);
    out
}

#[test]
fn tokens_one_by_one_or_in_chunks_have_the_bits_of_the_whole_row() {
    for heads in SHAPES {
        let (start, n) = (9, 300);
        let c = case(n, heads);
        let whole = forward(&c, &[0, start, n], heads);
        let len = n - start;
        for new in [1, 3, 7, 8, 9, 64, 129] {
            let mut out = Vec::new();
            for first in (0..len).step_by(new) {
                let end = len.min(first + new);
                out.extend(cached(&c, start, end, end - first, heads));
            }
            same_bits(&out, &whole[start * heads.q_width()..]);
        }
    }
}

#[test]
fn segments_do_not_know_each_other() {
    let heads = SHAPES[0];
    let qw = heads.q_width();
    let c = case(400, heads);
    let parts =
        [(0, 40, 1), (40, 100, 100), (140, 33, 5), (173, 1, 1), (174, 200, 20), (374, 5, 0)];
    let alone: Vec<Vec<f32>> =
        parts.iter().map(|&(start, len, new)| cached(&c, start, len, new, heads)).collect();
    for order in [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 0, 5, 1, 4, 3]] {
        let mut store = Store::default();
        let ids = order.map(|i| store.put(&c, parts[i].0, parts[i].1, heads));
        let segments = std::array::from_fn::<_, 6, _>(|at| {
            let (_, len, new_tokens) = parts[order[at]];
            Segment { new_tokens, len, blocks: &ids[at], state: 0 }
        });
        let q: Vec<f32> = order
            .iter()
            .flat_map(|&i| {
                let (start, len, new) = parts[i];
                &c.q[(start + len - new) * qw..(start + len) * qw]
            })
            .copied()
            .collect();
        let mut out = vec![f32::NAN; q.len()];
        attention_cached(&q, store.blocks(heads), &segments, heads, &mut out);
        let want: Vec<f32> = order.iter().flat_map(|&i| &alone[i]).copied().collect();
        same_bits(&out, &want);
    }
}

#[test]
fn rows_and_threads_do_not_change_bits() {
    for heads in [SHAPES[0], SHAPES[1]] {
        let mut offsets = vec![0];
        offsets.extend((0..64).scan(0, |end, i| {
            *end += 1 + i * 37 % 90;
            Some(*end)
        }));
        let n = offsets[64];
        let c = case(n, heads);
        let dout = random(4, c.q.len());
        let run = |count| {
            threads(count, || {
                let [dq, dk, dv] = backward(&c, &dout, &offsets, heads);
                [forward(&c, &offsets, heads), dq, dk, dv]
            })
        };
        let (one, four) = (run(1), run(4));
        one.iter().zip(&four).for_each(|(a, b)| same_bits(a, b));
        let (qw, kvw) = (heads.q_width(), heads.kv_width());
        for row in [0, 1, 31, 63] {
            let (at_q, at_kv) = (
                offsets[row] * qw..offsets[row + 1] * qw,
                offsets[row] * kvw..offsets[row + 1] * kvw,
            );
            let alone = Case {
                q: c.q[at_q.clone()].to_vec(),
                k: c.k[at_kv.clone()].to_vec(),
                v: c.v[at_kv.clone()].to_vec(),
            };
            let len = [0, offsets[row + 1] - offsets[row]];
            same_bits(&forward(&alone, &len, heads), &one[0][at_q.clone()]);
            let grads = backward(&alone, &dout[at_q.clone()], &len, heads);
            for (grad, (whole, at)) in
                grads.iter().zip(one[1..].iter().zip([at_q, at_kv.clone(), at_kv]))
            {
                same_bits(grad, &whole[at]);
            }
        }
    }
}

#[test]
fn queries_of_a_long_row_have_the_bits_of_each_decoded_alone() {
    for heads in [Heads::new(2, 1, 64), Heads::new(3, 1, 128), SHAPES[8]] {
        let (n, qw) = (1300, heads.q_width());
        let c = case(n, heads);
        let together = forward(&c, &[0, n], heads);
        same_bits(&cached(&c, 0, n, n, heads), &together);
        for i in [0, 500, 513, 1024, 1299] {
            let alone = cached(&c, 0, i + 1, 1, heads);
            same_bits(&alone, &together[i * qw..(i + 1) * qw]);
        }
    }
}

#[test]
fn a_token_decoded_by_head_has_the_bits_of_one_thread() {
    for heads in [Heads::new(6, 3, 40), Heads::new(14, 2, 64), SHAPES[6]] {
        let c = case(3000, heads);
        let decoded = |count| threads(count, || cached(&c, 0, 3000, 1, heads));
        let one = decoded(1);
        for count in [2, 5] {
            same_bits(&decoded(count), &one);
        }
    }
}

#[test]
fn one_long_row_by_head_has_the_bits_of_one_thread() {
    let heads = Heads::new(4, 2, 64);
    let c = case(600, heads);
    let dout = random(4, c.q.len());
    let one = threads(1, || backward(&c, &dout, &[0, 600], heads));
    let two = threads(2, || backward(&c, &dout, &[0, 600], heads));
    one.iter().zip(&two).for_each(|(a, b)| same_bits(a, b));
}

#[test]
#[should_panic(expected = "k has 8 elements, not [3, 4]")]
fn wrong_shapes_are_named() {
    let heads = Heads::new(1, 1, 4);
    let packing = Packing::from_offsets(&[0, 3]);
    attention(&[0.0; 12], &[0.0; 8], &[0.0; 12], packing, heads, &mut [0.0; 12]);
}

/// Nodes of two trees: one with siblings at two levels, a chain, a node without tokens, and a root alone.
const OFFSETS: [usize; 10] = [0, 21, 30, 30, 70, 75, 93, 110, 128, 131];
const PARENTS: [Option<usize>; 9] =
    [None, Some(0), Some(0), Some(2), Some(3), Some(3), Some(0), Some(6), None];

/// Returns the path of each node, by the indices of its tokens, and the bounds of the paths one after the other.
fn paths() -> (Vec<usize>, Vec<Vec<usize>>) {
    let mut rows: Vec<Vec<usize>> = Vec::new();
    for n in 0..PARENTS.len() {
        let before = PARENTS[n].map_or_else(Vec::new, |parent| rows[parent].clone());
        rows.push(before.into_iter().chain(OFFSETS[n]..OFFSETS[n + 1]).collect());
    }
    let ends = rows.iter().scan(0, |end, row| {
        *end += row.len();
        Some(*end)
    });
    (std::iter::once(0).chain(ends).collect(), rows)
}

/// Returns the rows of `width` at these indices.
fn pick(x: &[f32], width: usize, rows: &[Vec<usize>]) -> Vec<f32> {
    rows.iter().flatten().flat_map(|&at| &x[at * width..(at + 1) * width]).copied().collect()
}

/// Returns the gradients of queries, keys and values from the result and its gradient.
fn packed_gradients(
    c: &Case,
    [out, dout]: [&[f32]; 2],
    packing: Packing<'_>,
    heads: Heads,
) -> [Vec<f32>; 3] {
    let mut grads = [&c.q, &c.k, &c.v].map(|x| vec![f32::NAN; x.len()]);
    let [dq, dk, dv] = &mut grads;
    attention_bwd(&c.q, &c.k, &c.v, out, dout, packing, heads, dq, dk, dv);
    grads
}

#[test]
fn nodes_of_a_tree_have_the_bits_of_their_paths_alone() {
    for heads in SHAPES {
        let (whole, rows) = paths();
        let (c, qw, kvw) = (case(131, heads), heads.q_width(), heads.kv_width());
        let mut out = vec![f32::NAN; c.q.len()];
        let packing = Packing { offsets: &OFFSETS, parents: &PARENTS };
        attention(&c.q, &c.k, &c.v, packing, heads, &mut out);
        let apart =
            Case { q: pick(&c.q, qw, &rows), k: pick(&c.k, kvw, &rows), v: pick(&c.v, kvw, &rows) };
        same_bits(&pick(&out, qw, &rows), &forward(&apart, &whole, heads));
    }
}

#[test]
fn gradients_of_a_tree_are_the_sums_of_those_of_paths_and_have_the_same_bits_on_any_number_of_threads()
 {
    for heads in SHAPES {
        let (whole, rows) = paths();
        let (c, qw, kvw) = (case(131, heads), heads.q_width(), heads.kv_width());
        let packing = Packing { offsets: &OFFSETS, parents: &PARENTS };
        let mut out = vec![f32::NAN; c.q.len()];
        attention(&c.q, &c.k, &c.v, packing, heads, &mut out);
        let dout = random(4, c.q.len());
        let run = |count| threads(count, || packed_gradients(&c, [&out, &dout], packing, heads));
        let grads = run(1);
        for count in [2, 7] {
            grads.iter().zip(&run(count)).for_each(|(a, b)| same_bits(a, b));
        }
        let apart =
            Case { q: pick(&c.q, qw, &rows), k: pick(&c.k, kvw, &rows), v: pick(&c.v, kvw, &rows) };
        // The loss of a node's queries counts once.
        let mut given = pick(&dout, qw, &rows);
        for (r, row) in rows.iter().enumerate() {
            for (i, _) in row.iter().enumerate().filter(|(_, at)| **at < OFFSETS[r]) {
                given[(whole[r] + i) * qw..][..qw].fill(0.0);
            }
        }
        let found = backward(&apart, &given, &whole, heads);
        for ((grads, found), width) in grads.iter().zip(found).zip([qw, kvw, kvw]) {
            let mut sums = vec![0.0; grads.len()];
            for (&at, found) in rows.iter().flatten().zip(found.chunks_exact(width)) {
                let sums = &mut sums[at * width..][..width];
                sums.iter_mut().zip(found).for_each(|(sum, x)| *sum += f64::from(*x));
            }
            close(grads, &sums, 1e-5);
        }
    }
}

#[test]
fn attention_over_a_tree_has_the_golden_values() {
    let all: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/fixtures/packing_tree.json")).unwrap();
    let case = &all["attention"];
    let list = |side: &str, name: &str| -> Vec<f64> {
        let rows = case[side][name].as_array().unwrap().iter();
        rows.flat_map(|row| row.as_array().unwrap()).map(|x| x.as_f64().unwrap()).collect()
    };
    let narrow = |name| list("inputs", name).into_iter().map(|x| x as f32).collect::<Vec<f32>>();
    let [q, k, v, dout] = ["q", "k", "v", "dout"].map(narrow);
    let numbers = |name: &str| case["inputs"][name].as_array().unwrap().iter();
    let offsets: Vec<usize> = numbers("offsets").map(|x| x.as_u64().unwrap() as usize).collect();
    let parents: Vec<_> = numbers("parents").map(|x| x.as_u64().map(|x| x as usize)).collect();
    let (packing, heads) = (Packing { offsets: &offsets, parents: &parents }, Heads::new(1, 1, 3));
    let mut out = vec![f32::NAN; q.len()];
    attention(&q, &k, &v, packing, heads, &mut out);
    let [mut dq, mut dk, mut dv] = [(); 3].map(|()| vec![f32::NAN; q.len()]);
    attention_bwd(&q, &k, &v, &out, &dout, packing, heads, &mut dq, &mut dk, &mut dv);
    for (name, got) in [("out", &out), ("dq", &dq), ("dk", &dk), ("dv", &dv)] {
        close(got, &list("outputs", name), 1e-6);
    }
}

#[test]
#[should_panic(expected = "the parent of node 3 is the node before it or an ancestor of that")]
fn nodes_that_are_not_in_pre_order_are_refused() {
    let parents = [None, Some(0), None, Some(1)];
    Packing { offsets: &[0, 1, 2, 3, 4], parents: &parents }.assert_valid("attention");
}
