#![allow(clippy::unwrap_used)]

use candle_core::{Device, Var};
use serde_json::Value;

use super::*;

fn tensor(values: &[f64]) -> Tensor {
    Tensor::new(values, &Device::Cpu).unwrap()
}

fn constant(value: f64, n: usize) -> Tensor {
    tensor(&vec![value; n])
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec1().unwrap()
}

#[track_caller]
fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    let close = |(got, want): (&f64, &f64)| (got - want).abs() <= tolerance;
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?}\n{want:?}");
}

/// The rows of the golden vectors (spec/drmas.md §4): A = +1 for three tokens, −1 for two.
const OLD: [f64; 5] = [-1.0, -2.0, -0.5, -1.0, -1.0];
const NEW: [f64; 5] = [-0.7, -2.5, -0.5, -3.0, 0.3];
const ADVANTAGES: [f64; 5] = [1.0, 1.0, 1.0, -1.0, -1.0];

/// Loss of each token and the gradient of their weighted sum.
fn surrogate(
    new: &[f64],
    old: &[f64],
    advantages: &[f64],
    (low, high, dual): (f64, f64, f64),
) -> (Vec<f64>, Vec<f64>) {
    let n = new.len();
    let logp = Var::from_tensor(&tensor(new)).unwrap();
    let loss = clipped_surrogate(
        &logp,
        &tensor(old),
        &tensor(advantages),
        &constant(low, n),
        &constant(high, n),
        &constant(dual, n),
    )
    .unwrap();
    let gradients = loss.sum_all().unwrap().backward().unwrap();
    (values(&loss), values(gradients.get(&logp).unwrap()))
}

fn aggregate(losses: &[f64], lengths: &[usize], aggregation: Aggregation) -> f64 {
    let weights = token_weights(lengths, aggregation);
    losses.iter().zip(weights).map(|(loss, weight)| loss * f64::from(weight)).sum()
}

#[test]
fn the_surrogate_agrees_with_the_reference_in_every_aggregation() {
    let (losses, _) = surrogate(&NEW, &OLD, &ADVANTAGES, (0.2, 0.28, 3.0));
    let of = |aggregation| aggregate(&losses, &[3, 2], aggregation);
    let got = [Aggregation::TokenMean, Aggregation::SequenceSum, Aggregation::SequenceMean].map(of);
    assert_close(&got, &[0.182694, 0.456735, 0.468912], 1e-6);
}

#[test]
fn clip_statistics_agree_with_the_reference() {
    let f32s = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<_>>();
    let stats = surrogate_stats(
        &f32s(&NEW),
        &f32s(&OLD),
        &f32s(&ADVANTAGES),
        &[0.2; 5],
        &[0.28; 5],
        &[3.0; 5],
    );
    assert_eq!((stats.tokens, stats.clipped_low, stats.clipped_high), (5, 1, 1)); // clipfrac 0.4
    assert_eq!(stats.clipped_dual, 1); // lower 0.2
    assert!((stats.ppo_kl / 5.0 - 0.18).abs() < 1e-6);
    let mut twice = stats;
    twice += stats;
    assert_eq!((twice.tokens, twice.clipped_dual), (10, 2));
}

#[test]
fn no_gradient_beyond_a_clip() {
    let (_, gradient) = surrogate(&NEW, &OLD, &ADVANTAGES, (0.2, 0.28, 3.0));
    assert_close(&gradient, &[0.0, -(-0.5_f64).exp(), -1.0, 0.0, 0.0], 1e-12);
}

#[test]
fn on_policy_the_gradient_is_minus_the_advantage() {
    let advantages = [1.5, -0.5, 0.0];
    let (losses, gradient) = surrogate(&[-1.0; 3], &[-1.0; 3], &advantages, (0.2, 0.2, 3.0));
    assert_close(&losses, &[-1.5, 0.5, 0.0], 1e-15);
    assert_close(&gradient, &[-1.5, 0.5, 0.0], 1e-15);
}

