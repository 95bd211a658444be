use super::*;
use crate::testing::{close, numeric, random, same_bits, threads, weigh, wide};

/// Computes the target's log-probability and the entropy of one row in f64.
fn reference_row(logits: &[f64], target: usize) -> (f64, f64) {
    let max = logits.iter().fold(f64::MIN, |a, &b| a.max(b));
    let sum: f64 = logits.iter().map(|z| (z - max).exp()).sum();
    let log = |z: f64| z - max - sum.ln();
    let entropy = logits.iter().map(|&z| -log(z).exp() * log(z)).sum();
    (log(logits[target]), entropy)
}

fn reference(h: &[f64], w: &[f64], targets: &[u32], inverse: &[f32], d: usize) -> [Vec<f64>; 2] {
    let rows = h.chunks(d).zip(targets).zip(inverse).map(|((h, &t), &inverse)| {
        let dot = |w: &[f64]| h.iter().zip(w).map(|(h, w)| h * w).sum::<f64>();
        let logits: Vec<f64> = w.chunks(d).map(|w| dot(w) * f64::from(inverse)).collect();
        reference_row(&logits, t as usize)
    });
    let (logp, entropy) = rows.unzip();
    [logp, entropy]
}

struct Case {
    h: Vec<f32>,
    w: Vec<f32>,
    targets: Vec<u32>,
    inverse: Vec<f32>,
}

fn case(n: usize, d: usize, vocab: usize) -> Case {
    Case {
        h: random(1, n * d).iter().map(|h| h * 3.0).collect(),
        w: random(2, vocab * d),
        targets: (0..n).map(|i| (i * 7 % vocab) as u32).collect(),
        inverse: (0..n).map(|i| 0.5 + i as f32 % 3.0).collect(),
    }
}

fn forward(c: &Case) -> [Vec<f32>; 2] {
    let n = c.targets.len();
    let (mut logp, mut entropy) = (vec![f32::NAN; n], vec![f32::NAN; n]);
    head(c).logprobs(&mut logp, &mut entropy);
    [logp, entropy]
}

fn head(c: &Case) -> LmHead<'_> {
    let Case { h, w, targets, inverse } = c;
    LmHead { h, w, targets, inv_temperature: inverse, softcap: None, precision: Precision::F32 }
}

/// Computes the gradients of a loss with these derivatives, for sequences that begin at `offsets`. Asserts that the
/// loss gets each sequence once, in order, with its log-probs.
fn backward(c: &Case, offsets: &[usize], [dlogp, dentropy]: [&[f32]; 2]) -> [Vec<f32>; 2] {
    let [logp, entropy] = forward(c);
    let (mut dh, mut dw) = (vec![f32::NAN; c.h.len()], vec![0.0; c.w.len()]);
    let run = |dh: &mut [f32], dw: Option<&mut [f32]>| {
        let mut next = 0;
        let loss = |sequences: Range<usize>, given: [&[f32]; 2], out: [&mut [f32]; 2]| {
            assert_eq!(sequences.start, next);
            next = sequences.end;
            let at = offsets[sequences.start]..offsets[sequences.end];
            same_bits(given[0], &logp[at.clone()]);
            same_bits(given[1], &entropy[at.clone()]);
            out[0].copy_from_slice(&dlogp[at.clone()]);
            out[1].copy_from_slice(&dentropy[at]);
            Ok::<_, ()>(())
        };
        assert_eq!(head(c).loss_gradients(offsets, loss, dh, dw), Ok(()));
        assert_eq!(next, offsets.len() - 1);
    };
    run(&mut dh, Some(&mut dw));
    let mut frozen = vec![f32::NAN; c.h.len()];
    run(&mut frozen, None);
    same_bits(&frozen, &dh);
    [dh, dw]
}

#[test]
fn forward_agrees_with_f64() {
    for (n, d, vocab) in [(1, 8, 2), (5, 16, 33), (70, 24, 500)] {
        let c = case(n, d, vocab);
        let [logp, entropy] = forward(&c);
        let [want_logp, want_entropy] =
            reference(&wide(&c.h), &wide(&c.w), &c.targets, &c.inverse, d);
        close(&logp, &want_logp, 2e-6);
        close(&entropy, &want_entropy, 4e-6);
    }
}

