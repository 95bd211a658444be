use proptest::prelude::*;

use super::*;
use crate::testing::random;

fn ids(logits: &[f32], filter: &SamplingFilter, draws: usize) -> Vec<usize> {
    let mut counts = vec![0; logits.len()];
    for i in 0..draws {
        let sampled =
            sample_token(logits, filter, uniform_number(7, i as u64)).expect("good logits");
        counts[sampled.id as usize] += 1;
    }
    counts
}

fn kept(logits: &[f32], filter: SamplingFilter) -> Vec<usize> {
    let counts = ids(logits, &filter, 2000);
    (0..logits.len()).filter(|&i| counts[i] > 0).collect()
}

/// Returns logits of the probabilities 0.4, 0.3, 0.2, 0.1, out of order.
fn four() -> Vec<f32> {
    [0.1f32, 0.4, 0.2, 0.3].iter().map(|p| p.ln()).collect()
}

#[test]
fn uniform_is_reproducible_and_uniform() {
    assert_eq!(uniform_number(1, 2).to_bits(), uniform_number(1, 2).to_bits());
    assert_ne!(derive_seed(1, 2), derive_seed(2, 1));
    let n = 100_000;
    let mean = (0..n).map(|i| uniform_number(3, i)).sum::<f64>() / n as f64;
    assert!((mean - 0.5).abs() < 0.005, "{mean}");
    let mut bins = [0; 16];
    (0..n).for_each(|i| bins[(uniform_number(derive_seed(9, i), 0) * 16.0) as usize] += 1);
    assert!(bins.iter().all(|&b| (5700..6800).contains(&b)), "{bins:?}");
}

#[test]
fn frequencies_are_probabilities() {
    let counts = ids(&four(), &SamplingFilter::default(), 50_000);
    for (count, p) in counts.iter().zip([0.1, 0.4, 0.2, 0.3]) {
        assert!((*count as f64 / 50_000.0 - p).abs() < 0.01, "{counts:?}");
    }
}

#[test]
fn filters_keep_what_hugging_face_keeps() {
    let filter = SamplingFilter::default();
    assert_eq!(kept(&four(), SamplingFilter { top_k: 2, ..filter }), [1, 3]);
    // The mass before the second token is 0.4, before the third 0.7.
    assert_eq!(kept(&four(), SamplingFilter { top_p: 0.5, ..filter }), [1, 3]);
    assert_eq!(kept(&four(), SamplingFilter { top_p: 0.75, ..filter }), [1, 2, 3]);
    assert_eq!(kept(&four(), SamplingFilter { top_p: 0.0, ..filter }), [1]);
    assert_eq!(kept(&four(), SamplingFilter { min_p: 0.6, ..filter }), [1, 3]);
    assert_eq!(kept(&four(), SamplingFilter { min_p: 1.0, ..filter }), [1]);
    // After top-k the mass is 0.7; the first token has more than half of it.
    assert_eq!(kept(&four(), SamplingFilter { top_k: 2, top_p: 0.5, ..filter }), [1]);
    // The first and third are equal to the second largest: both are kept.
    assert_eq!(kept(&[1.0, 2.0, 1.0, 0.0], SamplingFilter { top_k: 2, ..filter }), [0, 1, 2]);
    assert_eq!(kept(&[1.0; 4], SamplingFilter { top_p: 0.3, ..filter }), [0, 1]);
}

#[test]
fn greedy_takes_the_lowest_id_of_the_largest() {
    let filter = SamplingFilter { temperature: 0.0, ..SamplingFilter::default() };
    let got = sample_token(&[0.0, 3.0, 3.0], &filter, 0.99).expect("good logits");
    assert_eq!(got.id, 1);
    let want = 3f32.exp() / (1.0 + 2.0 * 3f32.exp());
    assert!((got.logprob - want.ln()).abs() < 1e-6);
}

