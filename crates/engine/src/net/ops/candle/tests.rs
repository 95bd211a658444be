//! Tests: each backward pass against candle's own differentiation of the forward pass, and errors.
#![allow(clippy::unwrap_used)]

use std::num::NonZeroU32;

use candle_core::{Device, Tensor, Var};
use maverl_kernels::attention::{Heads, Packing, Scores, Segment};
use maverl_kernels::mlp::ClampedGate;
use maverl_kernels::recurrent::DeltaHeads;
use maverl_kernels::sample::{derive_seed, uniform_number};

use super::*;
use crate::files::hf_config::Rope;
use crate::files::parts::Activation;

/// Largest difference of a gradient, relative to its norm.
const BOUND: f64 = 1e-5;

/// Returns a leaf of numbers in -1..1.
fn leaf(seed: u64, shape: &[usize]) -> Var {
    let n = shape.iter().product::<usize>() as u64;
    let values = (0..n).map(|i| 2.0 * uniform_number(derive_seed(31, seed), i) as f32 - 1.0);
    let values: Vec<f32> = values.collect();
    Var::from_tensor(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap()).unwrap()
}

fn norm_of(x: &Tensor) -> f64 {
    f64::from(x.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap()).sqrt()
}

/// Asserts that gradients of `Σ y dy` by leaves are those found.
fn same(what: &str, (y, dy): (&Tensor, &Tensor), leaves: &[(&Var, &Tensor)]) {
    let sum = (y * dy).unwrap().sum_all().unwrap();
    let gradients = sum.backward().unwrap();
    for (index, (leaf, found)) in leaves.iter().enumerate() {
        let expected = gradients.get(leaf).unwrap();
        let off = norm_of(&(expected - *found).unwrap()) / norm_of(expected);
        println!("{what}, leaf {index}: {off:.1e}");
        assert!(off <= BOUND, "{what}, leaf {index}: {off:e}");
    }
}

#[test]
fn norms_have_the_gradients_of_their_graph() {
    let (x, w, dy) = (leaf(1, &[9, 32]), leaf(2, &[32]), leaf(3, &[9, 32]));
    let [dx, dw] = norms::norm_back(&x, &w, 1e-6, &dy).unwrap();
    same("norm", (&norms::norm(&x, &w, 1e-6).unwrap(), &dy), &[(&x, &dx), (&w, &dw)]);
}

#[test]
fn gates_have_the_gradients_of_their_graph() {
    let (gate, up, dy) = (leaf(1, &[9, 32]), leaf(2, &[9, 32]), leaf(3, &[9, 32]));
    let clamped = ClampedGate { alpha: 1.702, limit: 0.7 };
    let of = [Activation::Silu, Activation::Gelu, Activation::Clamped(clamped)];
    for of in of {
        let [dgate, dup] = gates::gated_back(of, [&gate, &up], &dy).unwrap();
        let y = gates::gated(of, &gate, &up).unwrap();
        same(&format!("{of:?}"), (&y, &dy), &[(&gate, &dgate), (&up, &dup)]);
    }
    let dx = gates::silu_back(&gate, &dy).unwrap();
    same("SiLU", (&gates::silu(&gate).unwrap(), &dy), &[(&gate, &dx)]);
    let [dx, dgate] = gates::sigmoid_gate_back(&up, &gate, &dy).unwrap();
    let y = gates::sigmoid_gate(&up, &gate).unwrap();
    same("sigmoid gate", (&y, &dy), &[(&up, &dx), (&gate, &dgate)]);
}

