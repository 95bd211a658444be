//! Helpers shared by the tests of all kernels: random numbers, comparisons, thread pools.

use crate::sample::uniform_number;

/// Generates numbers between −1 and 1.
pub(crate) fn random(seed: u64, n: usize) -> Vec<f32> {
    (0..n).map(|i| (uniform_number(seed, i as u64) * 2.0 - 1.0) as f32).collect()
}

pub(crate) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// Asserts that `got` is within `tolerance` of `want`, relative to the largest element of `want`.
#[track_caller]
pub(crate) fn close(got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    let size = want.iter().fold(1e-6, |a: f64, b| a.max(b.abs()));
    for (i, (&got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(got) - want).abs() / size;
        assert!(error <= tolerance, "element {i}: {got}, not {want} (error {error:e})");
    }
}

#[track_caller]
pub(crate) fn same_bits(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert_eq!(a.to_bits(), b.to_bits(), "element {i}: {a} and {b}");
    }
}

/// Computes the gradient of `f` at `x` by central differences.
pub(crate) fn numeric(x: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let mut x = x.to_vec();
    let step = 1e-5;
    (0..x.len())
        .map(|i| {
            let at = x[i];
            x[i] = at + step;
            let up = f(&x);
            x[i] = at - step;
            let down = f(&x);
            x[i] = at;
            (up - down) / (2.0 * step)
        })
        .collect()
}

pub(crate) fn weigh(a: &[f64], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, &b)| a * f64::from(b)).sum()
}

/// Runs `f` in a pool of `n` threads.
#[cfg(test)]
pub(crate) fn threads<R: Send>(n: usize, f: impl FnOnce() -> R + Send) -> R {
    crate::simd::threads(n, f)
}
