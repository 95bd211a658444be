//! Clamped gate of the experts of gpt-oss.

use pulp::Simd;

use super::sigmoid;
use crate::lanes::{self, Kernel, Lanes};
use crate::par;

/// Clamped gate: `g` is at most `limit`, `u` within `±limit`.
///
/// ```text
/// (u + 1) g σ(alpha g)
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClampedGate {
    /// Slope of the sigmoid.
    pub alpha: f32,
    /// Bound of gate and up.
    pub limit: f32,
}

impl ClampedGate {
    /// Computes the gate, element by element; any shape.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn forward(self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        check_lengths("clamped gate", gate, [up, out]);
        par::for_each_part(out, 1, |start, out| {
            let at = start..start + out.len();
            let (gate, up) = (&gate[at.clone()], &up[at]);
            lanes::run_kernel(ClampedForward { of: self, gate, up, out });
        });
    }

    /// Computes the gradients of [`ClampedGate::forward`]. `dgate` and `dup` are overwritten. Beyond a bound they are 0.
    ///
    /// ```text
    /// σ = σ(alpha g):   dup = dout g σ,   dgate = dout (u + 1) σ (1 + alpha g (1 − σ))
    /// ```
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn backward(self, gate: &[f32], up: &[f32], dout: &[f32], [dgate, dup]: [&mut [f32]; 2]) {
        check_lengths("clamped gate", gate, [up, dout]);
        check_lengths("clamped gate", gate, [dgate, dup]);
        par::for_both_parts(dgate, dup, 1, |start, dgate, dup| {
            let at = start..start + dgate.len();
            let (gate, up, dout) = (&gate[at.clone()], &up[at.clone()], &dout[at]);
            lanes::run_kernel(ClampedBackward { of: self, gate, up, dout, dgate, dup });
        });
    }
}

#[track_caller]
fn check_lengths(name: &str, gate: &[f32], others: [&[f32]; 2]) {
    for other in others {
        assert_eq!(other.len(), gate.len(), "{name}: {} elements of gates", gate.len());
    }
}

/// Elements of one thread in [`ClampedGate::forward`].
struct ClampedForward<'a> {
    of: ClampedGate,
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for ClampedForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let ClampedGate { alpha, limit } = self.of;
        let (one, alpha) = (lanes.splat(1.0), lanes.splat(alpha));
        let (high, low) = (lanes.splat(limit), lanes.splat(-limit));
        lanes.map_lanes(
            [self.gate, self.up],
            [self.out],
            #[inline(always)]
            |[g, u], _| {
                let (g, u) = (lanes.smaller(high, g), lanes.larger(low, lanes.smaller(high, u)));
                let gated = lanes.mul(g, sigmoid(lanes, lanes.mul(alpha, g)));
                [lanes.mul(lanes.add(u, one), gated)]
            },
        );
    }
}

/// Elements of one thread in [`ClampedGate::backward`].
struct ClampedBackward<'a> {
    of: ClampedGate,
    gate: &'a [f32],
    up: &'a [f32],
    dout: &'a [f32],
    dgate: &'a mut [f32],
    dup: &'a mut [f32],
}

impl Kernel for ClampedBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let ClampedGate { alpha, limit } = self.of;
        let (zero, one, alpha) = (lanes.splat(0.0), lanes.splat(1.0), lanes.splat(alpha));
        let (high, low) = (lanes.splat(limit), lanes.splat(-limit));
        lanes.map_lanes(
            [self.gate, self.up, self.dout],
            [self.dgate, self.dup],
            #[inline(always)]
            |[gate, up, dout], _| {
                let g = lanes.smaller(high, gate);
                let u = lanes.larger(low, lanes.smaller(high, up));
                let s = sigmoid(lanes, lanes.mul(alpha, g));
                let slope = lanes.mul_add(lanes.mul(alpha, g), lanes.sub(one, s), one);
                let dgate = lanes.mul(lanes.mul(dout, lanes.add(u, one)), lanes.mul(s, slope));
                let dup = lanes.mul(dout, lanes.mul(g, s));
                // A bound changes what lies beyond it.
                let beyond = lanes.sub(gate, g);
                let dgate = lanes.where_less(lanes.neg(beyond), 0.0, zero, dgate);
                let beyond = lanes.sub(up, u);
                let beyond = lanes.neg(lanes.mul(beyond, beyond));
                [dgate, lanes.where_less(beyond, 0.0, zero, dup)]
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, numeric, random, same_bits, weigh, wide};

    const GATE: ClampedGate = ClampedGate { alpha: 1.702, limit: 2.0 };

    fn reference(gate: &[f64], up: &[f64]) -> Vec<f64> {
        let of = |(g, u): (&f64, &f64)| {
            let (g, u) = (g.min(2.0), u.clamp(-2.0, 2.0));
            (u + 1.0) * g / (1.0 + (-1.702 * g).exp())
        };
        gate.iter().zip(up).map(of).collect()
    }

    #[test]
    fn forward_and_backward_agree_with_f64_and_are_zero_beyond_the_bounds() {
        let n = 203;
        let [gate, up] = [1, 2].map(|seed| random(seed, n).iter().map(|x| x * 4.0).collect());
        let (gate, up): (Vec<f32>, Vec<f32>) = (gate, up);
        let dout = random(3, n);
        let mut out = vec![f32::NAN; n];
        GATE.forward(&gate, &up, &mut out);
        let (g, u) = (wide(&gate), wide(&up));
        close(&out, &reference(&g, &u), 1e-6);
        let (mut dgate, mut dup) = (vec![f32::NAN; n], vec![f32::NAN; n]);
        GATE.backward(&gate, &up, &dout, [&mut dgate, &mut dup]);
        close(&dgate, &numeric(&g, |g| weigh(&reference(g, &u), &dout)), 1e-5);
        close(&dup, &numeric(&u, |u| weigh(&reference(&g, u), &dout)), 1e-5);
        let beyond = gate.iter().zip(&dgate).filter(|(g, _)| **g > 2.0);
        assert!(beyond.clone().count() > 10 && beyond.into_iter().all(|(_, d)| *d == 0.0));
        let mut whole = vec![0.0; n];
        GATE.forward(&gate, &up, &mut whole);
        let mut alone = [0.0];
        GATE.forward(&gate[40..=40], &up[40..=40], &mut alone);
        same_bits(&alone, &whole[40..=40]);
    }
}
