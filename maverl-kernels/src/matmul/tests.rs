use half::{bf16, f16};

use super::part::OutputRows;
use super::path::InnerLoop;
use super::tiles::{Panel, Tile};
use super::vectors::{VectorWork, Vectors};
use super::*;
use crate::simd;
use crate::testing::{close, random, same_bits, threads};

/// Computes `Σ_p a(i, p) b(p, j)` in f64.
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

/// Sizes with several blocks of columns, of pieces, and of both.
const BLOCKS: [(usize, usize, usize); 3] = [(256, 1060, 500), (270, 700, 1030), (256, 2100, 1100)];

/// Numbers between −1 and 1 that a precision represents exactly.
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

impl Random for F16 {
    const PRECISION: Precision = Precision::F16;
    fn random(seed: u64, n: usize) -> Vec<f32> {
        random(seed, n).into_iter().map(|x| f16::from_f32(x).to_f32()).collect()
    }
}

/// Returns the paths of this processor, with every inner loop that works on their vectors.
fn paths<E: Element>() -> Vec<ProductPath> {
    let mut paths = Vec::new();
    for path in simd::available_paths() {
        let path = ProductPath::for_path::<E>(path);
        paths.push(path);
        if path.inner != InnerLoop::Vectors {
            paths.push(path.with(InnerLoop::Vectors));
        }
    }
    let tiles = paths.last().map(|path| path.with(InnerLoop::Tiles));
    paths.extend(tiles);
    paths
}

/// Defines [`InnerLoop::Tiles`]: words one after the other, the terms of a word one after the other.
pub(super) fn multiply_tile<E: Element>(
    tile: Tile<'_>,
    panel: Panel<'_>,
    out: &mut OutputRows<'_>,
    then: Then,
) {
    for row in 0..out.len() {
        for (column, out) in out.row(row).iter_mut().enumerate() {
            let mut sum = 0.0;
            for p in 0..panel.depth {
                let a = tile.words[row * tile.row + p * tile.word];
                let b = panel.words[p * panel.stride + column];
                for term in 0..E::TERMS {
                    let of = |word| E::unpack_term(pulp::Scalar, word, term);
                    sum = of(a).mul_add(of(b), sum);
                }
            }
            *out = if then == Then::Add { *out + sum } else { sum };
        }
    }
}

/// A product of a form and a precision, on a path.
type Product = fn(ProductPath, &[f32], &[f32], &mut [f32], [usize; 3]);

fn nt<E: Element>(path: ProductPath, a: &[f32], b: &[f32], out: &mut [f32], [m, n, k]: [usize; 3]) {
    run_product::<E>(
        (a, m, MemoryOrder::Terms),
        (b, n, MemoryOrder::Terms),
        out,
        k,
        Then::Set,
        path,
    );
}

fn nn<E: Element>(path: ProductPath, a: &[f32], b: &[f32], out: &mut [f32], [m, n, k]: [usize; 3]) {
    run_product::<E>(
        (a, m, MemoryOrder::Terms),
        (b, n, MemoryOrder::Indices),
        out,
        k,
        Then::Set,
        path,
    );
}

