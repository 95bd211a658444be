use super::*;
use crate::testing::{close, numeric, random, same_bits, weigh, wide};

fn reference(gate: &[f64], up: &[f64]) -> Vec<f64> {
    gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()
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
}

#[test]
fn merged_rows_have_the_bits_of_two_slices() {
    for (n, width) in [(3, 5), (700, 96)] {
        let (merged, dout) = (random(6, 2 * n * width), random(7, n * width));
        let half = |of: &[f32], at: usize| -> Vec<f32> {
            of.chunks_exact(2 * width).flat_map(|row| row[at..at + width].to_vec()).collect()
        };
        let (gate, up) = (half(&merged, 0), half(&merged, width));
        let (mut got, mut want) = (vec![0.0; n * width], vec![1.0; n * width]);
        swiglu_merged(&merged, width, &mut got);
        swiglu(&gate, &up, &mut want);
        same_bits(&got, &want);
        let mut dmerged = vec![f32::NAN; merged.len()];
        let (mut dgate, mut dup) = (vec![0.0; n * width], vec![0.0; n * width]);
        swiglu_merged_bwd(&merged, width, &dout, &mut dmerged);
        swiglu_bwd(&gate, &up, &dout, &mut dgate, &mut dup);
        same_bits(&half(&dmerged, 0), &dgate);
        same_bits(&half(&dmerged, width), &dup);
    }
}
