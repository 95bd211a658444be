use proptest::prelude::*;

use super::*;
use crate::testing::{random, same_bits};

/// Defines a function over the instructions of the path in use.
macro_rules! on_lanes {
    ($name:ident($input:ident: $of:ty) -> $output:ty, $lanes:ident => $body:expr) => {
        fn $name($input: $of) -> $output {
            struct Op($of);
            impl Kernel for Op {
                type Output = $output;
                #[inline(always)]
                fn run_with_lanes<S: Simd, const N: usize>(self, $lanes: Lanes<S, N>) -> $output {
                    let $input = self.0;
                    $body
                }
            }
            run_kernel(Op($input))
        }
    };
}

type Pair = (Vec<f32>, Vec<f32>);

on_lanes!(exp(x: [f32; LANES]) -> [f32; LANES], lanes => lanes.array(lanes.exp(lanes.load(&x))));
on_lanes!(neg(x: [f32; LANES]) -> [f32; LANES], lanes => lanes.array(lanes.neg(lanes.load(&x))));
on_lanes!(tanh(x: Vec<f32>) -> Vec<f32>, lanes => {
    let mut out = x;
    lanes.map_lanes([], [&mut out], #[inline(always)] |[], [x]| [lanes.tanh(x)]);
    out
});
on_lanes!(sum(x: [f32; LANES]) -> f32, lanes => lanes.sum(lanes.load(&x)));
on_lanes!(max(x: Vec<f32>) -> f32, lanes => lanes.max(&x));
on_lanes!(has_nan(x: Vec<f32>) -> bool, lanes => lanes.has_nan(&x));
on_lanes!(dot(x: Pair) -> f32, lanes => lanes.dot(&x.0, &x.1));
on_lanes!(dot3(x: Pair) -> f32, lanes => lanes.dot3(&x.0, &x.1, &x.0));
on_lanes!(wide_sum(x: Vec<f32>) -> f64, lanes => lanes.wide_sum(&x));
on_lanes!(squares(x: [f32; LANES]) -> [f64; LANES], lanes => {
    let x = lanes.to_wide(lanes.load(&x));
    lanes.wide_array(lanes.mul_wide(x, x))
});
on_lanes!(extremes(x: [[f32; LANES]; 2]) -> [[f32; LANES]; 2], lanes => {
    let [a, b] = [lanes.load(&x[0]), lanes.load(&x[1])];
    [lanes.array(lanes.larger(a, b)), lanes.array(lanes.smaller(a, b))]
});
on_lanes!(each(x: Pair) -> Pair, lanes => {
    let (read, mut written) = x;
    let mut other = written.clone();
    lanes.map_lanes(
        [&read],
        [&mut written, &mut other],
        #[inline(always)]
        |[x], [a, b]| [lanes.mul_add(x, a, b), lanes.sub(x, b)],
    );
    (written, other)
});

/// Asserts that a function returns `want` on every path of this processor.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "results are written where they are expected")]
fn on_every_path<R: PartialEq + std::fmt::Debug + Send + Sync>(want: R, f: impl Fn() -> R + Sync) {
    for path in simd::available_paths() {
        assert_eq!(simd::run_on_path(path, 1, &f), want, "{path}");
    }
}

/// Computes [`Lanes::exp`] of one number in plain Rust.
fn plain_exp(x: f32) -> f32 {
    let c = if x > 88.0 { 88.0 } else { x };
    let shifted = c.mul_add(std::f32::consts::LOG2_E, 12_582_912.0);
    let n = shifted - 12_582_912.0;
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, c));
    let terms = [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let p = terms.iter().fold(1.987_569_1e-4_f32, |p, &term| p.mul_add(r, term));
    let y = p.mul_add(r * r, r) + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    if x < -87.3 { 0.0 } else { y * power }
}

/// Computes the sum of products in lane order in plain Rust.
fn plain_dot(a: impl Iterator<Item = f32>, b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    for (i, (a, b)) in a.zip(b).enumerate() {
        lanes[i % LANES] = a.mul_add(*b, lanes[i % LANES]);
    }
    plain_sum(lanes)
}

fn plain_sum(mut lanes: [f32; LANES]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

fn bits<const L: usize>(x: [f32; L]) -> [u32; L] {
    x.map(f32::to_bits)
}

/// Generates sixteen numbers: many of them ordinary, some of them special.
fn sixteen() -> impl Strategy<Value = [f32; LANES]> {
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1e-42, -1e-42];
    let number = prop_oneof![
        8 => -100.0_f32..100.0,
        1 => prop::sample::select(special.to_vec()),
        1 => -1e-30_f32..1e-30,
    ];
    prop::collection::vec(number, LANES).prop_map(|x| x.try_into().expect("sixteen numbers"))
}

