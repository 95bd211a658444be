//! Products reach a share of what their instructions allow, on every path of this processor.
//!
//! A file of its own, so that nothing else of this process runs meanwhile. A share is a ratio of two speeds of one thread,
//! measured in turn, so neither a fast machine nor a slow one changes it.

use std::time::Instant;

use maverl_kernels::matmul::{Precision, multiply_add_registers};
use maverl_kernels::simd;

/// Rows, columns and terms of the product.
const SIZE: usize = 512;
/// Share of the ceiling that a product must reach.
const LEAST: f64 = 0.25;
/// Measurements after which a product is too slow: other processes may take the processor during some of them.
const MOST: usize = 25;

/// Multiply-adds per second of one call.
fn speed(work: impl FnOnce() -> usize) -> f64 {
    let start = Instant::now();
    let done = work() as f64;
    done / start.elapsed().as_secs_f64()
}

/// The best speed of a product over the best speed in registers, measured until it is enough.
fn share(precision: Precision) -> f64 {
    let numbers = |seed: usize| -> Vec<f32> {
        (0..SIZE * SIZE).map(|i| ((i * 31 + seed) % 64) as f32 / 64.0 - 0.5).collect()
    };
    let (a, b, mut out) = (numbers(1), numbers(2), vec![0.0; SIZE * SIZE]);
    let mut product = || {
        precision.set().nn(&a, &b, &mut out, SIZE, SIZE, SIZE);
        SIZE * SIZE * SIZE
    };
    let (mut reached, mut ceiling) = (0.0_f64, 0.0_f64);
    for i in 0..MOST {
        ceiling = ceiling.max(speed(|| multiply_add_registers(precision, 400_000)));
        reached = reached.max(speed(&mut product));
        // The first measurements may see a processor that is still at rest.
        if i >= 4 && reached / ceiling >= LEAST {
            break;
        }
    }
    reached / ceiling
}

#[test]
fn a_product_reaches_a_quarter_of_the_ceiling_on_every_path() {
    for path in simd::available() {
        for precision in [Precision::F32, Precision::Bf16] {
            let share = simd::force(path, 1, || share(precision));
            println!("{path}, {precision:?}: {:.0} % of the ceiling", 100.0 * share);
            assert!(
                share >= LEAST,
                "a product of {SIZE} x {SIZE} x {SIZE} in {precision:?} on the path `{path}` reaches {:.1} % of what its \
                 instructions allow, less than {:.0} %",
                100.0 * share,
                100.0 * LEAST
            );
        }
    }
}