fn tn<E: Element>(path: ProductPath, a: &[f32], b: &[f32], out: &mut [f32], [m, n, k]: [usize; 3]) {
    run_product::<E>(
        (a, m, MemoryOrder::Indices),
        (b, n, MemoryOrder::Indices),
        out,
        k,
        Then::Add,
        path,
    );
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
fn every_path_agrees_with_f64_in_f16() {
    every_path_agrees_with_f64::<F16>();
}

/// Returns true if a path adds the terms one after the other, as `f32` always does.
fn adds_in_order(path: &ProductPath) -> bool {
    matches!(path.inner, InnerLoop::Vectors | InnerLoop::Tiles)
}

fn every_path_that_adds_in_order_has_the_same_bits<E: Random>() {
    for (m, n, k) in SIZES {
        let (a, b) = (E::random(1, m * k), E::random(2, k * n));
        for product in [nt::<E>, nn::<E>, tn::<E>] {
            let mut want: Option<Vec<f32>> = None;
            for path in paths::<E>().into_iter().filter(adds_in_order) {
                let mut out = vec![0.5; m * n];
                product(path, &a, &b, &mut out, [m, n, k]);
                same_bits(want.get_or_insert_with(|| out.clone()), &out);
            }
        }
    }
}

#[test]
fn every_path_of_f32_has_the_same_bits() {
    assert!(paths::<F32>().iter().all(adds_in_order));
    every_path_that_adds_in_order_has_the_same_bits::<F32>();
}

#[test]
fn every_path_that_widens_bf16_has_the_same_bits() {
    every_path_that_adds_in_order_has_the_same_bits::<Bf16>();
}

#[test]
fn every_path_of_f16_has_the_same_bits() {
    assert!(paths::<F16>().iter().all(adds_in_order));
    every_path_that_adds_in_order_has_the_same_bits::<F16>();
}

/// Returns numbers of every size that `f16` has: subnormal ones, zeros, and large ones whose products stay finite.
fn wide_numbers(seed: u64, n: usize) -> Vec<f32> {
    let scales = [1e-7, 6e-5, 1e-3, 1.0, 200.0, 0.0, 3e-6];
    let numbers = random(seed, n).into_iter().zip(scales.into_iter().cycle());
    numbers.map(|(x, scale)| x * scale).collect()
}

#[test]
fn a_product_in_f16_is_that_in_f32_of_rounded_terms() {
    // Both have one piece up to 512 terms.
    for (m, n, k) in SIZES.into_iter().filter(|size| size.2 <= 512) {
        let (a, b) = (wide_numbers(1, m * k), wide_numbers(2, k * n));
        let round =
            |x: &[f32]| -> Vec<f32> { x.iter().map(|&x| f16::from_f32(x).to_f32()).collect() };
        let (rounded_a, rounded_b) = (round(&a), round(&b));
        for (in_f16, in_f32) in [
            (nt::<F16> as Product, nt::<F32> as Product),
            (nn::<F16>, nn::<F32>),
            (tn::<F16>, tn::<F32>),
        ] {
            let mut want = vec![0.5; m * n];
            let path = ProductPath::current::<F32>();
            in_f32(path, &rounded_a, &rounded_b, &mut want, [m, n, k]);
            for path in paths::<F16>() {
                let mut got = vec![0.5; m * n];
                in_f16(path, &a, &b, &mut got, [m, n, k]);
                same_bits(&got, &want);
            }
        }
    }
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

/// Returns the stride through the cases of a test: `n` in the first tier, 1 in the second (`MAVERL_FULL`).
fn stride(n: usize) -> usize {
    if std::env::var_os("MAVERL_FULL").is_some() { 1 } else { n }
}

fn a_row_has_the_same_bits_in_every_batch<E: Random>() {
    for path in paths::<E>() {
        for product in [nt::<E>, nn::<E>] {
            let wide = if stride(2) == 1 { 512 } else { 160 };
            for (n, k) in [(1, 128), (3, 5), (12, 513), (32, 32), (384, 128), (64, 2), (wide, 1030)]
            {
                let most = 300;
                let (a, b) = (E::random(3, most * k), E::random(4, n * k));
                let mut whole = vec![0.0; most * n];
                product(path, &a, &b, &mut whole, [most, n, k]);
                let large = [63, 64, 65, 127, 129, 255, 257].into_iter().step_by(stride(3));
                for m in (1..=40).step_by(stride(4)).chain(large) {
                    let mut out = vec![0.0; m * n];
                    product(path, &a[..m * k], &b, &mut out, [m, n, k]);
                    same_bits(&out, &whole[..m * n]);
                }
                // The last row alone, at another address.
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

#[test]
fn a_row_has_the_same_bits_in_every_batch_in_f16() {
    a_row_has_the_same_bits_in_every_batch::<F16>();
}

fn threads_do_not_change_bits<E: Random>() {
    for path in paths::<E>() {
        for (m, n, k) in [(512, 300, 175), (128, 384, 1030), (2048, 128, 64), (20, 900, 600)] {
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

#[test]
fn threads_do_not_change_bits_in_f16() {
    threads_do_not_change_bits::<F16>();
}

fn shared_blocks_give_the_bits_of_one_thread<E: Random>() {
    let shares =
        |path: &ProductPath| path.inner == InnerLoop::Vectors && path.tiles_of_blocks().is_some();
    for path in paths::<E>().into_iter().filter(shares) {
        for (m, n, k) in BLOCKS {
            let (a, b) = (E::random(5, m * k), E::random(6, n * k));
            for product in [nt::<E>, nn::<E>, tn::<E>] {
                let [one, two] = [1, 2].map(|count| {
                    threads(count, || {
                        let mut out = vec![0.0; m * n];
                        product(path, &a, &b, &mut out, [m, n, k]);
                        out
                    })
                });
                same_bits(&one, &two);
            }
        }
    }
}

#[test]
fn shared_blocks_give_the_bits_of_one_thread_in_every_precision() {
    shared_blocks_give_the_bits_of_one_thread::<F32>();
    shared_blocks_give_the_bits_of_one_thread::<Bf16>();
    shared_blocks_give_the_bits_of_one_thread::<F16>();
}

fn a_packed_weight_gives_the_bits_of_the_weight<E: Random>() {
    for (m, n, k) in SIZES.into_iter().chain(BLOCKS) {
        let (a, b, c) = (E::random(1, m * k), E::random(2, n * k), E::random(3, n * k));
        let mut packed = PackedWeight::pack(E::PRECISION, &c, n, k);
        packed.update(&b);
        assert_eq!(packed.shape(), (n, k));
        let (mut got, mut want) = (vec![1.0; m * n], vec![2.0; m * n]);
        E::PRECISION.set().nt_packed(&a, &packed, &mut got, m);
        E::PRECISION.set().nt(&a, &b, &mut want, m, n, k);
        same_bits(&got, &want);
    }
}

#[test]
fn a_packed_weight_gives_the_bits_of_the_weight_in_every_precision() {
    a_packed_weight_gives_the_bits_of_the_weight::<F32>();
    a_packed_weight_gives_the_bits_of_the_weight::<Bf16>();
    a_packed_weight_gives_the_bits_of_the_weight::<F16>();
}

fn packed_weights_at_once_give_the_bits_of_each<E: Random>() {
    for (m, k) in [(0, 40), (1, 896), (1, 33), (5, 2051), (40, 130), (300, 64)] {
        let widths = [900, 1, 70];
        let (a, weights) = (E::random(1, m * k), widths.map(|n| E::random(n as u64, n * k)));
        let packed = [0, 1, 2].map(|i| PackedWeight::pack(E::PRECISION, &weights[i], widths[i], k));
        for (matmul, before) in [(E::PRECISION.set(), f32::NAN), (E::PRECISION.add(), 0.5)] {
            let outputs = || widths.map(|n| vec![before; m * n]);
            let mut want = outputs();
            for (w, out) in packed.iter().zip(&mut want) {
                threads(1, || matmul.nt_packed(&a, w, out, m));
            }
            for count in [1, 2, 3, 8] {
                let mut got = outputs();
                let [x, y, z] = &mut got;
                let [p, q, r] = &packed;
                let pairs = [(p, &mut x[..]), (q, &mut y[..]), (r, &mut z[..])];
                threads(count, || matmul.nt_packed_each(&a, pairs, m));
                got.iter().zip(&want).for_each(|(got, want)| same_bits(got, want));
            }
        }
    }
}

#[test]
fn packed_weights_at_once_give_the_bits_of_each_in_every_precision() {
    packed_weights_at_once_give_the_bits_of_each::<F32>();
    packed_weights_at_once_give_the_bits_of_each::<Bf16>();
    packed_weights_at_once_give_the_bits_of_each::<F16>();
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
        let got = element::nearest_bf16(x.to_bits());
        assert_eq!(got, u32::from(bf16::from_f32(x).to_bits()) << 16, "{x:e}");
        assert_eq!(Bf16::pack_word(x, 1.0), 0x3f80_0000 | got >> 16);
    }
}

/// Returns `f32` numbers around every number of `f16` and around the middle of it and the next one, and others.
fn numbers_around_f16() -> Vec<f32> {
    let mut numbers: Vec<f32> = (0..1 << 16).map(|i| f32::from_bits(i * 65_521)).collect();
    for half in (0..=u16::MAX).step_by(7).chain(0x03f0..0x0410).chain(0x7bf0..0x7c10) {
        let bits = f16::from_bits(half).to_f32().to_bits();
        for around in [bits, bits.wrapping_add(0x1000), bits.wrapping_add(0x800)] {
            numbers.extend(
                [around.wrapping_sub(1), around, around.wrapping_add(1)].map(f32::from_bits),
            );
        }
    }
    numbers.extend([65_504.0, 65_519.996, 65_520.0, 1e9, f32::MAX, f32::INFINITY]);
    numbers.extend([2.0_f32.powi(-24), 2.0_f32.powi(-25), 2.9e-8, 3.1e-8, 1e-8, f32::from_bits(1)]);
    let negative: Vec<f32> = numbers.iter().map(|x| -x).collect();
    [numbers, negative, vec![f32::NAN]].concat()
}

#[test]
fn rounding_to_f16_is_that_of_half_on_every_path() {
    let numbers = numbers_around_f16();
    for &x in &numbers {
        let want = u32::from(f16::from_f32(x).to_bits());
        assert_eq!(halves::nearest_f16(x), want, "{x:e} ({:#x})", x.to_bits());
    }
    for path in paths::<F16>() {
        let mut got = vec![0; numbers.len()];
        path.run(Rounded { numbers: &numbers, out: &mut got });
        for (x, got) in numbers.iter().zip(got) {
            let want = f16::from_f32(*x).to_f32().to_bits();
            assert_eq!(got, want, "{path:?}: {x:e} ({:#x})", x.to_bits());
        }
    }
}

/// Rounds numbers to `f16`.
struct Rounded<'a> {
    numbers: &'a [f32],
    out: &'a mut [u32],
}

impl VectorWork for Rounded<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_vectors<V: Vectors>(self, simd: V) {
        vectors::round_terms::<F16, V>(simd, self.numbers, self.out);
    }
}

#[test]
fn every_f16_is_widened_exactly() {
    for half in 0..=u16::MAX {
        let (got, want) = (halves::widen_f16(half.into()), f16::from_bits(half).to_f32());
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{half:#x}");
    }
}

#[test]
fn a_subnormal_weight_in_f16_counts_and_one_beyond_its_range_is_infinite() {
    let (least, beyond) = (2.0_f32.powi(-24), 65_520.0);
    for path in paths::<F16>() {
        for (weight, want) in
            [(least, least), (beyond, f32::INFINITY), (-beyond, f32::NEG_INFINITY)]
        {
            let (a, b, mut out) = (vec![1.0; 3], vec![weight; 33 * 3], vec![0.0; 33]);
            for product in [nt::<F16>, nn::<F16>] {
                product(path, &a, &b, &mut out, [1, 33, 3]);
                assert!(out.iter().all(|&x| x == 3.0 * want), "{path:?}: {out:?}");
            }
            let packed = PackedWeight::pack(Precision::F16, &b, 33, 3);
            Precision::F16.set().nt_packed(&a, &packed, &mut out, 1);
            assert!(out.iter().all(|&x| x == 3.0 * want), "packed: {out:?}");
        }
    }
}

#[test]
fn a_packed_weight_in_f16_has_two_bytes_a_term() {
    let bytes = |precision| PackedWeight::packed_bytes(precision, 64, 70);
    assert_eq!([Precision::F32, Precision::F16].map(bytes), [64 * 70 * 4, 64 * 70 * 2]);
    assert_eq!(PackedWeight::packed_bytes(Precision::F16, 64, 71), 64 * 72 * 2);
}

#[test]
fn every_product_may_be_added_to_what_is_there() {
    let (m, n, k) = (20, 40, 1300);
    for precision in Precision::ALL {
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