#[test]
fn backward_agrees_with_central_differences() {
    for (n, d, vocab) in [(1, 3, 2), (4, 5, 19), (9, 8, 33)] {
        let c = case(n, d, vocab);
        let (dlogp, dentropy) = (random(3, n), random(4, n));
        let [dh, dw] = backward(&c, &[0, n / 2, n / 2, n], [&dlogp, &dentropy]);
        let loss = |h: &[f64], w: &[f64]| {
            let [logp, entropy] = reference(h, w, &c.targets, &c.inverse, d);
            weigh(&logp, &dlogp) + weigh(&entropy, &dentropy)
        };
        let (h, w) = (wide(&c.h), wide(&c.w));
        close(&dh, &numeric(&h, |h| loss(h, &w)), 1e-4);
        close(&dw, &numeric(&w, |w| loss(&h, w)), 1e-4);
    }
}

#[test]
fn sums_over_a_large_vocabulary_agree_with_f64() {
    let vocab = 150_000;
    for scale in [0.1, 1.0, 8.0] {
        let logits: Vec<f32> = random(5, vocab).iter().map(|z| z * scale).collect();
        let (mut logp, mut entropy) = ([0.0], [0.0]);
        logprobs(&logits, vocab, &[123], &[1.0], &mut logp, &mut entropy);
        let (want_logp, want_entropy) = reference_row(&wide(&logits), 123);
        close(&logp, &[want_logp], 1e-6);
        close(&entropy, &[want_entropy], 1e-6);
        let row = lanes::run_kernel(RowOf { logits: &logits, inverse: 1.0 });
        let max = f64::from(row.max);
        let sum: f64 = wide(&logits).iter().map(|z| (z - max).exp()).sum();
        assert!((row.sum / sum - 1.0).abs() < 1e-6);
    }
}

#[test]
fn impossible_tokens_have_no_share() {
    let (mut logp, mut entropy) = ([0.0; 2], [0.0; 2]);
    let logits = [0.0, f32::NEG_INFINITY, 0.0, 0.0, f32::NEG_INFINITY, 5.0];
    logprobs(&logits, 3, &[0, 2], &[1.0, 2.0], &mut logp, &mut entropy);
    close(&logp[..1], &[0.5f64.ln()], 1e-6);
    close(&entropy[..1], &[2f64.ln()], 1e-6);
    assert!(entropy[1].is_finite());
}

#[test]
fn a_row_has_the_same_bits_in_every_batch() {
    let (n, d, vocab) = (700, 32, 400);
    let c = case(n, d, vocab);
    let [logp, entropy] = forward(&c);
    for at in [0..1, 5..6, 10..17, 500..560, 699..700] {
        let part = Case {
            h: c.h[at.start * d..at.end * d].to_vec(),
            w: c.w.clone(),
            targets: c.targets[at.clone()].to_vec(),
            inverse: c.inverse[at.clone()].to_vec(),
        };
        let [part_logp, part_entropy] = forward(&part);
        same_bits(&part_logp, &logp[at.clone()]);
        same_bits(&part_entropy, &entropy[at]);
    }
}

#[test]
fn the_fused_form_has_the_bits_of_the_two_steps_and_threads_do_not_matter() {
    let (n, d, vocab) = (600, 32, 400);
    let c = case(n, d, vocab);
    let mut logits = vec![0.0; n * vocab];
    Precision::F32.set().nt(&c.h, &c.w, &mut logits, n, vocab, d);
    let (mut logp, mut entropy) = (vec![0.0; n], vec![0.0; n]);
    logprobs(&logits, vocab, &c.targets, &c.inverse, &mut logp, &mut entropy);
    let ones = vec![1.0; n];
    let run = |count| {
        threads(count, || {
            let [logp, entropy] = forward(&c);
            let [dh, dw] = backward(&c, &[0, 37, 300, n], [&ones, &ones]);
            [logp, entropy, dh, dw]
        })
    };
    let (one, three) = (run(1), run(3));
    one.iter().zip(&three).for_each(|(a, b)| same_bits(a, b));
    same_bits(&one[0], &logp);
    same_bits(&one[1], &entropy);
}

#[test]
fn how_rows_are_divided_into_sequences_does_not_change_a_row() {
    let (n, d, vocab) = (1200, 16, 300);
    let c = case(n, d, vocab);
    let derivatives = [random(3, n), random(4, n)];
    let derivatives = [&derivatives[0][..], &derivatives[1]];
    let [dh, dw] = backward(&c, &[0, n], derivatives);
    for offsets in [vec![0, 1, 700, 1100, n], (0..=n).step_by(100).collect()] {
        let [other_dh, other_dw] = backward(&c, &offsets, derivatives);
        same_bits(&other_dh, &dh);
        close(&other_dw, &wide(&dw), 1e-5);
    }
}

#[test]
fn an_error_of_the_loss_is_returned() {
    let c = case(4, 8, 5);
    let mut dh = vec![0.0; c.h.len()];
    assert_eq!(head(&c).loss_gradients(&[0, 4], |_, _, _| Err("no"), &mut dh, None), Err("no"));
}

