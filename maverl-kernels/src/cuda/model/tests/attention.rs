use super::*;
use crate::attention::{self as cpu, Heads, Packing, PathNode, Segment};
use crate::cuda::{KvShape, Slice};

/// Nodes of tokens, with their parents.
struct Case {
    heads: Heads,
    offsets: Vec<usize>,
    parents: Vec<Option<usize>>,
    q: Vec<u16>,
    k: Vec<u16>,
    v: Vec<u16>,
}

impl Case {
    fn new(heads: Heads, lengths: &[usize], parents: &[Option<usize>]) -> Self {
        let mut offsets = vec![0];
        lengths.iter().for_each(|len| offsets.push(offsets[offsets.len() - 1] + len));
        let n = offsets[offsets.len() - 1];
        let q = random_bf16(1, n * heads.q * heads.dim);
        let [k, v] = [2, 3].map(|seed| random_bf16(seed, n * heads.kv * heads.dim));
        // Larger queries, so that weights differ.
        let q = to_bf16(&from_bf16(&q).iter().map(|x| 6.0 * x).collect::<Vec<f32>>());
        Self { heads, offsets, parents: parents.to_vec(), q, k, v }
    }

    fn packing(&self) -> Packing<'_> {
        Packing { offsets: &self.offsets, parents: &self.parents }
    }

    fn tokens(&self) -> usize {
        self.offsets[self.offsets.len() - 1]
    }

    /// The result, and logarithms of the sums.
    fn attend<M: Tested>(&self, kernels: &Kernels<M>) -> (Vec<u16>, Vec<f32>) {
        let layout = kernels.attention_layout(self.packing()).unwrap();
        let qkv = [&self.q, &self.k, &self.v].map(|x| kernels.array_of(x).unwrap());
        let mut out = kernels.new_array(self.q.len()).unwrap();
        let mut lse = kernels.new_array(self.tokens() * self.heads.q).unwrap();
        let given = [qkv[0].as_slice(), qkv[1].as_slice(), qkv[2].as_slice()];
        kernels
            .attend_packed(given, &layout, self.heads, out.slice_mut(), lse.slice_mut())
            .unwrap();
        (kernels.read_array(&out).unwrap(), kernels.read_array(&lse).unwrap())
    }

    /// Gradients of `Σ dout out`.
    fn attend_back<M: Tested>(&self, kernels: &Kernels<M>, dout: &[u16]) -> [Vec<u16>; 3] {
        let (out, lse) = self.attend(kernels);
        let layout = kernels.backward_layout(self.packing()).unwrap();
        let [q, k, v, out, dout] =
            [&self.q, &self.k, &self.v, &out, &dout.to_vec()].map(|x| kernels.array_of(x).unwrap());
        let lse = kernels.array_of(&lse).unwrap();
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|x| kernels.new_array(x.len()).unwrap());
        let qkv: [Slice<'_, u16>; 3] = [q.as_slice(), k.as_slice(), v.as_slice()];
        let d = [dq.slice_mut(), dk.slice_mut(), dv.slice_mut()];
        let of = [out.as_slice(), dout.as_slice()];
        kernels.attend_back(qkv, of, lse.as_slice(), &layout, self.heads, d).unwrap();
        [dq, dk, dv].map(|x| kernels.read_array(&x).unwrap())
    }

    /// The keys that each token sees, in order.
    fn seen(&self) -> Vec<Vec<usize>> {
        let nodes = self.packing().path_nodes();
        let keys = |node: &PathNode, token: usize| {
            node.ancestors().flatten().chain(node.own.start..token + 1).collect()
        };
        nodes.iter().flat_map(|node| node.own.clone().map(move |token| keys(node, token))).collect()
    }

    /// Result and gradients in f64. `round` is applied to the terms that the kernels round to bf16: weights relative to the
    /// largest of the tiles of 64 keys so far, weights, and derivatives by scores.
    fn in_f64(&self, dout: &[u16], round: fn(f64) -> f64) -> [Vec<f64>; 4] {
        let Heads { q: hq, kv, dim, .. } = self.heads;
        let [q, k, v, dout] = [&self.q[..], &self.k, &self.v, dout].map(wide);
        let [mut out, mut dq] = [0; 2].map(|_| vec![0.0; q.len()]);
        let [mut dk, mut dv] = [0; 2].map(|_| vec![0.0; k.len()]);
        let scale = 1.0 / (dim as f64).sqrt();
        for (token, keys) in self.seen().into_iter().enumerate() {
            for head in 0..hq {
                let at = (token * hq + head) * dim;
                let key = |j: usize| (keys[j] * kv + head / (hq / kv)) * dim;
                let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let scores: Vec<f64> = (0..keys.len())
                    .map(|j| scale * dot(&q[at..at + dim], &k[key(j)..key(j) + dim]))
                    .collect();
                let most = scores.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
                let mut so_far = f64::MIN;
                for (tile, of) in scores.chunks(64).enumerate() {
                    so_far = of.iter().copied().fold(so_far, f64::max);
                    for (j, s) in of.iter().enumerate() {
                        let p = round((s - so_far).exp()) * (so_far - most).exp() / sum;
                        let of = key(64 * tile + j);
                        (0..dim).for_each(|c| out[at + c] += p * v[of + c]);
                    }
                }
                let delta: f64 = (0..dim).map(|c| dout[at + c] * round(out[at + c])).sum();
                for (j, s) in scores.iter().enumerate() {
                    let (of, p) = (key(j), (s - most).exp() / sum);
                    let dp = dot(&dout[at..at + dim], &v[of..of + dim]);
                    let (p, ds) = (round(p), scale * round(p * (dp - delta)));
                    for c in 0..dim {
                        dq[at + c] += ds * k[of + c];
                        dk[of + c] += ds * q[at + c];
                        dv[of + c] += p * dout[at + c];
                    }
                }
            }
        }
        [out, dq, dk, dv]
    }
}