proptest! {
    #[test]
    fn every_path_has_the_bits_of_plain_rust(x in sixteen(), y in sixteen()) {
        on_every_path(bits(x.map(plain_exp)), || bits(exp(x)));
        on_every_path(bits(x.map(|x| -x)), || bits(neg(x)));
        let finite = x.map(|x| x.clamp(-1e30, 1e30));
        on_every_path(plain_sum(finite).to_bits(), || sum(finite).to_bits());
        let wide = finite.map(f64::from);
        on_every_path(wide.map(|x| (x * x).to_bits()), || squares(finite).map(f64::to_bits));
        let pick = |less: bool| -> [f32; LANES] {
            std::array::from_fn(|i| if (x[i] < y[i]) == less && x[i] != y[i] { x[i] } else { y[i] })
        };
        on_every_path([pick(false), pick(true)].map(bits), || extremes([x, y]).map(bits));
    }

    #[test]
    fn sums_and_tails_have_the_bits_of_plain_rust(n in 0_usize..150, seed in 0_u64..99) {
        let (a, b) = (random(seed, n), random(seed + 100, n));
        let want = plain_dot(a.iter().copied(), &b).to_bits();
        on_every_path(want, || dot((a.clone(), b.clone())).to_bits());
        let products = a.iter().zip(&b).map(|(a, b)| a * b);
        let want = plain_dot(products, &a).to_bits();
        on_every_path(want, || dot3((a.clone(), b.clone())).to_bits());
        let most = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        on_every_path(most, || max(a.clone()));
        for path in simd::available_paths() {
            let (sums, differences) = simd::run_on_path(path, 1, || each((a.clone(), b.clone())));
            let pairs = || a.iter().zip(&b);
            same_bits(&sums, &pairs().map(|(x, y)| x.mul_add(*y, *y)).collect::<Vec<_>>());
            same_bits(&differences, &pairs().map(|(x, y)| x - y).collect::<Vec<_>>());
            let wide = a.iter().map(|&x| f64::from(x)).sum::<f64>();
            let found = simd::run_on_path(path, 1, || wide_sum(a.clone()));
            assert!((found - wide).abs() < 1e-13, "{path}: {found}, not {wide}");
        }
    }

    #[test]
    fn nan_is_found_and_passed_over(n in 1_usize..80, at in 0_usize..80) {
        let mut x = random(1, n);
        on_every_path(false, || has_nan(x.clone()));
        x[at % n] = f32::NAN;
        on_every_path(true, || has_nan(x.clone()));
        let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        on_every_path(most, || max(x.clone()));
    }
}

#[test]
fn exp_is_within_a_few_units_of_f64() {
    let x: Vec<f32> = (-87_299..88_000).map(|i| i as f32 * 1e-3).collect();
    for x in x.as_chunks::<LANES>().0 {
        for (x, got) in x.iter().zip(exp(*x)) {
            let want = f64::from(*x).exp();
            let error = (f64::from(got) - want).abs() / want;
            assert!(error < 2.5e-7, "exp({x}) = {got}, not {want}");
        }
    }
}

#[test]
fn exp_ends_are_exact() {
    let one = |x| exp([x; LANES])[0];
    assert_eq!(one(0.0), 1.0);
    assert_eq!(one(f32::NEG_INFINITY), 0.0);
    assert_eq!(one(-1e30), 0.0);
    assert!(one(f32::INFINITY).is_finite());
    assert!(one(f32::NAN).is_nan());
}

#[test]
fn tanh_is_within_two_units_in_the_last_place_and_odd() {
    let mut x: Vec<f32> = (0..40_000).map(|i| (i as f32 - 20_000.0) * 6e-4).collect();
    x.extend([0.0, -0.0, 1e-30, -1e-8, 100.0, -1e30, f32::INFINITY, f32::NEG_INFINITY]);
    let y = tanh(x.clone());
    for (&x, &y) in x.iter().zip(&y) {
        let want = f64::from(x).tanh();
        let unit = f64::from((want as f32).abs().max(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
        assert!((f64::from(y) - want).abs() <= 2.0 * unit, "tanh {x} is {want}, not {y}");
    }
    let mirrored = tanh(x.iter().map(|x| -x).collect());
    assert_eq!(mirrored.iter().map(|y| -y).collect::<Vec<_>>(), y);
    assert!(tanh(vec![f32::NAN])[0].is_nan());
}
