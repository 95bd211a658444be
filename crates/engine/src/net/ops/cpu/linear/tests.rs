#![allow(clippy::unwrap_used)]

use super::*;
use crate::net::ops::Ops as _;
use crate::net::values::Params;

const N: usize = 5;
const I: usize = 12;
const R: usize = 3;
const O: usize = 9;
const SCALE: f32 = 0.7;

fn random(seed: u64, n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| uniform_number(seed, i) as f32 - 0.5).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// Returns parameters by name, seed and shape.
fn params<const M: usize>(shapes: [(&str, u64, [usize; 2]); M]) -> Params {
    let named = shapes.map(|(name, _, shape)| (name.to_owned(), shape.to_vec()));
    let fill = |index: usize, values: &mut [f32]| {
        values.copy_from_slice(&random(shapes[index].1, values.len()));
        Ok(())
    };
    Params::new(named, fill).unwrap()
}

/// Computes `Σ c ∘ y` from the formula, in f64.
fn reference([x, w, a, b]: [&[f64]; 4], mask: &[f64], c: &[f64]) -> f64 {
    let mut sum = 0.0;
    for t in 0..N {
        let low = |r: usize| -> f64 {
            (0..I).map(|i| x[t * I + i] * mask[t * I + i] * a[r * I + i]).sum()
        };
        let low: Vec<f64> = (0..R).map(low).collect();
        for o in 0..O {
            let base: f64 = (0..I).map(|i| x[t * I + i] * w[o * I + i]).sum();
            let more: f64 = (0..R).map(|r| low[r] * b[o * R + r]).sum();
            sum += c[t * O + o] * (base + f64::from(SCALE) * more);
        }
    }
    sum
}

fn central_differences(at: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    const H: f64 = 1e-4;
    let moved = |i: usize, h: f64| {
        let mut at = at.to_vec();
        at[i] += h;
        f(&at)
    };
    (0..at.len()).map(|i| (moved(i, H) - moved(i, -H)) / (2.0 * H)).collect()
}

fn close(ours: &[f32], expected: &[f64]) {
    assert_eq!(ours.len(), expected.len());
    for (ours, expected) in ours.iter().zip(expected) {
        assert!((f64::from(*ours) - expected).abs() < 1e-5, "{ours} is not {expected}");
    }
}

#[test]
fn gradients_agree_with_central_differences_with_and_without_dropout() {
    for p in [0.0, 0.4] {
        let params = params([("w", 2, [O, I]), ("a", 4, [R, I]), ("b", 5, [O, R])]);
        let dropout = Dropout { p, place: 3, keys: (0..N as u64).collect() };
        let mut mask = vec![1.0; N * I];
        drop_out(&dropout, &mut mask, I);
        let mut linear = Linear::new(params.param(0), None);
        linear.lora = Some(Lora {
            a: params.param(1),
            b: params.param(2),
            scale: SCALE,
            dropout: (p > 0.0).then_some(dropout),
        });
        let (x, c, mut pool) = (random(1, N * I), random(3, N * O), Pool::default());
        let y = project(&linear, &x, Precision::F32, &mut pool);
        let [wx, wc, mask] = [&x, &c, &mask].map(|v| wide(v));
        let [ww, wa, wb] = [0, 1, 2].map(|i| wide(&params.param(i).values()));
        let expected = reference([&wx, &ww, &wa, &wb], &mask, &wc);
        let loss: f64 = y.iter().zip(&wc).map(|(y, c)| f64::from(*y) * c).sum();
        assert!((loss - expected).abs() < 1e-5, "{loss} is not {expected}");

        let (mut gradients, mut dx) = (Gradients::new(&params), vec![f32::NAN; N * I]);
        backward(&linear, [&x, &c], &mut dx, Precision::F32.set(), &mut gradients, &mut pool);
        let of = |x: &[f64], w: &[f64], a: &[f64], b: &[f64]| reference([x, w, a, b], &mask, &wc);
        close(&dx, &central_differences(&wx, |x| of(x, &ww, &wa, &wb)));
        let sums = gradients.sums().unwrap();
        close(sums[0], &central_differences(&ww, |w| of(&wx, w, &wa, &wb)));
        close(sums[1], &central_differences(&wa, |a| of(&wx, &ww, a, &wb)));
        close(sums[2], &central_differences(&wb, |b| of(&wx, &ww, &wa, b)));
    }
}

#[test]
fn a_frozen_weight_gets_no_gradient_and_a_packed_one_gives_the_same_bits() {
    let params = params([("w", 2, [O, I]), ("bias", 6, [1, O])]);
    let mut weight = params.param(0);
    weight.freeze();
    let linear = Linear::new(weight, Some(params.param(1)));
    let (x, mut pool) = (random(1, N * I), Pool::default());
    for precision in Precision::ALL {
        let y = project(&linear, &x, precision, &mut pool);
        linear.pack(|weight| Cpu { precision }.pack(weight));
        assert_eq!(project(&linear, &x, precision, &mut pool), y);
        linear.unpack();
    }
    let (mut gradients, mut dx) = (Gradients::new(&params), vec![0.0; N * I]);
    let dy = random(3, N * O);
    backward(&linear, [&x, &dy], &mut dx, Precision::F32.set(), &mut gradients, &mut pool);
    let error = gradients.sums().unwrap_err().to_string();
    assert!(error.contains("`w` got no gradient"), "{error}");
}

#[test]
fn dropout_drops_its_share_and_keeps_the_mean() {
    let dropout = Dropout { p: 0.3, place: 1, keys: (0..100).collect() };
    let mut x = vec![1.0; 100 * 200];
    drop_out(&dropout, &mut x, 200);
    let dropped = x.iter().filter(|x| **x == 0.0).count() as f64 / x.len() as f64;
    let mean = x.iter().sum::<f32>() / x.len() as f32;
    assert!((dropped - 0.3).abs() < 0.02 && (mean - 1.0).abs() < 0.03, "{dropped}, {mean}");
}
