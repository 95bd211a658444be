//! Upper limits of a path: instructions on registers, and memory at a footprint.

use std::hint::black_box;

use pulp::{Simd, WithSimd};

use super::{Instructions, seconds};

/// Independent chains of a loop on registers: enough for two units of a latency of five.
const CHAINS: usize = 12;
/// Instructions of each chain in a measurement.
const STEPS: usize = 1 << 16;

/// Elements a second of instructions whose operands are in registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registers {
    /// Fused multiply-adds.
    pub(super) multiply_adds: f64,
    /// Divisions.
    pub(super) divisions: f64,
    /// Square roots.
    pub(super) roots: f64,
}

impl Registers {
    pub(super) fn measure(path: Instructions) -> Self {
        Self {
            multiply_adds: Self::per_second(path, Instruction::MultiplyAdd),
            divisions: Self::per_second(path, Instruction::Divide),
            roots: Self::per_second(path, Instruction::Root),
        }
    }

    fn per_second(path: Instructions, instruction: Instruction) -> f64 {
        let elements = (path.run(Lanes) * CHAINS * STEPS) as f64;
        elements / seconds(&mut || drop(black_box(path.run(Chains { instruction }))))
    }
}

struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

#[derive(Clone, Copy)]
enum Instruction {
    MultiplyAdd,
    Divide,
    Root,
}

struct Chains {
    instruction: Instruction,
}

impl WithSimd for Chains {
    type Output = Vec<f32>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
        let mut sums = [simd.splat_f32s(black_box(1.0)); CHAINS];
        let (a, b) = (simd.splat_f32s(black_box(0.999)), simd.splat_f32s(black_box(1e-3)));
        match self.instruction {
            Instruction::MultiplyAdd => {
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = simd.mul_add_f32s(*sum, a, b);
                    }
                }
            }
            Instruction::Divide => {
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = simd.div_f32s(*sum, a);
                    }
                }
            }
            Instruction::Root => {
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = simd.sqrt_f32s(*sum);
                    }
                }
            }
        }
        pulp::bytemuck::cast_slice(&sums).to_vec()
    }
}

/// Arrays that an operation reads, writes, and reads and writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Traffic {
    pub(super) read: usize,
    pub(super) written: usize,
    pub(super) updated: usize,
    /// Elements of each.
    pub(super) len: usize,
}

impl Traffic {
    /// Bytes that are read or written.
    pub(super) fn bytes(self) -> f64 {
        ((self.read + self.written + 2 * self.updated) * self.len * size_of::<f32>()) as f64
    }

    /// Seconds of a loop that does nothing but read and write the arrays, in the current pool.
    pub(super) fn seconds(self, path: Instructions) -> f64 {
        let arrays = |n| vec![vec![1.0_f32; self.len]; n];
        let (read, mut written) = (arrays(self.read), arrays(self.written));
        let mut updated = arrays(self.updated);
        seconds(&mut || {
            let threads = rayon::current_num_threads();
            // Parts are as small as the operations': threads read what is near them again.
            let part = if threads == 1 { self.len } else { 16 * 1024 };
            rayon::scope(|scope| {
                let mut written: Vec<_> = written.iter_mut().map(|x| x.chunks_mut(part)).collect();
                let mut updated: Vec<_> = updated.iter_mut().map(|x| x.chunks_mut(part)).collect();
                for start in (0..self.len).step_by(part) {
                    let end = self.len.min(start + part);
                    let stream = Stream {
                        read: read.iter().map(|x| &x[start..end]).collect(),
                        written: written.iter_mut().filter_map(Iterator::next).collect(),
                        updated: updated.iter_mut().filter_map(Iterator::next).collect(),
                        len: end - start,
                    };
                    if threads == 1 {
                        black_box(path.run(stream));
                    } else {
                        scope.spawn(move |_| {
                            black_box(path.run(stream));
                        });
                    }
                }
            });
        })
    }
}

struct Stream<'a> {
    read: Vec<&'a [f32]>,
    written: Vec<&'a mut [f32]>,
    updated: Vec<&'a mut [f32]>,
    len: usize,
}

impl WithSimd for Stream<'_> {
    type Output = f32;
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        match (self.read.len(), self.written.len(), self.updated.len()) {
            (0, 0, 1) => self.of::<S, 0, 0, 1>(simd),
            (1, 0, 0) => self.of::<S, 1, 0, 0>(simd),
            (1, 0, 1) => self.of::<S, 1, 0, 1>(simd),
            (1, 0, 3) => self.of::<S, 1, 0, 3>(simd),
            (1, 1, 0) => self.of::<S, 1, 1, 0>(simd),
            (2, 1, 0) => self.of::<S, 2, 1, 0>(simd),
            (3, 2, 0) => self.of::<S, 3, 2, 0>(simd),
            other => unreachable!("a loop for the arrays {other:?}"),
        }
    }
}

impl Stream<'_> {
    #[inline(always)]
    fn of<S: Simd, const R: usize, const W: usize, const U: usize>(self, simd: S) -> f32 {
        let Self { read, written, updated, len } = self;
        let mut read = read.into_iter().map(|x| S::as_simd_f32s(x).0);
        let mut written = written.into_iter().map(|x| S::as_mut_simd_f32s(x).0);
        let mut updated = updated.into_iter().map(|x| S::as_mut_simd_f32s(x).0);
        let vectors = len / S::F32_LANES;
        let read: [&[S::f32s]; R] =
            std::array::from_fn(|_| &read.next().expect("an array")[..vectors]);
        let mut written: [&mut [S::f32s]; W] =
            std::array::from_fn(|_| &mut written.next().expect("an array")[..vectors]);
        let mut updated: [&mut [S::f32s]; U] =
            std::array::from_fn(|_| &mut updated.next().expect("an array")[..vectors]);
        // Sixteen chains, so that a pass that only reads does not wait for its sum.
        let mut sums = [simd.splat_f32s(0.0); 16];
        let mut at = 0;
        while at + 16 <= vectors {
            for (i, sum) in sums.iter_mut().enumerate() {
                let mut x = simd.splat_f32s(0.0);
                for read in &read {
                    x = simd.max_f32s(x, read[at + i]);
                }
                for updated in &mut updated {
                    x = simd.max_f32s(x, updated[at + i]);
                    updated[at + i] = x;
                }
                for written in &mut written {
                    written[at + i] = x;
                }
                *sum = simd.max_f32s(*sum, x);
            }
            at += 16;
        }
        sums.map(|sum| simd.reduce_sum_f32s(sum)).iter().sum()
    }
}
