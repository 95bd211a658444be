//! Products reach a share of what their instructions allow, on every path of this processor.
//!
//! A guard of speed, which `just full` runs alone. A share is a ratio of two speeds of one thread, measured in turn, so neither
//! a fast machine nor a slow one changes it. Speeds are per second of the thread's processor time, so other processes on the
//! same cores do not count.

use std::time::{Duration, Instant};

use maverl_kernels::matmul::{Precision, multiply_add_registers};
use maverl_kernels::simd;
use rustix::time::{ClockId, clock_gettime};

/// Rows, columns and terms of the product.
const SIZE: usize = 512;
/// Share of the ceiling that a product must reach.
const LEAST: f64 = 0.25;
/// Time after which a product is too slow: caches and the clock of the processor are shared with other processes.
const MOST: Duration = Duration::from_secs(20);

/// Multiply-adds of one call per second of this thread's processor time.
fn speed(work: impl FnOnce() -> usize) -> f64 {
    let seconds = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
    };
    let start = seconds();
    let done = work() as f64;
    done / (seconds() - start)
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
    let start = Instant::now();
    // The first measurements may see a processor that is still at rest.
    for i in 0.. {
        ceiling = ceiling.max(speed(|| multiply_add_registers(precision, 400_000)));
        reached = reached.max(speed(&mut product));
        if i >= 4 && (reached / ceiling >= LEAST || start.elapsed() > MOST) {
            break;
        }
    }
    reached / ceiling
}

#[test]
#[ignore = "a guard of speed"]
fn a_product_reaches_a_quarter_of_the_ceiling_on_every_path() {
    for path in simd::available_paths() {
        for precision in Precision::ALL {
            let share = simd::run_on_path(path, 1, || share(precision));
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
