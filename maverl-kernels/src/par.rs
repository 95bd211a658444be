//! Parallelism of kernels: work is split over outputs, never over a sum.

use std::cell::Cell;

use pulp::Simd;
use rayon::prelude::*;

use crate::lanes::{self, Kernel, LANES, Lanes};

/// Elements of work below which another thread costs more than it saves.
pub(crate) const GRAIN: usize = 16 * 1024;

thread_local! {
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` with all kernels on the calling thread. For callers that give every thread rows of its own.
pub fn run_alone<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ALONE.set(self.0);
        }
    }
    let _restore = Restore(ALONE.replace(true));
    f()
}

/// Copies numbers on the threads of the current pool.
///
/// # Panics
///
/// If the lengths differ.
pub fn copy_numbers(from: &[f32], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "copy: {} numbers into {}", from.len(), to.len());
    for_each_part(to, 1, |start, to| to.copy_from_slice(&from[start..start + to.len()]));
}

/// Returns the sum of numbers, in four sums of sixteen lanes, so that only memory limits how fast they are read.
pub fn sum_numbers(values: &[f32]) -> f32 {
    lanes::run_kernel(SumNumbers { values })
}

/// Operation of [`sum_numbers`].
struct SumNumbers<'a> {
    values: &'a [f32],
}

impl Kernel for SumNumbers<'_> {
    type Output = f32;

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> f32 {
        const SUMS: usize = 4;
        let mut sums = [lanes.splat(0.0); SUMS];
        let (body, tail) = self.values.as_chunks::<LANES>();
        let (groups, last) = body.as_chunks::<SUMS>();
        for group in groups {
            for i in 0..SUMS {
                sums[i] = lanes.add(sums[i], lanes.load(&group[i]));
            }
        }
        for values in last {
            sums[0] = lanes.add(sums[0], lanes.load(values));
        }
        sums[1] = lanes.add(sums[1], lanes.load_first(tail, 0.0));
        lanes.sum(lanes.add(lanes.add(sums[0], sums[1]), lanes.add(sums[2], sums[3])))
    }
}

/// Returns the number of threads that a kernel may use.
pub(crate) fn thread_count() -> usize {
    if ALONE.get() { 1 } else { rayon::current_num_threads() }
}

/// Returns true if `work` elements are worth a second thread.
pub(crate) fn worth_it(work: usize) -> bool {
    work >= 2 * GRAIN && thread_count() > 1
}

/// Returns the size of a block of at least [`GRAIN`] elements that holds whole units.
fn block_size(unit: usize) -> usize {
    GRAIN.div_ceil(unit.max(1)) * unit.max(1)
}

/// Calls `f(start, part)` for parts of `out` that hold whole units of `unit` elements and begin at element `start`.
pub(crate) fn for_each_part<T: Send>(
    out: &mut [T],
    unit: usize,
    f: impl Fn(usize, &mut [T]) + Sync,
) {
    if !worth_it(out.len()) {
        return f(0, out);
    }
    let block = block_size(unit);
    out.par_chunks_mut(block).enumerate().for_each(|(i, part)| f(i * block, part));
}

/// Calls [`for_each_part`] for two outputs of the same length.
pub(crate) fn for_both_parts(
    a: &mut [f32],
    b: &mut [f32],
    unit: usize,
    f: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    if !worth_it(a.len()) {
        return f(0, a, b);
    }
    let block = block_size(unit);
    let pairs = a.par_chunks_mut(block).zip(b.par_chunks_mut(block)).enumerate();
    pairs.for_each(|(i, (a, b))| f(i * block, a, b));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;

    #[test]
    fn a_sum_has_every_number_once_and_the_same_bits_on_every_path() {
        for len in [0, 1, 15, 16, 17, 63, 64, 65, 100, 1000, 4096 + 7] {
            // Whole numbers, whose sums are exact.
            let whole: Vec<f32> = (0..len).map(|i| (i % 97) as f32 - 40.0).collect();
            assert_eq!(sum_numbers(&whole), whole.iter().sum::<f32>(), "{len}");
            let values: Vec<f32> = (0..len).map(|i| (i as f32 * 0.37).sin()).collect();
            let on = |path| simd::run_on_path(path, 1, || sum_numbers(&values).to_bits());
            assert!(
                simd::available_paths().into_iter().all(|path| on(path) == on(simd::Path::Scalar))
            );
        }
    }
}
