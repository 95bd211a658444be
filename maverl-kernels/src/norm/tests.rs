use super::*;
use crate::testing::{close, numeric, random, same_bits, threads, weigh, wide};

fn reference(x: &[f64], w: &[f64], eps: f64) -> Vec<f64> {
    x.chunks(w.len())
        .flat_map(|x| {
            let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
            x.iter().zip(w).map(move |(x, w)| w * x / (mean + eps).sqrt())
        })
        .collect()
}

#[test]
fn forward_agrees_with_f64() {
    for d in [1, 7, 16, 128, 129] {
        let (x, w) = (random(1, 9 * d), random(2, d));
        let mut out = vec![0.0; x.len()];
        rms_norm(&x, &w, 1e-5, &mut out);
        close(&out, &reference(&wide(&x), &wide(&w), f64::from(1e-5_f32)), 1e-6);
    }
}

#[test]
fn backward_agrees_with_central_differences() {
    for d in [1, 5, 24] {
        let (x, w, dy) = (random(3, 3 * d), random(4, d), random(5, 3 * d));
        let (mut dx, mut dw) = (vec![f32::NAN; 3 * d], vec![0.0; d]);
        rms_norm_bwd(&x, &w, 1e-2, &dy, &mut dx, Some(&mut dw));
        let eps = f64::from(1e-2_f32);
        let (x, w) = (wide(&x), wide(&w));
        close(&dx, &numeric(&x, |x| weigh(&reference(x, &w, eps), &dy)), 1e-4);
        close(&dw, &numeric(&w, |w| weigh(&reference(&x, w, eps), &dy)), 1e-4);
    }
}

#[test]
fn rows_and_threads_do_not_change_bits() {
    let (n, d) = (1500, 96);
    let (x, w, dy) = (random(6, n * d), random(7, d), random(8, n * d));
    let run = |count| {
        threads(count, || {
            let mut out = [vec![0.0; n * d], vec![0.0; n * d], vec![0.0; d]];
            let [y, dx, dw] = &mut out;
            rms_norm(&x, &w, 1e-6, y);
            rms_norm_bwd(&x, &w, 1e-6, &dy, dx, Some(dw));
            out
        })
    };
    let (one, four) = (run(1), run(4));
    one.iter().zip(&four).for_each(|(a, b)| same_bits(a, b));
    let mut alone = vec![0.0; d];
    rms_norm(&x[7 * d..8 * d], &w, 1e-6, &mut alone);
    same_bits(&alone, &one[0][7 * d..8 * d]);
}

#[test]
fn a_residual_stream_keeps_what_reached_it_by_other_ways() {
    for (n, d) in [(3, 7), (1500, 96)] {
        let (x, w) = (random(9, n * d), random(11, d));
        let (dy, other) = (random(12, n * d), random(13, n * d));
        let (mut dx, mut dw) = (other.clone(), vec![0.0; d]);
        rms_norm_bwd_add(&x, &w, 1e-5, &dy, &mut dx, Some(&mut dw));
        let (mut share, mut want_dw) = (vec![0.0; n * d], vec![0.0; d]);
        rms_norm_bwd(&x, &w, 1e-5, &dy, &mut share, Some(&mut want_dw));
        share.iter_mut().zip(&other).for_each(|(share, other)| *share += other);
        same_bits(&dx, &share);
        same_bits(&dw, &want_dw);
    }
}