#[test]
fn rotations_of_whole_heads_and_of_a_part_have_the_gradients_of_their_graph() {
    for partial in [1.0, 0.5] {
        let rope = Rope { partial, ..Rope::plain(1e4) };
        let angles = CandleAngles::new(&rope.frequencies(16), &Device::Cpu);
        let [cos, sin] = angles.of_positions(&[0, 1, 7, 63, 2]).unwrap();
        let (x, dy) = (leaf(1, &[5, 3, 16]), leaf(2, &[5, 3, 16]));
        let dx = rotary::rotate(&dy, [&cos, &sin], true).unwrap();
        let y = rotary::rotate(&x, [&cos, &sin], false).unwrap();
        same(&format!("rope of {partial}"), (&y, &dy), &[(&x, &dx)]);
    }
}

/// Returns heads of each kind of scores.
fn kinds_of_heads() -> [Heads; 3] {
    let plain = Heads::new(4, 2, 8);
    let window = Scores { window: NonZeroU32::new(4), ..Scores::PLAIN };
    let bounded = Scores { scale: Some(0.9), softcap: Some(0.6), ..Scores::PLAIN };
    [plain, plain.with_scores(window), plain.with_scores(bounded)]
}

/// Two rows that share their first tokens, the second in two nodes, and one that is alone.
const TREE: Packing<'static> =
    Packing { offsets: &[0, 5, 8, 12, 14, 17], parents: &[None, Some(0), Some(0), Some(2)] };

#[test]
fn attention_with_shared_prefixes_windows_bounds_and_sinks_has_the_gradients_of_its_graph() {
    let (q, k, v) = (leaf(1, &[17, 32]), leaf(2, &[17, 16]), leaf(3, &[17, 16]));
    let (dy, sinks) = (leaf(4, &[17, 32]), leaf(5, &[4]));
    for heads in kinds_of_heads() {
        for with in [None, Some(&sinks)] {
            let of = (heads, with.map(|sinks| sinks.as_tensor()));
            let out = attention::attend([&q, &k, &v], TREE, of).unwrap();
            let detached = out.detach();
            let back = attention::attend_back([&q, &k, &v], [&detached, &dy], TREE, of).unwrap();
            let mut leaves = vec![(&q, &back[0]), (&k, &back[1]), (&v, &back[2])];
            leaves.extend(with.map(|sinks| (sinks, &back[3])));
            same(&format!("attention {:?}", heads.scores), (&out, &dy), &leaves);
        }
    }
}

/// Returns the largest difference of two tensors.
fn furthest(a: &Tensor, b: &Tensor) -> f32 {
    (a - b).unwrap().abs().unwrap().max_all().unwrap().to_scalar().unwrap()
}

#[test]
fn tokens_of_a_cache_attend_as_those_of_packed_rows() {
    const TOKENS: usize = 21;
    let (q, k, v) = (leaf(1, &[TOKENS, 32]), leaf(2, &[TOKENS, 16]), leaf(3, &[TOKENS, 16]));
    let sinks = leaf(4, &[4]);
    let row = |x: &Tensor, at| x.narrow(0, at, 1).unwrap();
    for heads in kinds_of_heads() {
        let of = (heads, Some(sinks.as_tensor()));
        let whole = attention::attend([&q, &k, &v], Packing::from_offsets(&[0, TOKENS]), of);
        let whole = whole.unwrap();
        // Blocks lie apart, and not in order. The second sequence is one of three tokens.
        let zeros = || Tensor::zeros((6 * 16, 16), candle_core::DType::F32, &Device::Cpu).unwrap();
        let (kv, blocks) = ([zeros(), zeros()], [vec![4_u32, 1], vec![3]]);
        let segment = |row: usize, new_tokens, len| Segment {
            new_tokens,
            len,
            blocks: &blocks[row],
            state: 0,
        };
        let start = [segment(0, 18, 18), segment(1, 2, 2)];
        let both = |x: &Tensor, parts: [(usize, usize); 2]| {
            let parts = parts.map(|(from, n)| x.narrow(0, from, n).unwrap());
            Tensor::cat(&parts, 0).unwrap()
        };
        let parts = [(0, 18), (0, 2)];
        cached::append([&both(&k, parts), &both(&v, parts)], &kv, &start).unwrap();
        let found = cached::attend(&both(&q, parts), &kv, &start, of).unwrap();
        let mut off = furthest(&found, &both(&whole, parts));
        for (at, other) in [(18, 2), (19, 3), (20, 4)] {
            let (next, parts) =
                ([segment(0, 1, at + 1), segment(1, 1, other + 1)], [(at, 1), (other, 1)]);
            cached::append([&both(&k, parts), &both(&v, parts)], &kv, &next).unwrap();
            let found = cached::attend(&both(&q, parts), &kv, &next, of).unwrap();
            off = off.max(furthest(&row(&found, 0), &row(&whole, at)));
            off = off.max(furthest(&row(&found, 1), &row(&whole, other)));
        }
        println!("{:?}: {off:.1e}", heads.scores);
        assert!(off <= 1e-6, "{:?}: {off:e}", heads.scores);
    }
}