#[test]
fn logprob_is_of_the_scaled_unfiltered_softmax() {
    let filter = SamplingFilter { temperature: 0.5, top_k: 1, ..SamplingFilter::default() };
    let got = sample_token(&four(), &filter, 0.3).expect("good logits");
    let squares = [0.01, 0.16, 0.04, 0.09].map(|p: f32| p / 0.3);
    let entropy: f32 = squares.iter().map(|p| -p * p.ln()).sum();
    assert!((got.logprob - squares[1].ln()).abs() < 1e-6);
    assert!((got.entropy - entropy).abs() < 1e-6);
}

#[test]
fn a_tiny_temperature_is_nearly_greedy() {
    let filter = SamplingFilter { temperature: 1e-30, ..SamplingFilter::default() };
    let got = sample_token(&[-1e20, 1e20, 3.0], &filter, 0.5).expect("good logits");
    assert_eq!((got.id, got.logprob), (1, 0.0));
}

#[test]
fn bad_logits_are_errors() {
    let run = |logits: &[f32]| sample_token(logits, &SamplingFilter::default(), 0.5);
    let inf = f32::INFINITY;
    assert_eq!(run(&[]), Err(BadLogits::Empty));
    assert_eq!(run(&[0.0, f32::NAN]), Err(BadLogits::Nan(1)));
    assert_eq!(run(&[inf, 0.0, -inf, f32::NAN]), Err(BadLogits::Nan(3)));
    assert_eq!(run(&[0.0, inf]), Err(BadLogits::Infinite(1)));
    assert_eq!(run(&[-inf; 3]), Err(BadLogits::NoMass));
    assert_eq!(run(&[-inf, 0.0]).map(|s| (s.id, s.logprob)), Ok((1, 0.0)));
    assert_eq!(BadLogits::Nan(1).to_string(), "logit 1 is not a number");
}

#[test]
fn logprobs_of_training_and_sampling_have_the_same_bits() {
    let logits = random(5, 515);
    let got = sample_token(
        &logits,
        &SamplingFilter { temperature: 0.7, ..SamplingFilter::default() },
        0.42,
    )
    .expect("good logits");
    let (mut logp, mut entropy) = ([0.0], [0.0]);
    let inverse = [1.0 / 0.7f32];
    crate::logprob::logprobs(&logits, 515, &[got.id], &inverse, &mut logp, &mut entropy);
    assert_eq!(
        (logp[0].to_bits(), entropy[0].to_bits()),
        (got.logprob.to_bits(), got.entropy.to_bits())
    );
}

proptest! {
    #[test]
    fn an_impossible_token_is_never_sampled(
        mut logits in prop::collection::vec(-200.0f32..50.0, 2..60),
        hole in 0usize..60,
        u in 0.0f64..1.0,
        temperature in 0.1f32..2.0,
        top_k in 0usize..10,
        top_p in 0.0f32..1.0,
        min_p in 0.0f32..1.0,
    ) {
        let hole = hole % logits.len();
        logits[hole] = f32::NEG_INFINITY;
        for u in [u, 0.0, 1.0 - f64::EPSILON] {
            let got = sample_token(&logits, &SamplingFilter { temperature, top_k, top_p, min_p }, u).expect("good logits");
            prop_assert!(got.id as usize != hole);
            prop_assert!(got.logprob > -100.0 && got.logprob <= 0.0);
        }
    }

    #[test]
    fn top_p_without_a_full_sort_keeps_the_same_tokens(seed in 0u64..1000, top_p in 0.0f32..1.0) {
        // Adding 0 turns -0 into 0, so that the two tie.
        let logits: Vec<f32> =
            random(seed, 40).iter().map(|z| (z * 8.0).round() / 2.0 + 0.0).collect();
        let mut order: Vec<usize> = (0..40).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        let max = logits[order[0]];
        let weight = |i: usize| f64::from((logits[i] - max).exp());
        let total: f64 = (0..40).map(weight).sum();
        let mut before = 0.0;
        let mut keep = vec![];
        for i in order {
            // Too close to the boundary to decide.
            prop_assume!((before - f64::from(top_p) * total).abs() > 1e-5);
            if keep.is_empty() || before < f64::from(top_p) * total { keep.push(i); }
            before += weight(i);
        }
        for n in 0..40 {
            let filter = SamplingFilter { top_p, ..SamplingFilter::default() };
            let got = sample_token(&logits, &filter, (f64::from(n) + 0.5) / 40.0).expect("good logits");
            prop_assert!(keep.contains(&(got.id as usize)));
        }
    }
}

