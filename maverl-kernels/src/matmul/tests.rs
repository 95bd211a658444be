use half::bf16;

use super::layout::{Panel, Tile};
use super::*;
use crate::testing::{close, random, same_bits, threads};

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

const SIZES: [(usize, usize, usize); 13] = [
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
    (61, 90, 2051),
];

/// Numbers between −1 and 1 that a precision has.
trait Random: Element {
    const PRECISION: Precision;
    fn random(seed: u64, n: usize) -> Vec<f32>;
}

impl Random for F32 {
    const PRECISION: Precision = Precision::F32;
    fn random(seed: u64, n: usize) -> Vec<f32> {
        random(seed, n)
    }
}

impl Random for Bf16 {
    const PRECISION: Precision = Precision::Bf16;
    fn random(seed: u64, n: usize) -> Vec<f32> {
        random(seed, n).into_iter().map(|x| bf16::from_f32(x).to_f32()).collect()
    }
}

/// All paths that this processor has; says which are missing.
fn paths<E: Element>() -> Vec<Path> {
    let all = [
        Path::Portable,
        Path::Tiles,
        #[cfg(target_arch = "x86_64")]
        Path::Avx512,
        #[cfg(target_arch = "x86_64")]
        Path::Amx,
    ];
    let (here, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|path| path.works::<E>());
    println!("not on this processor for {}: {missing:?}", std::any::type_name::<E>());
    here
}

fn nt<E: Element>(path: Path, a: &[f32], b: &[f32], out: &mut [f32], [m, n, k]: [usize; 3]) {
    run::<E>((a, m, Order::Terms), (b, n, Order::Terms), out, k, Then::Set, path);
}

fn nn<E: Element>(path: Path, a: &[f32], b: &[f32], out: &mut [f32], [m, n, k]: [usize; 3]) {
    run::<E>((a, m, Order::Terms), (b, n, Order::Indices), out, k, Then::Set, path);
}

fn tn<E: Element>(path: Path, a: &[f32], b: &[f32], out: &mut [f32], [m, n, k]: [usize; 3]) {
    run::<E>((a, m, Order::Indices), (b, n, Order::Indices), out, k, Then::Add, path);
}

fn every_path_agrees_with_f64<E: Random>() {
    for path in paths::<E>() {
        for (m, n, k) in SIZES {
            let (a, b) = (E::random(1, m * k), E::random(2, k * n));
            let (at, bt) = (|i: usize| a[i], |i: usize| b[i]);
            let mut out = vec![f32::NAN; m * n];
            nt::<E>(path, &a, &b, &mut out, [m, n, k]);
            close(&out, &naive(m, n, k, |i, p| at(i * k + p), |p, j| bt(j * k + p)), 2e-6);
            out.fill(f32::NAN);
            nn::<E>(path, &a, &b, &mut out, [m, n, k]);
            close(&out, &naive(m, n, k, |i, p| at(i * k + p), |p, j| bt(p * n + j)), 2e-6);
            out.fill(0.25);
            tn::<E>(path, &a, &b, &mut out, [m, n, k]);
            let mut want = naive(m, n, k, |i, p| at(p * m + i), |p, j| bt(p * n + j));
            want.iter_mut().for_each(|w| *w += 0.25);
            close(&out, &want, 4e-6);
        }
    }
}

#[test]
fn every_path_agrees_with_f64_in_f32() {
    every_path_agrees_with_f64::<F32>();
}

#[test]
fn every_path_agrees_with_f64_in_bf16() {
    every_path_agrees_with_f64::<Bf16>();
}

#[test]
fn every_path_of_f32_has_the_same_bits() {
    for (m, n, k) in SIZES {
        let (a, b) = (random(1, m * k), random(2, k * n));
        let mut want = vec![0.0; m * n];
        nt::<F32>(Path::Portable, &a, &b, &mut want, [m, n, k]);
        for path in paths::<F32>() {
            let mut out = vec![0.0; m * n];
            nt::<F32>(path, &a, &b, &mut out, [m, n, k]);
            same_bits(&out, &want);
        }
    }
}

/// AVX2 is what most processors have; here the same source is compiled for it.
#[test]
#[cfg(target_arch = "x86_64")]
fn avx2_has_the_bits_of_the_portable_path() {
    use pulp::x86::V3;
    let Some(simd) = V3::try_new() else {
        println!("skipped: this processor has no AVX2");
        return;
    };
    let (rows, depth) = (11, 70);
    let tile: Vec<u32> = random(1, rows * depth).into_iter().map(f32::to_bits).collect();
    let tile = Tile { words: &tile, row: depth, word: 1 };
    let panel: Vec<Line> = random(2, depth * layout::PANEL)
        .chunks_exact(layout::PANEL)
        .map(|line| Line(std::array::from_fn(|i| line[i].to_bits())))
        .collect();
    let (mut a, mut b) = ([[0.0; layout::PANEL]; 11], [[0.0; layout::PANEL]; 11]);
    let mut places = a.each_mut().map(|row| &mut row[..]);
    kernel::portable::<F32>(tile, Panel::of(&panel), &mut places, Then::Set);
    let mut places = b.each_mut().map(|row| &mut row[..]);
    simd.vectorize(
        #[inline(always)]
        || kernel::portable::<F32>(tile, Panel::of(&panel), &mut places, Then::Set),
    );
    same_bits(a.as_flattened(), b.as_flattened());
}