#[test]
fn the_head_has_the_gradients_of_its_graph() {
    let (h, w) = (leaf(1, &[6, 16]), leaf(2, &[40, 16]));
    let device = Device::Cpu;
    for softcap in [None, Some(0.8)] {
        let targets = Tensor::from_slice(&[3_u32, 39, 0, 7, 7, 20], (6, 1), &device).unwrap();
        let inverse = [1.0_f32, 0.5, 2.0, 1.0, 1.0, 0.7];
        let inverse = Tensor::from_slice(&inverse, (6, 1), &device).unwrap();
        let weight = matrix::Matrix::Dense(w.as_tensor().clone());
        let rows = head::TargetRows { weight, softcap, inverse, targets };
        let (dlogp, dentropy) = (leaf(3, &[6, 1]), leaf(4, &[6, 1]));
        let scored = rows.score(&h).unwrap();
        let dz = rows.back(&rows.score(&h.detach()).unwrap(), [&dlogp, &dentropy]).unwrap();
        let (dh, dw) = (dz.matmul(&w).unwrap(), dz.t().unwrap().matmul(&h).unwrap());
        let both = Tensor::cat(&[&scored.logp, &scored.entropy], 1).unwrap();
        let derivatives = Tensor::cat(&[dlogp.as_tensor(), dentropy.as_tensor()], 1).unwrap();
        same(&format!("head {softcap:?}"), (&both, &derivatives), &[(&h, &dh), (&w, &dw)]);
    }
}

#[test]
fn convolutions_have_the_gradients_of_their_graph() {
    let (x, weight, bias) = (leaf(1, &[17, 6]), leaf(2, &[6, 4]), leaf(3, &[6]));
    let dy = leaf(4, &[17, 6]);
    let of = rule::ChannelConv {
        weight: weight.as_tensor().clone(),
        bias: Some(bias.as_tensor().clone()),
    };
    let zeros = Tensor::zeros((1, 6), candle_core::DType::F32, &Device::Cpu).unwrap();
    let all = Tensor::cat(&[x.as_tensor(), &zeros], 0).unwrap();
    let taps = rule::sources(&TREE.spans(), 4);
    let ops = Candle::cpu();
    let taps: Vec<Tensor> = taps.into_iter().map(|tap| ops.indices(tap).unwrap()).collect();
    let inputs: Vec<Tensor> = taps.iter().map(|tap| all.index_select(tap, 0).unwrap()).collect();
    let y = of.forward(&inputs).unwrap();
    let (dinputs, dweight) = of.backward(&inputs, &dy).unwrap();
    let mut dx = Tensor::zeros((18, 6), candle_core::DType::F32, &Device::Cpu).unwrap();
    for (dinput, tap) in dinputs.iter().zip(&taps) {
        dx = dx.index_add(tap, dinput, 0).unwrap();
    }
    let dx = dx.narrow(0, 0, 17).unwrap();
    let dbias = dy.sum(0).unwrap();
    same("convolution", (&y, &dy), &[(&x, &dx), (&weight, &dweight), (&bias, &dbias)]);
}

