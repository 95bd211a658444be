//! What the machine can do: matrix products and memory.

use std::hint::black_box;
use std::time::Instant;

use maverl_kernels::matmul::{Packed, Precision};
use maverl_kernels::sample::uniform;
use rayon::prelude::*;

use super::report::Figure;
use super::{BenchArgs, Dtype};

/// Rows, outputs, inputs of the products.
const PRODUCTS: [[usize; 3]; 4] =
    [[1024, 1024, 1024], [2048, 2048, 2048], [8192, 1408, 512], [64, 1408, 512]];
/// The product that is the limit: an MLP's, on all rows of an update at size M.
const LIMIT: [usize; 3] = PRODUCTS[2];
/// Bytes of an array that memory is measured with.
const ARRAY: usize = 1 << 30;
/// Seconds that one measurement of a product takes, about.
const SECONDS: f64 = 0.2;

/// GFLOP/s of products in both types, GB/s of memory.
pub(super) fn kernels(args: &BenchArgs) -> Vec<Figure> {
    // In a process that measures nothing else, nobody has made the pool yet.
    drop(rayon::ThreadPoolBuilder::new().num_threads(args.threads).build_global());
    let repeats = args.repeats.get();
    let mut figures = Vec::new();
    for shape in PRODUCTS {
        figures.extend(products(Precision::F32, shape, repeats));
        figures.extend(products(Precision::Bf16, shape, repeats));
    }
    figures.extend(memory(repeats));
    figures
}

/// GFLOP/s that a large product reaches.
pub(super) fn limit(dtype: Dtype) -> f64 {
    let precision = match dtype {
        Dtype::F32 => Precision::F32,
        Dtype::Bf16 => Precision::Bf16,
    };
    let figures = products(precision, LIMIT, 3);
    figures.iter().map(|figure| figure.median).fold(0.0, f64::max)
}

/// A product of two matrices as they lie, and one with a weight that is packed once, as layers have it.
fn products(precision: Precision, [m, n, k]: [usize; 3], repeats: usize) -> [Figure; 2] {
    let random = |seed, len: usize| -> Vec<f32> {
        (0..len as u64).map(|i| uniform(seed, i) as f32 - 0.5).collect()
    };
    let (a, b, mut out) = (random(1, m * k), random(2, k * n), vec![0.0; m * n]);
    let flop = (2 * m * n * k) as f64;
    let plain = seconds(repeats, || precision.set().nn(&a, &b, black_box(&mut out), m, n, k));
    let weight = Packed::pack(precision, &b, n, k);
    let packed =
        seconds(repeats, || precision.set().nt_packed(&a, &weight, black_box(&mut out), m));
    let dtype = match precision {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
    };
    [("", plain), (", packed", packed)].map(|(how, seconds)| {
        let what = format!("{m} x {k} x {n} {dtype}{how}");
        Figure::rate(what, "GFLOP/s", flop / 1e9, &seconds)
    })
}

/// Copying and reading arrays that no cache holds.
fn memory(repeats: usize) -> [Figure; 2] {
    let (from, mut to) = (vec![1.0_f32; ARRAY / 4], vec![0.0_f32; ARRAY / 4]);
    let part = from.len().div_ceil(rayon::current_num_threads());
    let copy = seconds(repeats, || {
        let parts = to.par_chunks_mut(part).zip(from.par_chunks(part));
        parts.for_each(|(to, from)| to.copy_from_slice(black_box(from)));
    });
    let read = seconds(repeats, || {
        black_box(from.par_chunks(part).map(|part| sum(black_box(part))).sum::<f32>());
    });
    let gigabytes = ARRAY as f64 / 1e9;
    [
        Figure::rate("memory, copy (read + write)", "GB/s", 2.0 * gigabytes, &copy),
        Figure::rate("memory, read", "GB/s", gigabytes, &read),
    ]
}

/// A sum in so many parts that adding waits for memory alone.
fn sum(values: &[f32]) -> f32 {
    let mut sums = [0.0; 64];
    for values in values.chunks_exact(sums.len()) {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().sum()
}

/// Seconds of one call of `work`, measured over as many calls as take a while, so many times.
fn seconds(repeats: usize, mut work: impl FnMut()) -> Vec<f64> {
    let mut over = |calls: usize| {
        let start = Instant::now();
        (0..calls).for_each(|_| work());
        start.elapsed().as_secs_f64() / calls as f64
    };
    over(1);
    let calls = ((SECONDS / over(1)) as usize).clamp(1, 1_000_000);
    (0..repeats).map(|_| over(calls)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_measured_in_both_types() {
        for precision in [Precision::F32, Precision::Bf16] {
            let figures = products(precision, [8, 32, 16], 1);
            assert!(figures.iter().all(|figure| figure.median > 0.0));
        }
    }

    #[test]
    fn every_value_that_fills_a_part_is_added() {
        assert_eq!(sum(&[1.0; 640]), 640.0);
    }
}
