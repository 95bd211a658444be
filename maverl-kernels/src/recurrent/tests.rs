use super::*;
use crate::attention::Packing;
use crate::testing::{close, numeric, random, same_bits, threads, weigh, wide};

const HEADS: DeltaHeads = DeltaHeads { keys: 2, values: 4, key_dim: 5, value_dim: 19 };

/// Returns a root and two children that continue it, one of them longer than a span.
fn tree() -> (Vec<usize>, Vec<Option<usize>>) {
    (vec![0, 3, 3 + 70, 3 + 70 + 4, 80], vec![None, Some(0), Some(0), None])
}

/// Returns the tokens of each sequence of [`tree`].
fn sequences() -> [Vec<usize>; 3] {
    [(0..73).collect(), (0..3).chain(73..77).collect(), (77..80).collect()]
}

fn spans_of_tree() -> Vec<Span> {
    let (offsets, parents) = tree();
    Packing { offsets: &offsets, parents: &parents }.spans()
}

/// Returns rows of tokens.
fn pick(x: &[f32], width: usize, tokens: &[usize]) -> Vec<f32> {
    tokens.iter().flat_map(|&t| x[t * width..][..width].to_vec()).collect()
}

#[test]
fn spans_follow_the_paths_of_a_packing() {
    let found: Vec<_> = spans_of_tree().into_iter().map(|s| (s.tokens, s.before)).collect();
    let wanted =
        [(0..3, None), (3..67, Some(0)), (67..73, Some(1)), (73..77, Some(0)), (77..80, None)];
    assert_eq!(found, wanted);
    // A node without tokens passes the state on.
    let (offsets, parents) = ([0, 2, 2, 4], [None, Some(0), Some(1)]);
    let spans = Packing { offsets: &offsets, parents: &parents }.spans();
    assert_eq!(spans[1], Span { tokens: 2..4, before: Some(0) });
}

/// Computes the convolution of each sequence in f64; tokens that are shared are equal in all.
fn convolved(x: &[f64], w: &[f64], b: &[f64], kernel: usize) -> Vec<f64> {
    let channels = b.len();
    let mut out = vec![f64::NAN; x.len()];
    for tokens in sequences() {
        for (at, &token) in tokens.iter().enumerate() {
            for c in 0..channels {
                let taps = (0..kernel).filter(|back| *back <= at);
                let sum = taps.map(|back| {
                    w[c * kernel + kernel - 1 - back] * x[tokens[at - back] * channels + c]
                });
                out[token * channels + c] = b[c] + sum.sum::<f64>();
            }
        }
    }
    out
}

