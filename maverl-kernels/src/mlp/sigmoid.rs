//! Gates without a product of two maps: SiLU alone, and a sigmoid that scales another array.

use pulp::Simd;

use super::sigmoid;
use crate::lanes::{self, Kernel, Lanes};
use crate::par;

/// Computes `x / (1 + e⁻ˣ)`, element by element; any shape.
///
/// # Panics
///
/// If the lengths differ.
pub fn silu(x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "silu: x and out");
    par::for_each_part(out, 1, |start, out| {
        lanes::run_kernel(SiluForward { x: &x[start..start + out.len()], out });
    });
}

/// Computes the gradient of [`silu`] in place: `gradient` is that of its result, then that of `x`.
///
/// ```text
/// σ = 1 / (1 + e⁻ˣ):   dx = dout σ (1 + x (1 − σ))
/// ```
///
/// # Panics
///
/// If the lengths differ.
pub fn silu_bwd(x: &[f32], gradient: &mut [f32]) {
    assert_eq!(x.len(), gradient.len(), "silu_bwd: x and gradient");
    par::for_each_part(gradient, 1, |start, gradient| {
        lanes::run_kernel(SiluBackward { x: &x[start..start + gradient.len()], gradient });
    });
}

/// Computes `x / (1 + e⁻ᵍ)` with the gate `g`, element by element; any shape.
///
/// # Panics
///
/// If the lengths differ.
pub fn sigmoid_gate(x: &[f32], gate: &[f32], out: &mut [f32]) {
    assert_eq!([x.len(), gate.len()], [out.len(); 2], "sigmoid_gate: lengths");
    par::for_each_part(out, 1, |start, out| {
        let at = start..start + out.len();
        lanes::run_kernel(GateForward { x: &x[at.clone()], gate: &gate[at], out });
    });
}

/// Computes the gradients of [`sigmoid_gate`]. `dx` and `dgate` are overwritten.
///
/// ```text
/// σ = 1 / (1 + e⁻ᵍ):   dx = dout σ,   dg = dout x σ (1 − σ)
/// ```
///
/// # Panics
///
/// If the lengths differ.
pub fn sigmoid_gate_bwd(x: &[f32], gate: &[f32], dout: &[f32], dx: &mut [f32], dgate: &mut [f32]) {
    let lengths = [x.len(), gate.len(), dout.len(), dgate.len()];
    assert_eq!(lengths, [dx.len(); 4], "sigmoid_gate_bwd: lengths");
    par::for_both_parts(dx, dgate, 1, |start, dx, dgate| {
        let at = start..start + dx.len();
        let (x, gate, dout) = (&x[at.clone()], &gate[at.clone()], &dout[at]);
        lanes::run_kernel(GateBackward { x, gate, dout, dx, dgate });
    });
}

struct SiluForward<'a> {
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for SiluForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        lanes.map_lanes(
            [self.x],
            [self.out],
            #[inline(always)]
            |[x], _| [lanes.mul(x, sigmoid(lanes, x))],
        );
    }
}

struct SiluBackward<'a> {
    x: &'a [f32],
    gradient: &'a mut [f32],
}

impl Kernel for SiluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let one = lanes.splat(1.0);
        lanes.map_lanes(
            [self.x],
            [self.gradient],
            #[inline(always)]
            |[x], [dout]| {
                let s = sigmoid(lanes, x);
                let grad = lanes.add(one, lanes.mul(x, lanes.sub(one, s)));
                [lanes.mul(dout, lanes.mul(s, grad))]
            },
        );
    }
}

struct GateForward<'a> {
    x: &'a [f32],
    gate: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for GateForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        lanes.map_lanes(
            [self.x, self.gate],
            [self.out],
            #[inline(always)]
            |[x, g], _| [lanes.mul(x, sigmoid(lanes, g))],
        );
    }
}

struct GateBackward<'a> {
    x: &'a [f32],
    gate: &'a [f32],
    dout: &'a [f32],
    dx: &'a mut [f32],
    dgate: &'a mut [f32],
}

impl Kernel for GateBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let one = lanes.splat(1.0);
        lanes.map_lanes(
            [self.x, self.gate, self.dout],
            [self.dx, self.dgate],
            #[inline(always)]
            |[x, g, dout], _| {
                let s = sigmoid(lanes, g);
                let dx = lanes.mul(dout, s);
                [dx, lanes.mul(lanes.mul(dx, x), lanes.sub(one, s))]
            },
        );
    }
}