fn heads(q: usize, kv: usize, dim: usize) -> Heads {
    Heads::new(q, kv, dim)
}

fn cases() -> Vec<Case> {
    vec![
        Case::new(heads(1, 1, 32), &[1, 7, 63], &[None; 3]),
        Case::new(heads(2, 1, 64), &[17, 0, 65, 3], &[None, Some(0), Some(0), None]),
        Case::new(heads(4, 1, 128), &[40], &[None]),
        Case::new(heads(7, 1, 32), &[130, 5], &[None; 2]),
        Case::new(heads(8, 1, 32), &[70, 9, 66], &[None, Some(0), Some(0)]),
        Case::new(
            heads(2, 1, 32),
            &[21, 3, 40, 70, 5, 33, 8],
            &[None, Some(0), Some(1), Some(1), Some(3), Some(0), None],
        ),
    ]
}

pub(super) fn attention_and_its_gradients_agree_with_f64_and_the_cpu<M: Tested>(
    kernels: &Kernels<M>,
) {
    for case in cases() {
        let dout = random_bf16(5, case.q.len());
        let run = |kernels: &Kernels<M>| {
            let (out, lse) = case.attend(kernels);
            (out, bits(&lse), case.attend_back(kernels, &dout))
        };
        let (out, _, [dq, dk, dv]) = in_every_order(kernels, run);
        let name = format!("{:?}, {:?}", case.heads, case.offsets);
        let got = [&out, &dq, &dk, &dv].map(|x| from_bf16(x));
        // Of the same terms in bf16, then without rounding any.
        let bounds = [[2e-3; 4], [3e-3, 6e-3, 6e-3, 6e-3]];
        let rounds = [|x: f64| wide(&to_bf16(&[x as f32]))[0], |x| x];
        for (round, bounds) in rounds.into_iter().zip(bounds) {
            let want = case.in_f64(&dout, round);
            for (((part, got), want), bound) in
                ["out", "dq", "dk", "dv"].iter().zip(&got).zip(want).zip(bounds)
            {
                near(&format!("{name}, {part}"), got, &want, bound);
            }
        }
        let [q, k, v] = [&case.q, &case.k, &case.v].map(|x| from_bf16(x));
        let mut by_cpu = vec![0.0; q.len()];
        cpu::attention(&q, &k, &v, case.packing(), case.heads, &mut by_cpu);
        let by_cpu: Vec<f64> = by_cpu.into_iter().map(f64::from).collect();
        near(&name, &from_bf16(&out), &by_cpu, 3e-3);
    }
}