#[test]
fn a_convolution_and_its_gradients_agree_with_f64_along_the_paths_of_a_tree() {
    let (n, channels, kernel) = (80, 18, 4);
    let (x, dy) = (random(1, n * channels), random(2, n * channels));
    let (w, b) = (random(3, channels * kernel), random(4, channels));
    let weights = ConvWeights { weight: &w, bias: Some(&b), kernel };
    let (mut out, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
    let (mut dw, mut db) = (vec![0.0; w.len()], vec![0.0; b.len()]);
    causal_conv(&x, weights, &spans_of_tree(), &mut out);
    let [wide_x, wide_w, wide_b] = [&x, &w, &b].map(|x| wide(x));
    close(&out, &convolved(&wide_x, &wide_w, &wide_b, kernel), 1e-6);
    let sums = [Some(dw.as_mut_slice()), Some(db.as_mut_slice())];
    causal_conv_bwd(&x, weights, &spans_of_tree(), &dy, &mut dx, sums);
    let of = |x: &[f64], w: &[f64], b: &[f64]| weigh(&convolved(x, w, b, kernel), &dy);
    close(&dx, &numeric(&wide_x, |x| of(x, &wide_w, &wide_b)), 1e-4);
    close(&dw, &numeric(&wide_w, |w| of(&wide_x, w, &wide_b)), 1e-4);
    close(&db, &numeric(&wide_b, |b| of(&wide_x, &wide_w, b)), 1e-4);
}

#[test]
fn a_convolution_has_the_same_bits_alone_and_cut_anywhere() {
    let (n, channels, kernel) = (80, 40, 3);
    let (x, w) = (random(1, n * channels), random(3, channels * kernel));
    let weights = ConvWeights { weight: &w, bias: None, kernel };
    let mut packed = vec![f32::NAN; x.len()];
    threads(3, || causal_conv(&x, weights, &spans_of_tree(), &mut packed));
    for tokens in sequences() {
        let row = pick(&x, channels, &tokens);
        let want = pick(&packed, channels, &tokens);
        for cut in 0..tokens.len() {
            let (mut past, mut out) =
                (vec![0.0; (kernel - 1) * channels], vec![f32::NAN; row.len()]);
            let (first, rest) = out.split_at_mut(cut * channels);
            causal_conv_onto(&row[..first.len()], weights, &mut past, first);
            causal_conv_onto(&row[first.len()..], weights, &mut past, rest);
            same_bits(&out, &want);
        }
    }
}

/// Inputs of the rule for the tokens of [`tree`].
struct Inputs {
    mixed: Vec<f32>,
    decay: Vec<f32>,
    beta: Vec<f32>,
}

impl Inputs {
    fn made(n: usize) -> Self {
        let mut mixed = random(1, n * HEADS.mixed_width());
        normalize_keys(&mut mixed, HEADS);
        let [a, b] = [2, 3].map(|seed| random(seed, n * HEADS.values));
        let (mut decay, mut beta) = (a.clone(), b.clone());
        let of = GateWeights { a_log: &[0.1, -1.0, 0.5, -3.0], dt_bias: &[0.0, 1.0, -0.5, 0.2] };
        delta_gates([&a, &b], of, [&mut decay, &mut beta]);
        Self { mixed, decay, beta }
    }

    fn rows(&self) -> DeltaRows<'_> {
        let Self { mixed, decay, beta } = self;
        DeltaRows { mixed, decay, beta, heads: HEADS }
    }

    fn pick(&self, tokens: &[usize]) -> Self {
        Self {
            mixed: pick(&self.mixed, HEADS.mixed_width(), tokens),
            decay: pick(&self.decay, HEADS.values, tokens),
            beta: pick(&self.beta, HEADS.values, tokens),
        }
    }

    fn packed(&self) -> (Vec<f32>, Vec<f32>) {
        let spans = spans_of_tree();
        let mut states = vec![f32::NAN; spans.len() * HEADS.state_len()];
        let mut out = vec![f32::NAN; 80 * HEADS.values_width()];
        delta_rule(self.rows(), &spans, &mut states, &mut out);
        (out, states)
    }
}

/// Computes the rule of each sequence in f64, from the logarithm of the decay.
fn ruled(mixed: &[f64], log_decay: &[f64], beta: &[f64]) -> Vec<f64> {
    let DeltaHeads { keys, values, key_dim, value_dim } = HEADS;
    let (width, all) = (HEADS.mixed_width(), HEADS.values_width());
    let mut out = vec![f64::NAN; beta.len() / values * all];
    for tokens in sequences() {
        for head in 0..values {
            let mut state = vec![vec![0.0; value_dim]; key_dim];
            for &token in &tokens {
                let (row, gate) = (&mixed[token * width..][..width], token * values + head);
                let at = head / (values / keys) * key_dim;
                let (q, k) = (&row[at..][..key_dim], &row[keys * key_dim + at..][..key_dim]);
                let v = &row[2 * keys * key_dim + head * value_dim..][..value_dim];
                for c in 0..value_dim {
                    let alpha = log_decay[gate].exp();
                    let seen: f64 = (0..key_dim).map(|i| alpha * state[i][c] * k[i]).sum();
                    let u = beta[gate] * (v[c] - seen);
                    (0..key_dim).for_each(|i| state[i][c] = alpha * state[i][c] + k[i] * u);
                    out[token * all + head * value_dim + c] =
                        (0..key_dim).map(|i| state[i][c] * q[i]).sum();
                }
            }
        }
    }
    out
}

#[test]
fn the_rule_and_its_gradients_agree_with_f64_along_the_paths_of_a_tree() {
    let inputs = Inputs::made(80);
    let (out, states) = inputs.packed();
    let [mixed, beta] = [&inputs.mixed, &inputs.beta].map(|x| wide(x));
    let log_decay: Vec<f64> = wide(&inputs.decay).iter().map(|x| x.ln()).collect();
    close(&out, &ruled(&mixed, &log_decay, &beta), 1e-5);

    let dout = random(9, out.len());
    let [mut dmixed, mut dg, mut db] =
        [&inputs.mixed, &inputs.decay, &inputs.beta].map(|x| vec![f32::NAN; x.len()]);
    let to = DeltaGradients { mixed: &mut dmixed, log_decay: &mut dg, beta: &mut db };
    delta_rule_bwd(inputs.rows(), &spans_of_tree(), &states, &dout, to);
    close(&dg, &numeric(&log_decay, |g| weigh(&ruled(&mixed, g, &beta), &dout)), 1e-4);
    close(&db, &numeric(&beta, |b| weigh(&ruled(&mixed, &log_decay, b), &dout)), 1e-4);
    // Some tokens of each node.
    for token in [0, 2, 3, 66, 67, 72, 73, 76, 78] {
        let at = token * HEADS.mixed_width()..(token + 1) * HEADS.mixed_width();
        let found = numeric(&mixed[at.clone()], |x| {
            let mut all = mixed.clone();
            all[at.clone()].copy_from_slice(x);
            weigh(&ruled(&all, &log_decay, &beta), &dout)
        });
        close(&dmixed[at.clone()], &found, 1e-4);
    }
}