#[test]
fn a_ratio_that_overflows_has_no_gradient_and_no_nan() {
    let (losses, gradient) = surrogate(&[0.0; 2], &[-1e4; 2], &[1.0, -1.0], (0.2, 0.2, 3.0));
    assert_close(&losses, &[-1.2, 3.0], 1e-12);
    assert_eq!(gradient, [0.0, 0.0]);
}

#[test]
fn coefficients_are_those_of_each_row() {
    let new = [0.5, 0.5];
    let loss = clipped_surrogate(
        &tensor(&new),
        &tensor(&[0.0, 0.0]),
        &tensor(&[1.0, 1.0]),
        &tensor(&[0.2, 0.2]),
        &tensor(&[0.2, 0.4]),
        &tensor(&[3.0, 3.0]),
    )
    .unwrap();
    assert_close(&values(&loss), &[-1.2, -1.4], 1e-12);
}

/// The derivative of `f` at each place, by central differences.
fn central(f: impl Fn(&[f64]) -> f64, at: &[f64]) -> Vec<f64> {
    const H: f64 = 1e-6;
    let moved = |i: usize, by: f64| {
        let mut at = at.to_vec();
        at[i] += by;
        f(&at)
    };
    (0..at.len()).map(|i| (moved(i, H) - moved(i, -H)) / (2.0 * H)).collect()
}

#[test]
fn gradients_agree_with_central_differences() {
    let new = [-0.9, -1.2, -0.1, -3.0, 0.3, -2.0];
    let old = [-1.0, -1.0, -1.0, -1.0, -1.0, -2.1];
    let advantages = [0.7, -0.3, 1.1, -1.0, -2.0, 0.4];
    let bounds = (0.25, 0.3, 3.0);
    let f = |new: &[f64]| surrogate(new, &old, &advantages, bounds).0.iter().sum();
    assert_close(&surrogate(&new, &old, &advantages, bounds).1, &central(f, &new), 1e-8);

    for estimator in [Kl::K1, Kl::K2, Kl::K3] {
        let f =
            |new: &[f64]| values(&kl(estimator, &tensor(new), &tensor(&old)).unwrap()).iter().sum();
        let logp = Var::from_tensor(&tensor(&new)).unwrap();
        let loss = kl(estimator, &logp, &tensor(&old)).unwrap().sum_all().unwrap();
        let gradients = loss.backward().unwrap();
        assert_close(&values(gradients.get(&logp).unwrap()), &central(f, &new), 1e-8);
    }
}

#[test]
fn k3_agrees_with_the_reference() {
    let got = values(&kl(Kl::K3, &tensor(&NEW), &tensor(&OLD)).unwrap());
    assert_close(&got, &[0.0408182, 0.1487212, 0.0, 4.389056, 0.5725317], 1e-6);
}

#[test]
fn micro_batches_add_up_to_the_whole_batch() {
    let lengths = [3, 1, 4, 2];
    let losses: Vec<f64> = (0..10).map(f64::from).collect();
    for aggregation in [Aggregation::TokenMean, Aggregation::SequenceMean, Aggregation::SequenceSum]
    {
        let weights = token_weights(&lengths, aggregation);
        let sum = |tokens: std::ops::Range<usize>| -> f64 {
            tokens.map(|t| losses[t] * f64::from(weights[t])).sum()
        };
        for cut in [3, 4, 8] {
            assert!((sum(0..cut) + sum(cut..10) - sum(0..10)).abs() < 1e-12);
        }
    }
    assert!((aggregate(&losses, &lengths, Aggregation::TokenMean) - 4.5).abs() < 1e-6);
    let means = [1.0, 3.0, 5.5, 8.5];
    let want = means.iter().sum::<f64>() / 4.0;
    assert!((aggregate(&losses, &lengths, Aggregation::SequenceMean) - want).abs() < 1e-6);
}

