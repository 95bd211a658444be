//! Convolutions, the gated delta rule and rows of experts, against the CPU.

use super::*;
use crate::attention::Packing;
use crate::cuda::{ConvInput, DeltaGates, DeltaSlices, DeltaTargets, state_words, tokens_before};
use crate::experts::{ExpertRows, Router, RouterSoftmax, add_gated_rows, gated_rows_bwd};
use crate::mlp::ClampedGate;
use crate::recurrent::{
    ConvWeights, DeltaGradients, DeltaHeads, DeltaRows, GateWeights, causal_conv, causal_conv_bwd,
    delta_gates, delta_rule, delta_rule_bwd, normalize_keys,
};

const OFFSETS: [usize; 7] = [0, 30, 30, 39, 105, 110, 117];
const PARENTS: [Option<usize>; 6] = [None, Some(0), Some(1), Some(1), Some(3), None];

fn packing() -> Packing<'static> {
    Packing { offsets: &OFFSETS, parents: &PARENTS }
}

fn to_f64(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

pub(super) fn convolutions_of_trees_and_behind_states_agree_with_the_cpu<M: Tested>(
    kernels: &Kernels<M>,
) {
    let n = OFFSETS[OFFSETS.len() - 1];
    for (channels, kernel, with_bias) in [(24, 4, false), (300, 3, true)] {
        let [x, dy] = [1, 2].map(|seed| random_bf16(seed, n * channels));
        let (w, bias) = (random_bf16(3, channels * kernel), random_bf16(4, channels));
        let run = |kernels: &Kernels<M>| {
            let [on_x, on_dy, w, bias] = [&x, &dy, &w, &bias].map(|x| kernels.array_of(x).unwrap());
            let bias = with_bias.then(|| bias.as_slice());
            let of = ConvInput { w: w.as_slice(), bias, kernel };
            let layout = kernels.conv_layout(&tokens_before(packing()), kernel).unwrap();
            let [mut y, mut dx, mut cached] =
                [(); 3].map(|()| kernels.new_array::<u16>(n * channels).unwrap());
            let mut dw = kernels.array_of(&vec![0.0_f32; channels * kernel]).unwrap();
            kernels.convolve(on_x.as_slice(), of, &layout, y.slice_mut()).unwrap();
            let given = [on_x.as_slice(), on_dy.as_slice()];
            let sums = Some(dw.slice_mut());
            kernels.convolve_back(given, of, &layout, dx.slice_mut(), sums).unwrap();
            // The first node in three calls, behind the second of two slots.
            let stride = ((kernel - 1) * channels).next_multiple_of(4) + 8;
            let mut states = kernels.array_of(&vec![0.0_f32; 2 * stride]).unwrap();
            for ends in [[0, 2], [2, 3], [3, 30]] {
                let at = kernels.state_layout(&[[ends[1] - ends[0], 1]]).unwrap();
                let part = ends[0] * channels..ends[1] * channels;
                let x = on_x.as_slice().sub_slice(part.clone());
                let (to, slots) =
                    (cached.slice_mut().sub_slice(part), (states.slice_mut(), stride, 4));
                kernels.convolve_cached(x, of, &at, slots, to).unwrap();
            }
            let halves = [&y, &dx, &cached].map(|array| kernels.read_array(array).unwrap());
            (halves, bits(&kernels.read_array(&dw).unwrap()))
        };
        let ([y, dx, cached], dw) = in_every_order(kernels, run);
        let first = 30 * channels;
        assert!(cached[..first] == y[..first], "{channels} channels behind a state");
        let [x, dy, w, bias] = [&x, &dy, &w, &bias].map(|x| from_bf16(x));
        let weights = ConvWeights { weight: &w, bias: with_bias.then_some(&bias[..]), kernel };
        let [mut want_y, mut want_dx] = [(); 2].map(|()| vec![0.0; n * channels]);
        let mut want_dw = vec![0.0; w.len()];
        causal_conv(&x, weights, &packing().spans(), &mut want_y);
        let sums = [Some(&mut want_dw[..]), None];
        causal_conv_bwd(&x, weights, &packing().spans(), &dy, &mut want_dx, sums);
        near_bf16("y", &y, &to_f64(&want_y));
        near_bf16("dx", &dx, &to_f64(&want_dx));
        let dw: Vec<f32> = dw.into_iter().map(f32::from_bits).collect();
        near("dw", &dw, &to_f64(&want_dw), 2e-6);
    }
}

/// Reads f32 of their bits.
fn of_halves(halves: &[u16]) -> Vec<f32> {
    let pair = |pair: &[u16]| f32::from_bits(u32::from(pair[0]) | u32::from(pair[1]) << 16);
    halves.chunks_exact(2).map(pair).collect()
}

pub(super) fn the_delta_rule_of_trees_and_behind_states_agrees_with_the_cpu<M: Tested>(
    kernels: &Kernels<M>,
) {
    let n = OFFSETS[OFFSETS.len() - 1];
    for heads in [
        DeltaHeads { keys: 2, values: 4, key_dim: 16, value_dim: 12 },
        DeltaHeads { keys: 1, values: 1, key_dim: 128, value_dim: 24 },
    ] {
        let (width, gates) = (heads.mixed_width(), n * heads.values);
        let (raw, dout) = (random_bf16(1, n * width), random_bf16(2, n * heads.values_width()));
        let [a, b] = [3, 4].map(|seed| random_bf16(seed, gates));
        let [a_log, dt_bias] = [5, 6].map(|seed| random_bf16(seed, heads.values));
        let run = |kernels: &Kernels<M>| {
            let [on_raw, on_dout] = [&raw, &dout].map(|x| kernels.array_of(x).unwrap());
            let [a, b, a_log, dt_bias] =
                [&a, &b, &a_log, &dt_bias].map(|x| kernels.array_of(x).unwrap());
            let (a_log, dt_bias) = (a_log.as_slice(), dt_bias.as_slice());
            let of = DeltaGates { inputs: [a.as_slice(), b.as_slice()], a_log, dt_bias };
            let [mut mixed, mut dmixed] =
                [(); 2].map(|()| kernels.new_array::<u16>(n * width).unwrap());
            let [mut decay, mut beta, mut dlog, mut dbeta] =
                [(); 4].map(|()| kernels.new_array::<u16>(2 * gates).unwrap());
            let to = [decay.slice_mut(), beta.slice_mut()];
            kernels.delta_inputs(on_raw.as_slice(), of, heads, mixed.slice_mut(), to).unwrap();
            let layout = kernels.delta_layout(packing()).unwrap();
            let words = layout.span_count() * state_words(heads);
            let mut states = kernels.new_array::<u16>(words).unwrap();
            let [mut out, mut cached] =
                [(); 2].map(|()| kernels.new_array::<u16>(n * heads.values_width()).unwrap());
            let inputs = DeltaSlices {
                mixed: mixed.as_slice(),
                decay: decay.as_slice(),
                beta: beta.as_slice(),
                heads,
            };
            kernels.delta_rule(inputs, &layout, states.slice_mut(), out.slice_mut()).unwrap();
            let to = DeltaTargets {
                mixed: dmixed.slice_mut(),
                log_decay: dlog.slice_mut(),
                beta: dbeta.slice_mut(),
            };
            let given = [states.as_slice(), on_dout.as_slice()];
            kernels.delta_rule_back(inputs, &layout, given, to).unwrap();
            let stride = state_words(heads) / 2 + 4;
            let mut slots = kernels.array_of(&vec![0.0_f32; 2 * stride]).unwrap();
            for ends in [[0, 7], [7, 8], [8, 30]] {
                let at = kernels.state_layout(&[[ends[1] - ends[0], 1]]).unwrap();
                let part = |each: usize| ends[0] * each..ends[1] * each;
                let inputs = DeltaSlices {
                    mixed: mixed.as_slice().sub_slice(part(width)),
                    decay: decay.as_slice().sub_slice(part(2 * heads.values)),
                    beta: beta.as_slice().sub_slice(part(2 * heads.values)),
                    heads,
                };
                let to = cached.slice_mut().sub_slice(part(heads.values_width()));
                let states = (slots.slice_mut(), stride, 4);
                kernels.delta_rule_cached(inputs, &at, states, to).unwrap();
            }
            [&mixed, &decay, &beta, &out, &dmixed, &dlog, &dbeta, &cached]
                .map(|array| kernels.read_array(array).unwrap())
        };
        let [mixed, decay, beta, out, dmixed, dlog, dbeta, cached] = in_every_order(kernels, run);
        let first = 30 * heads.values_width();
        assert!(cached[..first] == out[..first], "{heads:?} behind a state");
        let mut want_mixed = from_bf16(&raw);
        normalize_keys(&mut want_mixed, heads);
        near_bf16("mixed", &mixed, &to_f64(&want_mixed));
        let [a, b, a_log, dt_bias] = [&a, &b, &a_log, &dt_bias].map(|x| from_bf16(x));
        let [mut want_decay, mut want_beta] = [(); 2].map(|()| vec![0.0; gates]);
        let of = GateWeights { a_log: &a_log, dt_bias: &dt_bias };
        delta_gates([&a, &b], of, [&mut want_decay, &mut want_beta]);
        near("decay", &of_halves(&decay), &to_f64(&want_decay), 1e-6);
        near("beta", &of_halves(&beta), &to_f64(&want_beta), 1e-6);
        let (mixed, spans) = (from_bf16(&mixed), packing().spans());
        let rows = DeltaRows { mixed: &mixed, decay: &want_decay, beta: &want_beta, heads };
        let mut states = vec![0.0; spans.len() * heads.state_len()];
        let mut want_out = vec![0.0; out.len()];
        delta_rule(rows, &spans, &mut states, &mut want_out);
        near("out", &from_bf16(&out), &to_f64(&want_out), 3e-3);
        let [mut of_mixed, mut of_decay, mut of_beta] =
            [n * width, gates, gates].map(|len| vec![0.0; len]);
        let to =
            DeltaGradients { mixed: &mut of_mixed, log_decay: &mut of_decay, beta: &mut of_beta };
        delta_rule_bwd(rows, &spans, &states, &from_bf16(&dout), to);
        near("dmixed", &from_bf16(&dmixed), &to_f64(&of_mixed), 3e-3);
        near("dlog", &of_halves(&dlog), &to_f64(&of_decay), 1e-5);
        near("dbeta", &of_halves(&dbeta), &to_f64(&of_beta), 1e-5);
    }
}

pub(super) fn rows_of_experts_agree_with_the_cpu<M: Tested>(kernels: &Kernels<M>) {
    let router = Router { experts: 5, chosen: 2, softmax: RouterSoftmax::Chosen };
    for (n, d) in [(1, 8), (37, 65)] {
        let scores = random(1, n * router.experts);
        let chosen = router.choose_experts(&scores);
        let weights = router.weigh_experts(&scores, &chosen);
        let rows = ExpertRows::sort_choices(&chosen, router);
        let (h, out) = (random_bf16(2, n * d), random_bf16(3, 2 * n * d));
        let gates = random_bf16(4, n);
        let clamp = ClampedGate { alpha: 1.702, limit: 0.6 };
        let run = |kernels: &Kernels<M>| {
            let on = kernels.choice_rows(&rows, &weights, router.chosen).unwrap();
            let [h, out, gates] = [&h, &out, &gates].map(|x| kernels.array_of(x).unwrap());
            let (h, out, gates) = (h.as_slice(), out.as_slice(), gates.as_slice());
            let [mut x, mut act, mut dgate, mut dup] =
                [(); 4].map(|()| kernels.new_array::<u16>(2 * n * d).unwrap());
            let mut dx = kernels.new_array::<u16>(n * d).unwrap();
            let mut dgates = kernels.new_array::<u16>(n).unwrap();
            let mut sum = kernels.new_array::<f32>(n * d).unwrap();
            kernels.gather_choices(h, &on, true, d, x.slice_mut()).unwrap();
            kernels.sum_choices(out, &on, true, d, sum.slice_mut()).unwrap();
            let dweights = kernels.multiply_choices(h, out, &on, d).unwrap();
            kernels.add_gated_rows(h, gates, sum.slice_mut()).unwrap();
            let both = [dx.slice_mut(), dgates.slice_mut()];
            let front = out.sub_slice(0..n * d);
            kernels.gated_rows_back([front, gates, h], both).unwrap();
            let given = x.as_slice();
            kernels.clamped_gate(clamp, [out, given], act.slice_mut()).unwrap();
            let both = [dgate.slice_mut(), dup.slice_mut()];
            kernels.clamped_gate_back(clamp, [out, given, out], both).unwrap();
            let halves = [&x, &act, &dgate, &dup, &dx, &dgates];
            let halves = halves.map(|array| kernels.read_array(array).unwrap());
            (halves, bits(&kernels.read_array(&sum).unwrap()), bits(&dweights))
        };
        let ([x, act, dgate, dup, dx, dgates], sum, dweights) = in_every_order(kernels, run);
        let [h, out, gates] = [&h, &out, &gates].map(|x| from_bf16(x));
        let mut want = vec![0.0; 2 * n * d];
        rows.gather_tokens(&h, Some(&weights), d, &mut want);
        near_bf16("rows", &x, &to_f64(&want));
        let mut want_sum = vec![0.0; n * d];
        rows.sum_choices(&out, Some(&weights), d, &mut want_sum);
        add_gated_rows(&h, &gates, d, &mut want_sum);
        let f32s = |x: Vec<u32>| x.into_iter().map(f32::from_bits).collect::<Vec<f32>>();
        near("sums", &f32s(sum), &to_f64(&want_sum), 1e-6);
        let want = rows.multiply_choices(&h, &out, d);
        near("weights", &f32s(dweights), &to_f64(&want), 1e-6);
        let mut want_dx = vec![0.0; n * d];
        let want = gated_rows_bwd(&out[..n * d], &gates, &h, d, &mut want_dx);
        near_bf16("gated rows", &dx, &to_f64(&want_dx));
        near_bf16("gates", &dgates, &to_f64(&want));
        let x = from_bf16(&x);
        let [mut a, mut b, mut c] = [(); 3].map(|()| vec![0.0; 2 * n * d]);
        clamp.forward(&out, &x, &mut a);
        clamp.backward(&out, &x, &out, [&mut b, &mut c]);
        for (got, want) in [(act, a), (dgate, b), (dup, c)] {
            near_bf16("clamped", &got, &to_f64(&want));
        }
    }
}
