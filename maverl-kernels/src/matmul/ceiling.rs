//! Upper bound of a product's speed: multiply-adds in registers, without memory access.

use std::hint::black_box;

use pulp::{Scalar, Simd};

use super::Precision;
use super::element::{Bf16, F16, F32};
use super::path::ProductPath;
use super::vectors::{VectorWork, Vectors};

/// Multiplies and adds registers on every thread of the current pool, `steps` times each, with the instructions that
/// products of this precision use on the path in use. Returns the number of multiply-adds.
///
/// Its speed is the ceiling of the path's products. The sums of a step do not depend on each other, and there are
/// enough of them to keep every execution unit busy.
pub fn multiply_add_registers(precision: Precision, steps: usize) -> usize {
    let path = match precision {
        Precision::F32 => ProductPath::current::<F32>(),
        Precision::Bf16 => ProductPath::current::<Bf16>(),
        Precision::F16 => ProductPath::current::<F16>(),
    };
    let done = rayon::broadcast(|_| match path.inner {
        #[cfg(target_arch = "x86_64")]
        super::path::InnerLoop::Dot => super::x86::dot_registers(steps),
        #[cfg(target_arch = "x86_64")]
        super::path::InnerLoop::Amx => {
            super::amx::multiply_registers(&super::amx::Tiles::configure_tiles(), steps)
        }
        _ => path.run(RegisterLoop { steps }),
    });
    done.into_iter().sum()
}

struct RegisterLoop {
    steps: usize,
}

impl VectorWork for RegisterLoop {
    type Output = usize;

    #[inline(always)]
    fn run_with_vectors<V: Vectors>(self, simd: V) -> usize {
        // Enough sums for two units with a latency of up to six cycles, or for four units with four where registers
        // suffice.
        if V::REGISTER_COUNT < 32 || V::F32_LANES == Scalar::F32_LANES {
            registers::<V, 12>(simd, self.steps)
        } else {
            registers::<V, 24>(simd, self.steps)
        }
    }
}

#[inline(always)]
fn registers<V: Vectors, const SUMS: usize>(simd: V, steps: usize) -> usize {
    // The sums converge to one, whatever the number of steps.
    let half = simd.splat_f32s(black_box(0.5));
    let mut sums = [simd.splat_f32s(0.0); SUMS];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = simd.mul_add_f32s(*sum, half, half);
        }
    }
    black_box(sums);
    steps * SUMS * V::F32_LANES
}