#[test]
fn the_rule_has_the_same_bits_alone_and_cut_anywhere() {
    let inputs = Inputs::made(80);
    let (packed, _) = threads(3, || inputs.packed());
    let width = HEADS.values_width();
    for tokens in sequences() {
        let want = pick(&packed, width, &tokens);
        for cut in 0..tokens.len() {
            let (mut state, mut out) = (vec![0.0; HEADS.state_len()], vec![f32::NAN; want.len()]);
            let (first, rest) = out.split_at_mut(cut * width);
            for (tokens, out) in [(&tokens[..cut], first), (&tokens[cut..], rest)] {
                delta_rule_onto(inputs.pick(tokens).rows(), &mut state, out);
            }
            same_bits(&out, &want);
        }
    }
}

/// Normalizes the queries and keys of rows in f64.
fn normalized(x: &[f64]) -> Vec<f64> {
    let mut out = x.to_vec();
    for row in out.chunks_exact_mut(HEADS.mixed_width()) {
        for (index, x) in row[..20].chunks_exact_mut(5).enumerate() {
            let r = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt().recip();
            let scale = if index < 2 { r / 5.0_f64.sqrt() } else { r };
            x.iter_mut().for_each(|x| *x *= scale);
        }
    }
    out
}

#[test]
fn normalized_keys_and_gates_have_the_gradients_of_f64() {
    let (n, width) = (3, HEADS.mixed_width());
    let (raw, dout) = (random(1, n * width), random(2, n * width));
    let mut out = raw.clone();
    normalize_keys(&mut out, HEADS);
    close(&out, &normalized(&wide(&raw)), 1e-6);
    let mut gradient = dout.clone();
    normalize_keys_bwd(&raw, HEADS, &mut gradient);
    close(&gradient, &numeric(&wide(&raw), |x| weigh(&normalized(x), &dout)), 1e-5);

    let [a, b, dg, dbeta] = [3, 4, 5, 6].map(|seed| random(seed, 12));
    let (a_log, dt_bias) = ([0.3, -0.7, 0.0, 1.5], [0.2, -0.4, 30.0, 0.1]);
    let weights = GateWeights { a_log: &a_log, dt_bias: &dt_bias };
    let [mut da, mut db] = [vec![f32::NAN; 12], vec![f32::NAN; 12]];
    let (mut da_log, mut ddt) = ([0.0; 4], [0.0; 4]);
    let to = GateGradients {
        inputs: [&mut da, &mut db],
        a_log: Some(&mut da_log),
        dt_bias: Some(&mut ddt),
    };
    delta_gates_bwd([&a, &b], weights, [&dg, &dbeta], to);
    let g = |a: &[f64], a_log: &[f64], dt: &[f64]| -> Vec<f64> {
        let inputs = a.iter().enumerate();
        inputs.map(|(i, a)| -a_log[i % 4].exp() * (a + dt[i % 4]).exp().ln_1p()).collect()
    };
    let (wide_a, wide_log, wide_dt) = (wide(&a), wide(&a_log), wide(&dt_bias));
    close(&da, &numeric(&wide_a, |a| weigh(&g(a, &wide_log, &wide_dt), &dg)), 1e-4);
    close(&da_log, &numeric(&wide_log, |x| weigh(&g(&wide_a, x, &wide_dt), &dg)), 1e-4);
    close(&ddt, &numeric(&wide_dt, |x| weigh(&g(&wide_a, &wide_log, x), &dg)), 1e-4);
    let beta = |b: &[f64]| -> Vec<f64> { b.iter().map(|b| 1.0 / (1.0 + (-b).exp())).collect() };
    close(&db, &numeric(&wide(&b), |b| weigh(&beta(b), &dbeta)), 1e-5);
}
