//! Bounds of logits.

use pulp::Simd;

use crate::lanes::{self, Kernel, Lanes};
use crate::par;

/// Replaces logits `x` by `cap tanh(x / cap)`; any shape.
pub fn cap_logits(logits: &mut [f32], cap: f32) {
    par::for_each_part(logits, 1, |_, numbers| lanes::run_kernel(CapNumbers { numbers, cap }));
}

/// Elements of one thread in [`cap_logits`].
struct CapNumbers<'a> {
    numbers: &'a mut [f32],
    cap: f32,
}

impl Kernel for CapNumbers<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        lanes.cap_numbers(self.numbers, self.cap);
    }
}
