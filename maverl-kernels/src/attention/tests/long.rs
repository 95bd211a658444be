//! Rows with more keys than are held at once.

use super::*;

/// Shapes with and without a bound, a window and a usual size.
const LONG: [Heads; 5] = [
    Heads::new(2, 1, 64),
    Heads::new(3, 1, 20),
    Heads::new(2, 2, 33),
    Heads::new(4, 2, 16).with_scores(scored(601, None, None)),
    Heads::new(2, 1, 40).with_scores(scored(530, Some(1.5), Some(0.3))),
];

/// Result and gradients of one row in f64: those of `q`, `k`, `v`, and of each query's sinks.
struct Wide {
    out: Vec<f64>,
    grads: [Vec<f64>; 3],
    dsinks: Vec<f64>,
}

/// Computes a row with its gradients in f64.
fn wide_row(c: &Case, sinks: &[f32], dout: &[f32], heads: Heads) -> Wide {
    let Heads { q: hq, kv: hkv, dim, scores: Scores { scale, window, softcap }, .. } = heads;
    let scale = scale.map_or(1.0 / (dim as f64).sqrt(), f64::from);
    let (q, k, v, dout) = (wide(&c.q), wide(&c.k), wide(&c.v), wide(dout));
    let n = q.len() / (hq * dim);
    let mut of = Wide {
        out: vec![0.0; q.len()],
        grads: [&q, &k, &v].map(|x| vec![0.0; x.len()]),
        dsinks: vec![0.0; n * sinks.len()],
    };
    for (i, h) in (0..n).flat_map(|i| (0..hq).map(move |h| (i, h))) {
        let (qi, g) = ((i * hq + h) * dim, h / (hq / hkv));
        let at = |j: usize| (j * hkv + g) * dim;
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let first = window.map_or(0, |window| (i + 1).saturating_sub(window.get() as usize));
        let scores: Vec<f64> = (first..=i)
            .map(|j| scale * dot(&q[qi..qi + dim], &k[at(j)..at(j) + dim]))
            .map(|s| softcap.map_or(s, |cap| f64::from(cap) * (s / f64::from(cap)).tanh()))
            .collect();
        let sink = sinks.get(h).map(|&sink| f64::from(sink));
        let max = scores.iter().copied().chain(sink).fold(f64::MIN, f64::max);
        let of_sink = sink.map_or(0.0, |sink| (sink - max).exp());
        let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum::<f64>() + of_sink;
        let p: Vec<f64> = scores.iter().map(|s| (s - max).exp() / sum).collect();
        for (j, p) in (first..=i).zip(&p) {
            (0..dim).for_each(|d| of.out[qi + d] += p * v[at(j) + d]);
        }
        let pull = dot(&dout[qi..qi + dim], &of.out[qi..qi + dim]);
        if sink.is_some() {
            of.dsinks[i * hq + h] = -of_sink / sum * pull;
        }
        for ((j, p), s) in (first..=i).zip(&p).zip(&scores) {
            let dp = dot(&dout[qi..qi + dim], &v[at(j)..at(j) + dim]);
            let slope = softcap.map_or(1.0, |cap| 1.0 - (s / f64::from(cap)).powi(2));
            let ds = p * (dp - pull) * slope * scale;
            for d in 0..dim {
                of.grads[0][qi + d] += ds * k[at(j) + d];
                of.grads[1][at(j) + d] += ds * q[qi + d];
                of.grads[2][at(j) + d] += p * dout[qi + d];
            }
        }
    }
    of
}

/// Computes a row with its gradients, and those of each query's sinks.
fn row(c: &Case, sinks: &[f32], dout: &[f32], heads: Heads) -> (Vec<f32>, [Vec<f32>; 4]) {
    let n = c.q.len() / heads.q_width();
    let offsets = [0, n];
    let packing = Packing::from_offsets(&offsets);
    let mut out = vec![f32::NAN; c.q.len()];
    attention_sinks([&c.q, &c.k, &c.v], sinks, packing, heads, &mut out);
    let mut grads = [c.q.len(), c.k.len(), c.v.len(), n * sinks.len()].map(|n| vec![f32::NAN; n]);
    let slices = grads.each_mut().map(|grads| &mut grads[..]);
    attention_sinks_bwd([&c.q, &c.k, &c.v], [&out, dout], sinks, packing, heads, slices);
    (out, grads)
}

