//! Bias of a linear map, which is added to every row, and its gradient.

use pulp::Simd;
use rayon::prelude::*;

use crate::lanes::{self, Kernel, LANES, Lanes};
use crate::par;

/// Adds `bias [d]` to each row of `y [n, d]`.
///
/// # Panics
///
/// If `y` is not whole rows of `bias.len()`.
pub fn add_bias(bias: &[f32], y: &mut [f32]) {
    check_shapes("bias", y.len(), bias.len());
    par::for_each_part(y, bias.len(), |_, y| lanes::run_kernel(AddBias { bias, y }));
}

/// Computes the gradient of [`add_bias`]: adds the rows of `dy [n, d]` to `dbias [d]`, in ascending order.
///
/// # Panics
///
/// If `dy` is not whole rows of `dbias.len()`.
pub fn add_bwd(dy: &[f32], dbias: &mut [f32]) {
    let d = dbias.len();
    check_shapes("bias_bwd", dy.len(), d);
    if !par::worth_it(dy.len()) {
        return lanes::run_kernel(AddBiasRows { dy, d, first: 0, dbias });
    }
    // Each thread has columns of its own, so that their sums are those of one thread.
    let columns = d.div_ceil(par::thread_count()).next_multiple_of(LANES);
    let parts = dbias.par_chunks_mut(columns).enumerate();
    parts
        .for_each(|(i, dbias)| lanes::run_kernel(AddBiasRows { dy, d, first: i * columns, dbias }));
}

fn check_shapes(name: &str, elements: usize, d: usize) {
    assert!(d > 0 && elements.is_multiple_of(d), "{name}: {elements} elements are not rows of {d}");
}

/// Some rows of [`add_bias`].
struct AddBias<'a> {
    bias: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for AddBias<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        for y in self.y.chunks_exact_mut(self.bias.len()) {
            lanes.add_to(y, self.bias);
        }
    }
}

/// Some columns of [`add_bwd`], from `first` on.
struct AddBiasRows<'a> {
    dy: &'a [f32],
    d: usize,
    first: usize,
    dbias: &'a mut [f32],
}

impl Kernel for AddBiasRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { dy, d, first, dbias } = self;
        for dy in dy.chunks_exact(d) {
            lanes.add_to(dbias, &dy[first..first + dbias.len()]);
        }
    }
}

#[cfg(test)]
mod tests;
