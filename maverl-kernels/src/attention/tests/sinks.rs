//! Sinks: scores under the softmax without a key or a value.

use super::*;

const HEADS: Heads = Heads::new(4, 2, 16);

/// Attention of one row to `sinks` in f64: a key of zeros in front, whose score is the sink's and whose value is zero.
fn with_sinks(q: &[f64], k: &[f64], v: &[f64], sinks: &[f64]) -> Vec<f64> {
    let Heads { q: count, kv, dim, scores, .. } = HEADS;
    let group = count / kv;
    let n = q.len() / (count * dim);
    let mut out = vec![0.0; q.len()];
    for (i, head) in (0..n).flat_map(|i| (0..count).map(move |head| (i, head))) {
        let at = |j: usize| (j * kv + head / group) * dim;
        let query = &q[(i * count + head) * dim..][..dim];
        let first = scores.window.map_or(0, |w| (i + 1).saturating_sub(w.get() as usize));
        let score = |j: usize| {
            let dot: f64 = query.iter().zip(&k[at(j)..]).map(|(q, k)| q * k).sum();
            (dot / (dim as f64).sqrt()).exp()
        };
        let sum: f64 = (first..=i).map(score).sum::<f64>() + sinks[head].exp();
        for (j, d) in (first..=i).flat_map(|j| (0..dim).map(move |d| (j, d))) {
            out[(i * count + head) * dim + d] += score(j) / sum * v[at(j) + d];
        }
    }
    out
}

fn forward(c: &Case, sinks: &[f32], heads: Heads) -> Vec<f32> {
    let mut out = vec![f32::NAN; c.q.len()];
    let offsets = [0, c.q.len() / heads.q_width()];
    attention_sinks([&c.q, &c.k, &c.v], sinks, Packing::from_offsets(&offsets), heads, &mut out);
    out
}

#[test]
fn forward_and_backward_with_sinks_agree_with_f64() {
    let (n, c, sinks) = (37, case(37, HEADS), [1.5, -2.0, 0.0, 6.0]);
    let out = forward(&c, &sinks, HEADS);
    let (q, k, v) = (wide(&c.q), wide(&c.k), wide(&c.v));
    close(&out, &with_sinks(&q, &k, &v, &wide(&sinks)), 1e-5);
    let dout = random(4, c.q.len());
    let mut grads = [&c.q, &c.k, &c.v].map(|x| vec![f32::NAN; x.len()]);
    let mut dsinks = vec![f32::NAN; n * 4];
    let [dq, dk, dv] = &mut grads;
    let packing = [0, n];
    attention_sinks_bwd(
        [&c.q, &c.k, &c.v],
        [&out, &dout],
        &sinks,
        Packing::from_offsets(&packing),
        HEADS,
        [dq, dk, dv, &mut dsinks],
    );
    let loss = |sinks: &[f64]| weigh(&with_sinks(&q, &k, &v, sinks), &dout);
    let sums: Vec<f32> = (0..4).map(|h| dsinks.iter().skip(h).step_by(4).sum()).collect();
    close(&sums, &numeric(&wide(&sinks), loss), 1e-4);
    let loss = |k: &[f64]| weigh(&with_sinks(&q, k, &v, &wide(&sinks)), &dout);
    close(&grads[1], &numeric(&k, loss), 1e-4);
}

#[test]
fn a_sink_without_weight_changes_no_bit_and_a_cache_has_the_bits_of_the_row() {
    for heads in [HEADS, SHAPES[6], SHAPES[2]] {
        let c = case(60, heads);
        let low = vec![-1e30; heads.q];
        same_bits(&forward(&c, &low, heads), &forward(&c, &[], heads));
        let sinks: Vec<f32> = (0..heads.q).map(|head| head as f32 - 1.0).collect();
        let whole = forward(&c, &sinks, heads);
        for start in [0, 17, 59] {
            let mut store = Store::default();
            let ids = store.put(&c, 0, 60, heads);
            let qw = heads.q_width();
            let segment = Segment { new_tokens: 60 - start, len: 60, blocks: &ids, state: 0 };
            let mut out = vec![f32::NAN; (60 - start) * qw];
            let queries = &c.q[start * qw..];
            attention_cached_sinks(
                queries,
                store.blocks(heads),
                &[segment],
                heads,
                &sinks,
                &mut out,
            );
            same_bits(&out, &whole[start * qw..]);
        }
    }
}

#[test]
#[should_panic(expected = "3 sinks of 4 heads")]
fn sinks_of_some_heads_are_refused() {
    forward(&case(2, HEADS), &[0.0; 3], HEADS);
}