/// Heads of a delta rule, two of values for each of keys.
const DELTA: DeltaHeads = DeltaHeads { keys: 2, values: 4, key_dim: 5, value_dim: 3 };

#[test]
fn inputs_of_the_delta_rule_have_the_gradients_of_their_graph() {
    let width = DELTA.mixed_width();
    let (mixed, dy) = (leaf(1, &[7, width]), leaf(2, &[7, width]));
    let dmixed = rule::normalize_keys_back(&mixed, DELTA, &dy).unwrap();
    let y = rule::normalize_keys(&mixed, DELTA).unwrap();
    same("normalized keys", (&y, &dy), &[(&mixed, &dmixed)]);
    let (a, a_log, dt_bias, dg) =
        (leaf(3, &[7, 4]), leaf(4, &[4]), leaf(5, &[4]), leaf(6, &[7, 4]));
    let of = [a_log.as_tensor(), dt_bias.as_tensor()];
    let [da, da_log, ddt_bias] = rule::log_decay_back(&a, of, &dg).unwrap();
    let y = rule::log_decay(&a, of).unwrap();
    same("decay", (&y, &dg), &[(&a, &da), (&a_log, &da_log), (&dt_bias, &ddt_bias)]);
}

#[test]
fn the_delta_rule_of_a_tree_has_the_gradients_of_its_graph() {
    let (n, width) = (17, DELTA.mixed_width());
    let (mixed, log_decay, beta) = (leaf(1, &[n, width]), leaf(2, &[n, 4]), leaf(3, &[n, 4]));
    let dy = leaf(4, &[n, 12]);
    // Decays in 0..1.
    let decay = ((log_decay.as_tensor() - 1.0).unwrap().exp()).unwrap();
    let rows = rule::Inputs::new(&mixed, [&decay, &beta], DELTA).unwrap();
    let zeros = || Tensor::zeros((4, 5, 3), candle_core::DType::F32, &Device::Cpu).unwrap();
    let (spans, mut states, mut out) = (TREE.spans(), Vec::<Tensor>::new(), Vec::new());
    for span in &spans {
        let before = span.before.map_or_else(zeros, |before| states[before].clone());
        states.push(rows.run(span.tokens.clone(), before, &mut out).unwrap());
    }
    let y = Tensor::stack(&out, 0).unwrap();
    let dout = dy.reshape((n, 4, 3)).unwrap();
    let (mut found, mut ends) = (vec![None; n], vec![None::<Tensor>; spans.len()]);
    for (index, span) in spans.iter().enumerate().rev() {
        let before = span.before.map_or_else(zeros, |before| states[before].detach());
        let gradient = ends[index].take().unwrap_or_else(zeros);
        let start =
            rows.run_back(span.tokens.clone(), (before, gradient), &dout, &mut found).unwrap();
        if let Some(before) = span.before {
            let sum = ends[before].take().map_or(Ok(start.clone()), |sum| sum + start);
            ends[before] = Some(sum.unwrap());
        }
    }
    let [dmixed, dlog, dbeta] = rule::gather_back(found, DELTA).unwrap();
    same("delta rule", (&y, &dy), &[(&mixed, &dmixed), (&log_decay, &dlog), (&beta, &dbeta)]);
}

#[test]
fn an_error_of_candle_is_one_of_a_device_in_one_line() {
    let ops = Candle::cpu();
    let wrong = ops.upload(vec![1.0_f32; 3], 4).map(CandleTensor::from);
    let error = ModelError::from(wrong.unwrap_err());
    assert_eq!(error.kind(), ModelErrorKind::Device);
    let text = error.to_string();
    assert!(text.starts_with("candle failed: ") && !text.contains('\n'), "{text}");
    let error = CandleTensor::default().get().unwrap_err().to_string();
    assert_eq!(error, "an operation reads an empty buffer");
}