#[test]
fn long_rows_and_their_gradients_agree_with_f64() {
    for (heads, sinks) in LONG.into_iter().flat_map(|heads| {
        let sinks: Vec<f32> = (0..heads.q).map(|head| head as f32 + 2.0).collect();
        [(heads, vec![]), (heads, sinks)]
    }) {
        let c = case(1100, heads);
        let dout = random(4, c.q.len());
        let want = wide_row(&c, &sinks, &dout, heads);
        let (out, [dq, dk, dv, dsinks]) = row(&c, &sinks, &dout, heads);
        close(&out, &want.out, 4e-6);
        for (got, want) in [&dq, &dk, &dv].into_iter().zip(&want.grads) {
            close(got, want, 2e-5);
        }
        close(&dsinks, &want.dsinks, 2e-5);
    }
}

#[test]
fn a_query_of_many_keys_has_the_same_bits_in_every_pass() {
    for heads in LONG {
        let (n, qw) = (1061, heads.q_width());
        let c = case(n, heads);
        let together = forward(&c, &[0, n], heads);
        // Two rows of one batch, of which the other begins earlier.
        let mut twice = case(3, heads);
        for (twice, c) in [(&mut twice.q, &c.q), (&mut twice.k, &c.k), (&mut twice.v, &c.v)] {
            twice.extend_from_slice(c);
        }
        let both = forward(&twice, &[0, 3, n + 3], heads);
        same_bits(&both[3 * qw..], &together);
        for (len, new) in
            [(n, n), (n, 1), (n, 3), (n, 549), (n, 700), (513, 1), (769, 1), (1024, 40)]
        {
            let found = cached(&c, 0, len, new, heads);
            same_bits(&found, &together[(len - new) * qw..len * qw]);
        }
    }
}

#[test]
fn sinks_of_long_rows_have_the_same_bits_in_a_cache() {
    let (heads, n) = (LONG[3], 700);
    let (c, sinks) = (case(n, heads), [1.0, -3.0, 9.0, 0.5]);
    let (out, _) = row(&c, &sinks, &random(4, c.q.len()), heads);
    let mut store = Store::default();
    let ids = store.put(&c, 0, n, heads);
    for new_tokens in [1, 20] {
        let start = (n - new_tokens) * heads.q_width();
        let segment = Segment { new_tokens, len: n, blocks: &ids, state: 0 };
        let mut found = vec![f32::NAN; c.q.len() - start];
        let blocks = store.blocks(heads);
        attention_cached_sinks(&c.q[start..], blocks, &[segment], heads, &sinks, &mut found);
        same_bits(&found, &out[start..]);
    }
}

#[test]
fn a_window_as_long_as_a_long_row_changes_no_bit() {
    let (n, heads) = (900, LONG[0]);
    let c = case(n, heads);
    let dout = random(4, c.q.len());
    let (plain, of_plain) = row(&c, &[], &dout, heads);
    let (windowed, of_windowed) = row(&c, &[], &dout, heads.with_scores(scored(900, None, None)));
    same_bits(&plain, &windowed);
    of_plain.iter().zip(&of_windowed).for_each(|(a, b)| same_bits(a, b));
}

#[test]
fn keys_before_the_window_of_a_long_row_are_not_read() {
    let heads = LONG[3];
    let mut c = case(1000, heads);
    let before = [1, 30].map(|new| cached(&c, 0, 1000, new, heads));
    // The first of thirty queries attends to the keys from 370 on, which are in the blocks from 368 on.
    c.k[..368 * heads.kv_width()].fill(f32::NAN);
    c.v[..368 * heads.kv_width()].fill(f32::NAN);
    for (before, new) in before.iter().zip([1, 30]) {
        same_bits(&cached(&c, 0, 1000, new, heads), before);
    }
}

#[test]
fn nodes_of_a_long_tree_have_the_bits_of_their_paths_and_gradients_of_any_number_of_threads() {
    let offsets = [0, 400, 700, 960, 1500];
    let parents = [None, Some(0), Some(1), Some(0)];
    for heads in [LONG[1], LONG[3]] {
        let (qw, kvw) = (heads.q_width(), heads.kv_width());
        let c = case(1500, heads);
        let packing = Packing { offsets: &offsets, parents: &parents };
        let mut out = vec![f32::NAN; c.q.len()];
        attention(&c.q, &c.k, &c.v, packing, heads, &mut out);
        for path in [[0..400, 400..960], [0..400, 960..1500]] {
            let tokens: Vec<usize> = path.into_iter().flatten().collect();
            let n = tokens.len();
            let rows = [tokens];
            let alone = Case {
                q: pick(&c.q, qw, &rows),
                k: pick(&c.k, kvw, &rows),
                v: pick(&c.v, kvw, &rows),
            };
            same_bits(&pick(&out, qw, &rows), &forward(&alone, &[0, n], heads));
        }
        let dout = random(4, c.q.len());
        let run = |count| threads(count, || packed_gradients(&c, [&out, &dout], packing, heads));
        let one = run(1);
        one.iter().zip(&run(3)).for_each(|(a, b)| same_bits(a, b));
    }
}
