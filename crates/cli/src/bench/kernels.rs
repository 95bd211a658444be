//! Speed of the machine: matrix products, compared with the ceiling of their instructions, and memory.

use std::hint::black_box;
use std::time::Instant;

use maverl_kernels::matmul::{PackedWeight, Precision, multiply_add_registers};
use maverl_kernels::sample::uniform_number;
use maverl_kernels::sum_numbers;
use rayon::prelude::*;

use super::measure::median;
use super::report::Figure;
use super::setup::{BenchDtype, Setup};

/// A measured matrix product.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ProductShape {
    form: KernelForm,
    /// Rows and columns of the output, and length of the inner dimension.
    sizes: [usize; 3],
}

/// Operation of a product, and the form of its right side.
#[derive(Debug, Clone, Copy, PartialEq)]
enum KernelForm {
    /// Product of two unpacked matrices: `A B`.
    Plain,
    /// A layer with a weight that is packed once: `X Wᵀ`.
    PackedWeight,
    /// Gradient of a layer's input: `dY W`.
    InputGradient,
    /// Gradient of a layer's weight: `dYᵀ X`, added.
    WeightGradient,
}

const PRODUCTS: [ProductShape; 12] = [
    ProductShape { form: KernelForm::Plain, sizes: [512, 512, 512] },
    ProductShape { form: KernelForm::Plain, sizes: [1024, 1024, 1024] },
    ProductShape { form: KernelForm::Plain, sizes: [2048, 2048, 2048] },
    ProductShape { form: KernelForm::PackedWeight, sizes: [2048, 2048, 2048] },
    ProductShape { form: KernelForm::Plain, sizes: [8192, 1408, 512] },
    ProductShape { form: KernelForm::PackedWeight, sizes: [8192, 1408, 512] },
    ProductShape { form: KernelForm::InputGradient, sizes: [8192, 512, 1408] },
    ProductShape { form: KernelForm::WeightGradient, sizes: [1408, 512, 8192] },
    ProductShape { form: KernelForm::PackedWeight, sizes: [64, 1408, 512] },
    ProductShape { form: KernelForm::PackedWeight, sizes: [8, 1408, 512] },
    ProductShape { form: KernelForm::PackedWeight, sizes: [1, 1408, 512] },
    ProductShape { form: KernelForm::Plain, sizes: [64, 1408, 512] },
];
/// Products whose speed limits a model: those of an MLP, on all rows of an update at size M.
const LIMITS: [ProductShape; 2] = [PRODUCTS[4], PRODUCTS[5]];
/// Bytes of the array for measuring memory.
const ARRAY: usize = 1 << 30;
/// Approximate seconds of one measurement of a product.
const SECONDS: f64 = 0.2;
/// Approximate seconds of one measurement in registers.
const REGISTER_SECONDS: f64 = 0.02;

/// Measures GFLOP/s in registers and of products in every type, and GB/s of memory.
pub(super) fn kernels(setup: &Setup) -> Vec<Figure> {
    let repeats = setup.repeats.get();
    let mut figures = Vec::new();
    for precision in Precision::ALL {
        let registers = RegisterTile::new(precision);
        let speeds: Vec<f64> = (0..repeats).map(|_| registers.speed()).collect();
        let what = format!("multiply-adds in registers, {}", precision.name());
        figures.push(Figure::new(what, "GFLOP/s", speeds));
    }
    for shape in PRODUCTS {
        figures.extend(Precision::ALL.map(|p| product(p, shape, repeats)));
    }
    figures.extend(memory(repeats));
    figures
}

/// Measures GFLOP/s of a large product.
pub(super) fn limit(dtype: BenchDtype) -> f64 {
    let precision = match dtype {
        BenchDtype::F32 => Precision::F32,
        BenchDtype::Bf16 => Precision::Bf16,
        BenchDtype::F16 => Precision::F16,
    };
    let figures = LIMITS.map(|shape| product(precision, shape, 3));
    figures.iter().map(|figure| figure.median).fold(0.0, f64::max)
}

/// Loop of multiply-adds in registers, long enough to be measured.
struct RegisterTile {
    precision: Precision,
    steps: usize,
}

impl RegisterTile {
    fn new(precision: Precision) -> Self {
        const FEW: usize = 10_000;
        black_box(multiply_add_registers(precision, FEW));
        let start = Instant::now();
        black_box(multiply_add_registers(precision, FEW));
        let seconds = start.elapsed().as_secs_f64();
        let steps = FEW as f64 * (REGISTER_SECONDS / seconds).clamp(1.0, 1e5);
        Self { precision, steps: steps as usize }
    }

