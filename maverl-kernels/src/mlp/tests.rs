use super::*;
use crate::testing::{close, numeric, random, same_bits, weigh, wide};

fn reference(gate: &[f64], up: &[f64]) -> Vec<f64> {
    gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()
}

fn gelu(gate: &[f64], up: &[f64]) -> Vec<f64> {
    let scale = (2.0 / std::f64::consts::PI).sqrt();
    let gelu = |g: f64| 0.5 * g * (1.0 + (scale * (g + 0.044_715 * g * g * g)).tanh());
    gate.iter().zip(up).map(|(g, u)| gelu(*g) * u).collect()
}

#[test]
fn geglu_forward_and_backward_agree_with_f64() {
    let n = 203;
    let gate: Vec<f32> = random(1, n).iter().map(|g| g * 8.0).collect();
    let (up, dout) = (random(2, n), random(3, n));
    let mut out = vec![f32::NAN; n];
    geglu(&gate, &up, &mut out);
    let (g, u) = (wide(&gate), wide(&up));
    close(&out, &gelu(&g, &u), 1e-6);
    let (mut dgate, mut dup) = (vec![f32::NAN; n], vec![f32::NAN; n]);
    geglu_bwd(&gate, &up, &dout, &mut dgate, &mut dup);
    close(&dgate, &numeric(&g, |g| weigh(&gelu(g, &u), &dout)), 1e-5);
    close(&dup, &numeric(&u, |u| weigh(&gelu(&g, u), &dout)), 1e-5);
    let mut out = [f32::NAN; 2];
    geglu(&[-1e4, 1e4], &[1.0; 2], &mut out);
    assert_eq!(out, [0.0, 1e4]);
}

#[test]
fn forward_and_backward_agree_with_f64() {
    let n = 203;
    let gate: Vec<f32> = random(1, n).iter().map(|g| g * 12.0).collect();
    let (up, dout) = (random(2, n), random(3, n));
    let mut out = vec![f32::NAN; n];
    swiglu(&gate, &up, &mut out);
    let (g, u) = (wide(&gate), wide(&up));
    close(&out, &reference(&g, &u), 1e-6);
    let (mut dgate, mut dup) = (vec![f32::NAN; n], vec![f32::NAN; n]);
    swiglu_bwd(&gate, &up, &dout, &mut dgate, &mut dup);
    close(&dgate, &numeric(&g, |g| weigh(&reference(g, &u), &dout)), 1e-5);
    close(&dup, &numeric(&u, |u| weigh(&reference(&g, u), &dout)), 1e-5);
}

#[test]
fn extreme_gates_stay_finite() {
    let mut out = [f32::NAN; 3];
    swiglu(&[-1e4, 1e4, 0.0], &[1.0; 3], &mut out);
    assert_eq!(out[1..], [1e4, 0.0]);
    assert!(out[0].abs() < 1e-30);
}

#[test]
fn an_element_alone_has_the_same_bits() {
    let n = 70_001;
    let (gate, up) = (random(4, n), random(5, n));
    let mut whole = vec![0.0; n];
    swiglu(&gate, &up, &mut whole);
    for i in [0, 17, 40_000, n - 1] {
        let mut alone = [0.0];
        swiglu(&gate[i..=i], &up[i..=i], &mut alone);
        same_bits(&alone, &whole[i..=i]);
    }
    geglu(&gate, &up, &mut whole);
    let mut alone = [0.0];
    geglu(&gate[40_000..=40_000], &up[40_000..=40_000], &mut alone);
    same_bits(&alone, &whole[40_000..=40_000]);
}

#[test]
fn silu_and_the_gate_of_a_sigmoid_agree_with_f64() {
    let (x, gate, dout) = (random(1, 83), random(2, 83), random(3, 83));
    let (wide_x, wide_gate) = (wide(&x), wide(&gate));
    let mut out = vec![f32::NAN; 83];
    silu(&x, &mut out);
    let ones = vec![1.0; 83];
    close(&out, &reference(&wide_x, &ones), 1e-6);
    let mut gradient = dout.clone();
    silu_bwd(&x, &mut gradient);
    close(&gradient, &numeric(&wide_x, |x| weigh(&reference(x, &ones), &dout)), 1e-5);

    let gated = |x: &[f64], gate: &[f64]| -> Vec<f64> {
        x.iter().zip(gate).map(|(x, g)| x / (1.0 + (-g).exp())).collect()
    };
    sigmoid_gate(&x, &gate, &mut out);
    close(&out, &gated(&wide_x, &wide_gate), 1e-6);
    let (mut dx, mut dgate) = (vec![f32::NAN; 83], vec![f32::NAN; 83]);
    sigmoid_gate_bwd(&x, &gate, &dout, &mut dx, &mut dgate);
    close(&dx, &numeric(&wide_x, |x| weigh(&gated(x, &wide_gate), &dout)), 1e-5);
    close(&dgate, &numeric(&wide_gate, |g| weigh(&gated(&wide_x, g), &dout)), 1e-5);
}