/// Attention of one row in calls that end at the given tokens, from blocks in another order.
fn by_calls<M: Tested>(kernels: &Kernels<M>, case: &Case, ends: &[usize]) -> Vec<u16> {
    let Heads { q: hq, kv, dim, .. } = case.heads;
    let count = case.tokens().div_ceil(16);
    let blocks: Vec<u32> = (0..count).map(|i| ((i * 7 + 3) % 211) as u32).collect();
    let shape = KvShape { layers: 2, heads: kv, dim };
    let most = blocks.iter().max().map_or(0, |&block| block as usize + 1);
    let mut cache = kernels.new_array::<u16>(most * shape.block_len()).unwrap();
    let mut all = Vec::new();
    let mut start = 0;
    for &end in ends {
        let segment = Segment { new_tokens: end - start, len: end, blocks: &blocks, state: 0 };
        let tables = kernels.block_tables(&[segment]).unwrap();
        let part =
            |x: &[u16], width: usize| kernels.array_of(&x[start * width..end * width]).unwrap();
        let (q, k, v) = (part(&case.q, hq * dim), part(&case.k, kv * dim), part(&case.v, kv * dim));
        let kv = [k.as_slice(), v.as_slice()];
        kernels.append_tokens(kv, &tables, shape, 1, cache.slice_mut()).unwrap();
        let mut out = kernels.new_array(q.len()).unwrap();
        let to = out.slice_mut();
        kernels
            .attend_cached(q.as_slice(), cache.as_slice(), &tables, shape, 1, case.heads, to)
            .unwrap();
        all.extend(kernels.read_array(&out).unwrap());
        start = end;
    }
    all
}

pub(super) fn a_token_has_the_same_bits_packed_behind_a_prefix_in_chunks_and_decoded<M: Tested>(
    kernels: &Kernels<M>,
) {
    for (q, kv, dim) in [(2, 1, 32), (4, 2, 64), (3, 1, 128)] {
        let len = 150;
        let whole = Case::new(heads(q, kv, dim), &[len], &[None]);
        let (want, _) = whole.attend(kernels);
        let width = q * dim;
        // In two nodes, with a sibling between.
        let cut = 37;
        let mut split =
            Case::new(heads(q, kv, dim), &[cut, 20, len - cut], &[None, Some(0), Some(0)]);
        for (to, from, width) in [
            (&mut split.q, &whole.q, width),
            (&mut split.k, &whole.k, kv * dim),
            (&mut split.v, &whole.v, kv * dim),
        ] {
            to[..cut * width].copy_from_slice(&from[..cut * width]);
            to[(cut + 20) * width..].copy_from_slice(&from[cut * width..]);
        }
        let (got, _) = split.attend(kernels);
        assert!(got[..cut * width] == want[..cut * width], "the parent, {q} {kv} {dim}");
        assert!(got[(cut + 20) * width..] == want[cut * width..], "behind it, {q} {kv} {dim}");
        // In one call, in chunks, token by token.
        let single: Vec<usize> = (1..=len).collect();
        for ends in [&[len][..], &[7, 70, 71, 72, 140, len], &single] {
            kernels.machine().settings(ThreadSchedule {
                copies_at_once: ends.len() > 6,
                ..ThreadSchedule::default()
            });
            assert!(by_calls(kernels, &whole, ends) == want, "{} calls", ends.len());
        }
        kernels.machine().settings(ThreadSchedule::default());
    }
}