    /// Returns GFLOP/s of all threads.
    fn speed(&self) -> f64 {
        let start = Instant::now();
        let done = black_box(multiply_add_registers(self.precision, self.steps));
        2.0 * done as f64 / start.elapsed().as_secs_f64() / 1e9
    }
}

fn random_values(seed: u64, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| uniform_number(seed, i) as f32 - 0.5).collect()
}

/// Measures a product and the speed in registers alternately, since the speed of many machines drifts. Returns seconds of
/// the product and GFLOP/s.
fn alternate_repeats(
    precision: Precision,
    repeats: usize,
    mut work: impl FnMut(),
) -> [Vec<f64>; 2] {
    let registers = RegisterTile::new(precision);
    let calls = calls(&mut work);
    let (mut seconds, mut ceilings) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        ceilings.push(registers.speed());
        seconds.push(seconds_over(calls, &mut work));
    }
    [seconds, ceilings]
}

/// Measures GFLOP/s of a product, and its share of the speed in registers.
fn product(
    precision: Precision,
    ProductShape { form, sizes: [m, n, k] }: ProductShape,
    repeats: usize,
) -> Figure {
    let (a, b, mut out) = (random_values(1, m * k), random_values(2, k * n), vec![0.0; m * n]);
    let weight =
        (form == KernelForm::PackedWeight).then(|| PackedWeight::pack(precision, &b, n, k));
    let [seconds, ceilings] =
        alternate_repeats(precision, repeats, || match (&weight, form, black_box(&mut out[..])) {
            (Some(weight), _, out) => precision.set().nt_packed(&a, weight, out, m),
            (None, KernelForm::WeightGradient, out) => precision.add().tn(&a, &b, out, m, n, k),
            (None, _, out) => precision.set().nn(&a, &b, out, m, n, k),
        });
    let (flop, dtype) = ((2 * m * n * k) as f64, precision.name());
    let what = match form {
        KernelForm::Plain => format!("{m} x {k} x {n} {dtype}"),
        KernelForm::PackedWeight => format!("{m} x {k} x {n} {dtype}, packed"),
        KernelForm::InputGradient => format!("{m} x {k} x {n} {dtype}, gradient of the input"),
        KernelForm::WeightGradient => format!("{m} x {k} x {n} {dtype}, gradient of the weight"),
    };
    Figure::rate(what, "GFLOP/s", flop / 1e9, &seconds).below(median(&ceilings))
}

/// Measures copying and reading of arrays larger than any cache.
fn memory(repeats: usize) -> [Figure; 2] {
    let (from, mut to) = (vec![1.0_f32; ARRAY / 4], vec![0.0_f32; ARRAY / 4]);
    let part = from.len().div_ceil(rayon::current_num_threads());
    let copy = seconds(repeats, || {
        let parts = to.par_chunks_mut(part).zip(from.par_chunks(part));
        parts.for_each(|(to, from)| to.copy_from_slice(black_box(from)));
    });
    let read = seconds(repeats, || read_array(&from));
    let gigabytes = ARRAY as f64 / 1e9;
    [
        Figure::rate("memory, copy (read + write)", "GB/s", 2.0 * gigabytes, &copy),
        Figure::rate("memory, read", "GB/s", gigabytes, &read),
    ]
}

/// Reads an array on all threads.
pub(super) fn read_array(from: &[f32]) {
    let part = from.len().div_ceil(rayon::current_num_threads());
    black_box(from.par_chunks(part).map(|part| sum_numbers(black_box(part))).sum::<f32>());
}

/// Returns seconds per call of `work`, `repeats` times, each measured over many calls.
fn seconds(repeats: usize, mut work: impl FnMut()) -> Vec<f64> {
    let calls = calls(&mut work);
    (0..repeats).map(|_| seconds_over(calls, &mut work)).collect()
}

/// Returns the number of calls of `work` in one measurement, determined after a warm-up call.
fn calls(work: &mut impl FnMut()) -> usize {
    seconds_over(1, work);
    ((SECONDS / seconds_over(1, work)) as usize).clamp(1, 1_000_000)
}

/// Returns seconds per call, measured over `calls` calls.
fn seconds_over(calls: usize, work: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(|_| work());
    start.elapsed().as_secs_f64() / calls as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_measured_in_every_type_and_every_form() {
        for precision in Precision::ALL {
            for form in [
                KernelForm::Plain,
                KernelForm::PackedWeight,
                KernelForm::InputGradient,
                KernelForm::WeightGradient,
            ] {
                let figure = product(precision, ProductShape { form, sizes: [8, 32, 16] }, 1);
                assert!(
                    figure.median > 0.0 && figure.ceiling_share.is_some_and(|share| share > 0.0)
                );
            }
        }
    }
}