/// A case of `fixtures/rl_math.json` under `MAVERL_TEST_DATA`; `None`, with the reason printed, where that is not set.
fn fixture(name: &str) -> Option<Value> {
    let Some(dir) = std::env::var_os("MAVERL_TEST_DATA") else {
        eprintln!("skipped: MAVERL_TEST_DATA is not set");
        return None;
    };
    let path = std::path::Path::new(&dir).join("fixtures/rl_math.json");
    let text = std::fs::read_to_string(path).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all["cases"].as_array().unwrap().iter().find(|case| case["name"] == name).cloned()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// The rows of a padded matrix, cut to the lengths of the mask and packed.
fn packed(matrix: &Value, lengths: &[usize]) -> Vec<f64> {
    let rows = matrix.as_array().unwrap().iter().zip(lengths);
    rows.flat_map(|(row, &length)| numbers(row)[..length].to_vec()).collect()
}

/// Loss and gradient of a TRL case, as this module would have them.
fn trl(name: &str, aggregation: Aggregation) {
    let Some(case) = fixture(name) else { return };
    let (inputs, params) = (&case["inputs"], &case["params"]);
    let mask = inputs["completion_mask"].as_array().unwrap();
    let lengths: Vec<usize> =
        mask.iter().map(|row| numbers(row).iter().sum::<f64>() as usize).collect();
    let n = lengths.iter().sum();
    let advantages: Vec<f64> = numbers(&inputs["advantages"])
        .into_iter()
        .zip(&lengths)
        .flat_map(|(advantage, &length)| std::iter::repeat_n(advantage, length))
        .collect();
    let of = |key: &str, default: f64| constant(params[key].as_f64().unwrap_or(default), n);
    let logp = Var::from_tensor(&tensor(&packed(&inputs["logps"], &lengths))).unwrap();
    let mut loss = clipped_surrogate(
        &logp,
        &tensor(&packed(&inputs["old_logps"], &lengths)),
        &tensor(&advantages),
        &of("epsilon_low", 0.0),
        &of("epsilon_high", 0.0),
        &of("delta", 1e30),
    )
    .unwrap();
    if params["beta"].as_f64() != Some(0.0) {
        let logp_ref = tensor(&packed(&inputs["ref_logps"], &lengths));
        let penalty = kl(Kl::K3, &logp, &logp_ref).unwrap() * params["beta"].as_f64().unwrap();
        loss = (loss + penalty).unwrap();
    }
    let weights: Vec<f64> =
        token_weights(&lengths, aggregation).into_iter().map(f64::from).collect();
    let total = (loss * tensor(&weights)).unwrap().sum_all().unwrap();
    let gradients = total.backward().unwrap();
    let outputs = &case["outputs"];
    let want = outputs["loss"].as_f64().unwrap();
    assert_close(&[total.to_scalar::<f64>().unwrap()], &[want], 1e-7);
    let want = packed(&outputs["d_loss/d_logps"], &lengths);
    assert_close(&values(gradients.get(&logp).unwrap()), &want, 1e-7);
}

#[test]
fn losses_and_gradients_agree_with_trl() {
    trl("grpo_loss/plain", Aggregation::SequenceMean);
    trl("grpo_loss/two_sided_delta", Aggregation::SequenceMean);
    trl("grpo_loss/kl", Aggregation::SequenceMean);
    trl("dapo_loss/token_level,clip_higher", Aggregation::TokenMean);
    trl("dapo_loss/kl", Aggregation::TokenMean);
}

#[test]
fn kl_estimators_agree_with_trl() {
    let Some(case) = fixture("kl_estimators") else { return };
    let logp = tensor(&numbers(&case["inputs"]["logps"]));
    let logp_ref = tensor(&numbers(&case["inputs"]["ref_logps"]));
    for (estimator, name) in [(Kl::K1, "k1"), (Kl::K2, "k2"), (Kl::K3, "k3")] {
        let got = values(&kl(estimator, &logp, &logp_ref).unwrap());
        assert_close(&got, &numbers(&case["outputs"][name]), 1e-12);
    }
}