pub(super) fn a_row_has_the_same_bits_alone_and_in_any_order_of_a_batch<M: Tested>(
    kernels: &Kernels<M>,
) {
    let (of, lengths) = (heads(2, 2, 64), [70, 1, 130]);
    let batch = Case::new(of, &lengths, &[None; 3]);
    let (want, _) = batch.attend(kernels);
    let row = |x: &[u16], r: usize| -> Vec<u16> {
        x[batch.offsets[r] * 128..batch.offsets[r + 1] * 128].to_vec()
    };
    for order in [vec![0], vec![1], vec![2], vec![2, 0, 1]] {
        let lengths: Vec<usize> = order.iter().map(|&r| lengths[r]).collect();
        let mut case = Case::new(of, &lengths, &vec![None; order.len()]);
        for (to, from) in
            [(&mut case.q, &batch.q), (&mut case.k, &batch.k), (&mut case.v, &batch.v)]
        {
            *to = order.iter().flat_map(|&r| row(from, r)).collect();
        }
        let rows: Vec<u16> = order.iter().flat_map(|&r| row(&want, r)).collect();
        assert!(case.attend(kernels).0 == rows, "rows {order:?}");
    }
}

pub(super) fn decoding_agrees_in_every_order<M: Tested>(kernels: &Kernels<M>) {
    let case = Case::new(heads(4, 2, 64), &[70], &[None]);
    let (want, _) = case.attend(kernels);
    let got = in_every_order(kernels, |kernels| by_calls(kernels, &case, &[63, 64, 65, 70]));
    assert!(got == want);
}

pub(super) fn a_long_row_has_the_same_bits_decoded_over_several_spans<M: Tested>(
    kernels: &Kernels<M>,
) {
    let len = 2120;
    let case = Case::new(heads(1, 1, 32), &[len], &[None]);
    let (want, _) = case.attend(kernels);
    let got = by_calls(kernels, &case, &[2040, 2047, 2048, 2049, 2050, 2118, 2119, len]);
    assert!(got == want);
    let [q, k, v] = [&case.q, &case.k, &case.v].map(|x| from_bf16(x));
    let mut by_cpu = vec![0.0; q.len()];
    cpu::attention(&q, &k, &v, case.packing(), case.heads, &mut by_cpu);
    let by_cpu: Vec<f64> = by_cpu.into_iter().map(f64::from).collect();
    near("a long row", &from_bf16(&want), &by_cpu, 3e-3);
}

pub(super) fn sequences_with_one_and_several_new_tokens_share_a_call<M: Tested>(
    kernels: &Kernels<M>,
) {
    let (of, shape) = (heads(2, 1, 32), KvShape { layers: 1, heads: 1, dim: 32 });
    let case = Case::new(of, &[40, 21, 90], &[None; 3]);
    let (want, _) = case.attend(kernels);
    let all: Vec<Vec<u32>> = vec![vec![4, 2, 0], vec![9, 1], vec![3, 5, 6, 7, 8, 10]];
    let segments = |new: [usize; 3], len: [usize; 3]| -> Vec<Segment<'_>> {
        (0..3)
            .map(|i| Segment { new_tokens: new[i], len: len[i], blocks: &all[i], state: 0 })
            .collect()
    };
    let mut cache = kernels.new_array::<u16>(11 * shape.block_len()).unwrap();
    for (new, len) in [([39, 20, 60], [39, 20, 60]), ([1, 1, 30], [40, 21, 90])] {
        let tables = kernels.block_tables(&segments(new, len)).unwrap();
        let rows = |x: &[u16], width: usize| -> Vec<u16> {
            let row = |i: usize| {
                let end = case.offsets[i] + len[i];
                x[(end - new[i]) * width..end * width].to_vec()
            };
            (0..3).flat_map(row).collect()
        };
        let [q, k, v] = [rows(&case.q, 64), rows(&case.k, 32), rows(&case.v, 32)]
            .map(|x| kernels.array_of(&x).unwrap());
        let kv = [k.as_slice(), v.as_slice()];
        kernels.append_tokens(kv, &tables, shape, 0, cache.slice_mut()).unwrap();
        let mut out = kernels.new_array(q.len()).unwrap();
        let to = out.slice_mut();
        kernels.attend_cached(q.as_slice(), cache.as_slice(), &tables, shape, 0, of, to).unwrap();
        assert!(kernels.read_array(&out).unwrap() == rows(&want, 64));
    }
}