#[test]
fn a_bound_of_the_logits_agrees_with_f64_in_value_and_gradient() {
    const CAP: f32 = 1.5;
    let (n, d, vocab) = (4, 5, 19);
    let c = case(n, d, vocab);
    let capped = LmHead { softcap: Some(CAP), ..head(&c) };
    let (dlogp, dentropy) = (random(3, n), random(4, n));
    let reference = |h: &[f64], w: &[f64]| {
        let rows = h.chunks(d).zip(&c.targets).zip(&c.inverse).map(|((h, &t), &inverse)| {
            let dot = |w: &[f64]| h.iter().zip(w).map(|(h, w)| h * w).sum::<f64>();
            let cap = |x: f64| f64::from(CAP) * (x / f64::from(CAP)).tanh();
            let logits: Vec<f64> = w.chunks(d).map(|w| cap(dot(w)) * f64::from(inverse)).collect();
            reference_row(&logits, t as usize)
        });
        rows.unzip::<_, _, Vec<f64>, Vec<f64>>()
    };
    let (h, w) = (wide(&c.h), wide(&c.w));
    let (mut logp, mut entropy) = (vec![f32::NAN; n], vec![f32::NAN; n]);
    capped.logprobs(&mut logp, &mut entropy);
    let (want_logp, want_entropy) = reference(&h, &w);
    close(&logp, &want_logp, 2e-6);
    close(&entropy, &want_entropy, 4e-6);
    let (mut dh, mut dw) = (vec![f32::NAN; c.h.len()], vec![0.0; c.w.len()]);
    let give = |_, _: [&[f32]; 2], out: [&mut [f32]; 2]| {
        out[0].copy_from_slice(&dlogp);
        out[1].copy_from_slice(&dentropy);
        Ok::<_, ()>(())
    };
    assert_eq!(capped.loss_gradients(&[0, n], give, &mut dh, Some(&mut dw)), Ok(()));
    let loss = |h: &[f64], w: &[f64]| {
        let (logp, entropy) = reference(h, w);
        weigh(&logp, &dlogp) + weigh(&entropy, &dentropy)
    };
    close(&dh, &numeric(&h, |h| loss(h, &w)), 1e-4);
    close(&dw, &numeric(&w, |w| loss(&h, w)), 1e-4);
}

#[test]
fn several_targets_of_a_row_have_the_log_probs_and_the_gradient_of_each_alone() {
    let (n, d, vocab, k) = (9, 8, 33, 3);
    let c = case(n, d, vocab);
    let targets: Vec<u32> = (0..n * k).map(|i| (i * 11 % vocab) as u32).collect();
    let head = LmHead { targets: &targets, ..head(&c) };
    let (mut logp, mut entropy) = (vec![f32::NAN; n * k], vec![f32::NAN; n]);
    head.logprobs(&mut logp, &mut entropy);
    let dlogp = random(3, n * k);
    let dentropy = random(4, n);
    let give = |_, given: [&[f32]; 2], out: [&mut [f32]; 2]| {
        same_bits(given[0], &logp);
        same_bits(given[1], &entropy);
        out[0].copy_from_slice(&dlogp);
        out[1].copy_from_slice(&dentropy);
        Ok::<_, ()>(())
    };
    let (mut dh, mut dw) = (vec![f32::NAN; c.h.len()], vec![0.0; c.w.len()]);
    assert_eq!(head.loss_gradients(&[0, n], give, &mut dh, Some(&mut dw)), Ok(()));
    let alone = |j: usize| -> Vec<u32> { targets.iter().skip(j).step_by(k).copied().collect() };
    for j in 0..k {
        let one = Case { h: c.h.clone(), w: c.w.clone(), targets: alone(j), ..case(n, d, vocab) };
        let [own, same] = forward(&one);
        let found: Vec<f32> = logp.iter().skip(j).step_by(k).copied().collect();
        same_bits(&found, &own);
        same_bits(&entropy, &same);
    }
    let loss = |h: &[f64], w: &[f64]| {
        let all = (0..k).map(|j| {
            let by: Vec<f32> = dlogp.iter().skip(j).step_by(k).copied().collect();
            let [logp, entropy] = reference(h, w, &alone(j), &c.inverse, d);
            weigh(&logp, &by) + if j == 0 { weigh(&entropy, &dentropy) } else { 0.0 }
        });
        all.sum::<f64>()
    };
    let (h, w) = (wide(&c.h), wide(&c.w));
    close(&dh, &numeric(&h, |h| loss(h, &w)), 1e-4);
    close(&dw, &numeric(&w, |w| loss(&h, w)), 1e-4);
}
