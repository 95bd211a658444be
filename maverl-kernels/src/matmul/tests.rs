use super::*;
use crate::testing::{close, random, same_bits, threads};

type Product = fn(&[f32], &[f32], &mut [f32], usize, usize, usize);

/// `Σ_p a(i, p) b(p, j)` in f64.
fn naive(
    m: usize,
    n: usize,
    k: usize,
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize, usize) -> f32,
) -> Vec<f64> {
    (0..m * n)
        .map(|o| (0..k).map(|p| f64::from(a(o / n, p)) * f64::from(b(p, o % n))).sum())
        .collect()
}

const SIZES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (1, 64, 128),
    (3, 1, 70),
    (7, 9, 2),
    (2, 16, 3),
    (5, 31, 33),
    (17, 512, 128),
    (33, 24, 515),
    (65, 70, 1100),
    (130, 8, 40),
    (0, 4, 4),
    (300, 257, 64),
];

#[test]
fn products_agree_with_f64() {
    for (m, n, k) in SIZES {
        let (a, b) = (random(1, m * k), random(2, k * n));
        let mut out = vec![f32::NAN; m * n];
        matmul_nt(&a, &b, &mut out, m, n, k);
        close(&out, &naive(m, n, k, |i, p| a[i * k + p], |p, j| b[j * k + p]), 2e-6);
        out.fill(f32::NAN);
        matmul_nn(&a, &b, &mut out, m, n, k);
        close(&out, &naive(m, n, k, |i, p| a[i * k + p], |p, j| b[p * n + j]), 2e-6);
        out.fill(0.25);
        matmul_tn_acc(&a, &b, &mut out, m, n, k);
        let mut want = naive(m, n, k, |i, p| a[p * m + i], |p, j| b[p * n + j]);
        want.iter_mut().for_each(|w| *w += 0.25);
        close(&out, &want, 4e-6);
    }
}

#[test]
fn no_terms_give_zero() {
    let mut out = [1.0; 64];
    matmul_nt(&[], &[], &mut out, 4, 16, 0);
    assert_eq!(out, [0.0; 64]);
    out.fill(1.0);
    matmul_nn(&[], &[], &mut out, 4, 16, 0);
    assert_eq!(out, [0.0; 64]);
}

#[test]
fn a_row_has_the_same_bits_in_every_batch() {
    for product in [matmul_nt as Product, matmul_nn] {
        for (n, k) in [
            (1, 128),
            (3, 5),
            (8, 64),
            (12, 513),
            (16, 128),
            (32, 32),
            (128, 384),
            (384, 128),
            (200, 1),
            (64, 2),
            (512, 1030),
        ] {
            let most = 300;
            let (a, b) = (random(3, most * k), random(4, n * k));
            let mut whole = vec![0.0; most * n];
            product(&a, &b, &mut whole, most, n, k);
            for m in (1..=40).chain([63, 64, 65, 127, 129, 255, 257]) {
                let mut out = vec![0.0; m * n];
                product(&a[..m * k], &b, &mut out, m, n, k);
                same_bits(&out, &whole[..m * n]);
            }
            // The last row alone, at another place in memory.
            let mut out = vec![0.0; n];
            product(&a[(most - 1) * k..], &b, &mut out, 1, n, k);
            same_bits(&out, &whole[(most - 1) * n..]);
        }
    }
}

#[test]
fn threads_do_not_change_bits() {
    for (m, n, k) in [(512, 300, 700), (128, 384, 4096), (4096, 128, 128)] {
        let (a, b) = (random(5, m * k), random(6, n * k));
        for product in [matmul_nt as Product, matmul_nn, matmul_tn_acc] {
            let run = |count| {
                threads(count, || {
                    let mut out = vec![0.0; m * n];
                    product(&a, &b, &mut out, m, n, k);
                    out
                })
            };
            let one = run(1);
            for count in [2, 3, 8] {
                same_bits(&one, &run(count));
            }
        }
    }
}

#[test]
#[should_panic(expected = "b has 3 elements, not [2, 2]")]
fn wrong_shapes_are_named() {
    matmul_nt(&[0.0; 2], &[0.0; 3], &mut [0.0; 2], 1, 2, 2);
}