#[test]
fn tokens_that_are_there_already_are_penalized_once_as_in_transformers() {
    // rl_math.json: sampling_filter/repetition_penalty=1.3, its first row.
    let logits = [
        0.471652, 1.676674, -1.258212, 1.955736, 0.959044, -0.989139, -0.660717, -3.117553,
        0.365656, 4.363111, 0.609733, -1.596719,
    ];
    let want = [
        0.014463881,
        0.05381323,
        0.002859461,
        0.07113513,
        0.026255864,
        0.002781428,
        0.005197243,
        0.000445433,
        0.01333136,
        0.7899395,
        0.018514947,
        0.001262521,
    ];
    let mut penalized = logits;
    penalize_seen(&mut penalized, &[5, 0, 0, 8, 11], 1.3);
    let row = lanes::run_kernel(RowOf { logits: &penalized, inverse: 1.0 });
    for (i, (&z, want)) in penalized.iter().zip(want).enumerate() {
        let p = row.logp(z).exp();
        assert!((p - want).abs() < 1e-6, "token {i}: {p} and not {want}");
    }
}

#[test]
fn a_penalty_changes_what_is_chosen_and_not_its_log_probability() {
    let (logits, greedy) =
        (four(), SamplingFilter { temperature: 0.0, ..SamplingFilter::default() });
    let plain = |id: u32| {
        lanes::run_kernel(RowOf { logits: &logits, inverse: 1.0 }).logp(logits[id as usize])
    };
    // All logits are negative: a penalty of 4 makes 0.4 smaller than 0.3.
    let fresh = sample_fresh(&logits, &[1, 1], 4.0, &greedy, 0.5).expect("good logits");
    assert_eq!((fresh.id, fresh.logprob.to_bits()), (3, plain(3).to_bits()));
    let off = sample_fresh(&logits, &[1], 1.0, &greedy, 0.5).expect("good logits");
    assert_eq!(off, sample_token(&logits, &greedy, 0.5).expect("good logits"));
}

#[test]
fn the_likeliest_tokens_are_those_of_a_sorted_list_with_the_bits_of_sampling() {
    for (seed, n, temperature) in
        [(1, 0, 1.0), (2, 1, 0.0), (3, 5, 0.7), (4, 20, 1.3), (5, 400, 1.0)]
    {
        let logits: Vec<f32> = (0..300)
            .map(|i| ((uniform_number(seed, i) * 40.0).round() * 0.25 - 5.0) as f32)
            .collect();
        let filter = SamplingFilter { temperature, ..SamplingFilter::default() };
        let sampled =
            sample_token(&logits, &filter, uniform_number(seed, 1000)).expect("good logits");
        let found = token_likelihood(&logits, temperature, sampled.id, n).expect("good logits");
        assert_eq!(found.logprob, sampled.logprob);
        let mut ids: Vec<u32> = (0..300).collect();
        ids.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        ids.truncate(n);
        assert_eq!(found.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
        for (id, logprob) in found.top {
            assert_eq!(
                Some(logprob),
                token_likelihood(&logits, temperature, id, 0).map(|found| found.logprob).ok()
            );
        }
    }
    assert_eq!(token_likelihood(&[f32::NAN], 1.0, 0, 1), Err(BadLogits::Nan(0)));
}