#[test]
fn no_terms_give_zero() {
    let mut out = [1.0; 64];
    Precision::F32.set().nt(&[], &[], &mut out, 4, 16, 0);
    assert_eq!(out, [0.0; 64]);
    out.fill(1.0);
    Precision::Bf16.set().nn(&[], &[], &mut out, 4, 16, 0);
    assert_eq!(out, [0.0; 64]);
    Precision::F32.add().tn(&[], &[], &mut out, 4, 16, 0);
    assert_eq!(out, [0.0; 64]);
}

fn a_row_has_the_same_bits_in_every_batch<E: Random>() {
    for path in paths::<E>() {
        for product in [nt::<E>, nn::<E>] {
            for (n, k) in [(1, 128), (3, 5), (12, 513), (32, 32), (384, 128), (64, 2), (512, 1030)]
            {
                let most = 300;
                let (a, b) = (E::random(3, most * k), E::random(4, n * k));
                let mut whole = vec![0.0; most * n];
                product(path, &a, &b, &mut whole, [most, n, k]);
                for m in (1..=40).chain([63, 64, 65, 127, 129, 255, 257]) {
                    let mut out = vec![0.0; m * n];
                    product(path, &a[..m * k], &b, &mut out, [m, n, k]);
                    same_bits(&out, &whole[..m * n]);
                }
                // The last row alone, at another place in memory.
                let mut out = vec![0.0; n];
                product(path, &a[(most - 1) * k..], &b, &mut out, [1, n, k]);
                same_bits(&out, &whole[(most - 1) * n..]);
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_batch_in_f32() {
    a_row_has_the_same_bits_in_every_batch::<F32>();
}

#[test]
fn a_row_has_the_same_bits_in_every_batch_in_bf16() {
    a_row_has_the_same_bits_in_every_batch::<Bf16>();
}

fn threads_do_not_change_bits<E: Random>() {
    for path in paths::<E>() {
        for (m, n, k) in [(512, 300, 700), (128, 384, 4096), (4096, 128, 128), (20, 900, 600)] {
            let (a, b) = (E::random(5, m * k), E::random(6, n * k));
            for product in [nt::<E>, nn::<E>, tn::<E>] {
                let run = |count| {
                    threads(count, || {
                        let mut out = vec![0.0; m * n];
                        product(path, &a, &b, &mut out, [m, n, k]);
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
}

#[test]
fn threads_do_not_change_bits_in_f32() {
    threads_do_not_change_bits::<F32>();
}

#[test]
fn threads_do_not_change_bits_in_bf16() {
    threads_do_not_change_bits::<Bf16>();
}

fn a_packed_weight_gives_the_bits_of_the_weight<E: Random>() {
    for (m, n, k) in SIZES {
        let (a, b, c) = (E::random(1, m * k), E::random(2, n * k), E::random(3, n * k));
        let mut packed = Packed::pack(E::PRECISION, &c, n, k);
        packed.update(&b);
        assert_eq!(packed.shape(), (n, k));
        let (mut got, mut want) = (vec![1.0; m * n], vec![2.0; m * n]);
        E::PRECISION.set().nt_packed(&a, &packed, &mut got, m);
        E::PRECISION.set().nt(&a, &b, &mut want, m, n, k);
        same_bits(&got, &want);
    }
}

#[test]
fn a_packed_weight_gives_the_bits_of_the_weight_in_both_precisions() {
    a_packed_weight_gives_the_bits_of_the_weight::<F32>();
    a_packed_weight_gives_the_bits_of_the_weight::<Bf16>();
}

#[test]
fn infinities_and_nan_reach_the_output() {
    for path in paths::<F32>() {
        let mut a = random(1, 3 * 40);
        (a[5], a[45]) = (f32::INFINITY, f32::NAN);
        let mut out = vec![0.0; 3 * 33];
        nt::<F32>(path, &a, &vec![1.0; 33 * 40], &mut out, [3, 33, 40]);
        assert!(out[..33].iter().all(|&x| x == f32::INFINITY), "{path:?}");
        assert!(out[33..66].iter().all(|x| x.is_nan()), "{path:?}");
        assert!(out[66..].iter().all(|x| x.is_finite()), "{path:?}");
    }
}

#[test]
fn rounding_to_bf16_is_that_of_half() {
    let mut x: Vec<f32> = (0..1 << 16).map(|i| f32::from_bits(i * 65_521)).collect();
    x.extend(
        (0..4).flat_map(|i| {
            [0x3f80_8000_u32, 0x3f81_8000, 0x7f7f_ffff].map(|b| f32::from_bits(b + i))
        }),
    );
    for x in x {
        let got = layout::nearest_bf16(x.to_bits());
        assert_eq!(got, u32::from(bf16::from_f32(x).to_bits()) << 16, "{x:e}");
        assert_eq!(Bf16::word(x, 1.0), 0x3f80_0000 | got >> 16);
    }
}

#[test]
fn every_product_may_be_added_to_what_is_there() {
    let (m, n, k) = (20, 40, 1300);
    for precision in [Precision::F32, Precision::Bf16] {
        let (a, b) = (random(1, m * k), random(2, k * n));
        for product in [Matmul::nt, Matmul::nn, Matmul::tn] {
            let (mut set, mut add) = (vec![f32::NAN; m * n], vec![0.5; m * n]);
            product(precision.set(), &a, &b, &mut set, m, n, k);
            product(precision.add(), &a, &b, &mut add, m, n, k);
            let want: Vec<f64> = set.iter().map(|&x| f64::from(x) + 0.5).collect();
            close(&add, &want, 1e-5);
        }
    }
}

#[test]
#[should_panic(expected = "b has 3 elements, not [2, 2]")]
fn wrong_shapes_are_named() {
    Precision::F32.set().nt(&[0.0; 2], &[0.0; 3], &mut [0.0; 2], 1, 2, 2);
}
