//! Gates of SwiGLU and GeGLU feed-forward layers (Shazeer, 2020, arXiv:2002.05202), forward and backward.

mod clamped;
mod sigmoid;

use pulp::Simd;

use crate::lanes::{self, Kernel, Lanes, Sixteen};
use crate::par;

pub use clamped::ClampedGate;
pub use sigmoid::{sigmoid_gate, sigmoid_gate_bwd, silu, silu_bwd};

/// Computes `silu(gate) * up`, element by element, with `silu(g) = g / (1 + e⁻ᵍ)`; any shape.
///
/// # Panics
///
/// If the lengths differ.
pub fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    let n = gate.len();
    assert_eq!(up.len(), n, "swiglu: up has {} elements, gate has {n}", up.len());
    assert_eq!(out.len(), n, "swiglu: out has {} elements, gate has {n}", out.len());
    par::for_each_part(out, 1, |start, out| {
        let at = start..start + out.len();
        lanes::run_kernel(SwigluForward { gate: &gate[at.clone()], up: &up[at], out });
    });
}

/// Computes the gradients of [`swiglu`]. `dgate` and `dup` are overwritten.
///
/// ```text
/// σ = 1 / (1 + e⁻ᵍ):   dup = dout g σ,   dgate = dout u σ (1 + g (1 − σ))
/// ```
///
/// # Panics
///
/// If the lengths differ.
pub fn swiglu_bwd(gate: &[f32], up: &[f32], dout: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
    let n = gate.len();
    for (name, len) in
        [("up", up.len()), ("dout", dout.len()), ("dgate", dgate.len()), ("dup", dup.len())]
    {
        assert_eq!(len, n, "swiglu_bwd: {name} has {len} elements, gate has {n}");
    }
    par::for_both_parts(dgate, dup, 1, |start, dgate, dup| {
        let at = start..start + dgate.len();
        let (gate, up, dout) = (&gate[at.clone()], &up[at.clone()], &dout[at]);
        lanes::run_kernel(SwigluBackward { gate, up, dout, dgate, dup });
    });
}

/// Computes `gelu(gate) * up`, element by element; any shape.
///
/// ```text
/// gelu(g) = g (1 + tanh u) / 2,   u = √(2 / π) (g + 0.044715 g³)
/// ```
///
/// # Panics
///
/// If the lengths differ.
pub fn geglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    let n = gate.len();
    assert_eq!(up.len(), n, "geglu: up has {} elements, gate has {n}", up.len());
    assert_eq!(out.len(), n, "geglu: out has {} elements, gate has {n}", out.len());
    par::for_each_part(out, 1, |start, out| {
        let at = start..start + out.len();
        lanes::run_kernel(GegluForward { gate: &gate[at.clone()], up: &up[at], out });
    });
}

/// Computes the gradients of [`geglu`]. `dgate` and `dup` are overwritten.
///
/// ```text
/// t = tanh u:   dup = dout g (1 + t) / 2
/// dgate = dout up ((1 + t) / 2 + g (1 − t²) √(2 / π) (1 + 3 · 0.044715 g²) / 2)
/// ```
///
/// # Panics
///
/// If the lengths differ.
pub fn geglu_bwd(gate: &[f32], up: &[f32], dout: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
    let n = gate.len();
    for (name, len) in
        [("up", up.len()), ("dout", dout.len()), ("dgate", dgate.len()), ("dup", dup.len())]
    {
        assert_eq!(len, n, "geglu_bwd: {name} has {len} elements, gate has {n}");
    }
    par::for_both_parts(dgate, dup, 1, |start, dgate, dup| {
        let at = start..start + dgate.len();
        let (gate, up, dout) = (&gate[at.clone()], &up[at.clone()], &dout[at]);
        lanes::run_kernel(GegluBackward { gate, up, dout, dgate, dup });
    });
}

/// Elements of one thread in [`swiglu`].
struct SwigluForward<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for SwigluForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        lanes.map_lanes(
            [self.gate, self.up],
            [self.out],
            #[inline(always)]
            |[g, u], _| [lanes.mul(lanes.mul(g, sigmoid(lanes, g)), u)],
        );
    }
}

/// Elements of one thread in [`swiglu_bwd`].
struct SwigluBackward<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    dout: &'a [f32],
    dgate: &'a mut [f32],
    dup: &'a mut [f32],
}

impl Kernel for SwigluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let one = lanes.splat(1.0);
        lanes.map_lanes(
            [self.gate, self.up, self.dout],
            [self.dgate, self.dup],
            #[inline(always)]
            |[g, u, dout], _| {
                let s = sigmoid(lanes, g);
                let grad = lanes.add(one, lanes.mul(g, lanes.sub(one, s)));
                let dgate = lanes.mul(lanes.mul(dout, u), lanes.mul(s, grad));
                [dgate, lanes.mul(dout, lanes.mul(g, s))]
            },
        );
    }
}

/// `√(2 / π)`.
const GELU_SCALE: f32 = 0.797_884_6;
/// Factor of the cube in [`geglu`].
const GELU_CUBE: f32 = 0.044_715;

/// Elements of one thread in [`geglu`].
struct GegluForward<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for GegluForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let half = lanes.splat(0.5);
        lanes.map_lanes(
            [self.gate, self.up],
            [self.out],
            #[inline(always)]
            |[g, u], _| {
                let t = gelu_tanh(lanes, g);
                [lanes.mul(lanes.mul(g, lanes.mul_add(half, t, half)), u)]
            },
        );
    }
}

/// Elements of one thread in [`geglu_bwd`].
struct GegluBackward<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    dout: &'a [f32],
    dgate: &'a mut [f32],
    dup: &'a mut [f32],
}

impl Kernel for GegluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let (half, one) = (lanes.splat(0.5), lanes.splat(1.0));
        let (scale, cube) = (lanes.splat(0.5 * GELU_SCALE), lanes.splat(3.0 * GELU_CUBE));
        lanes.map_lanes(
            [self.gate, self.up, self.dout],
            [self.dgate, self.dup],
            #[inline(always)]
            |[g, u, dout], _| {
                let t = gelu_tanh(lanes, g);
                let weight = lanes.mul_add(half, t, half);
                let inner = lanes.mul(scale, lanes.mul_add(lanes.mul(cube, g), g, one));
                let slope = lanes.sub(one, lanes.mul(t, t));
                let grad = lanes.mul_add(lanes.mul(g, slope), inner, weight);
                [lanes.mul(lanes.mul(dout, u), grad), lanes.mul(dout, lanes.mul(g, weight))]
            },
        );
    }
}

/// Returns `tanh u` of [`geglu`].
#[inline(always)]
fn gelu_tanh<S: Simd, const N: usize>(lanes: Lanes<S, N>, g: Sixteen<S, N>) -> Sixteen<S, N> {
    let cubed = lanes.mul(lanes.mul(lanes.splat(GELU_CUBE), g), lanes.mul(g, g));
    lanes.tanh(lanes.mul(lanes.splat(GELU_SCALE), lanes.add(g, cubed)))
}

#[inline(always)]
fn sigmoid<S: Simd, const N: usize>(lanes: Lanes<S, N>, x: Sixteen<S, N>) -> Sixteen<S, N> {
    let one = lanes.splat(1.0);
    lanes.div(one, lanes.add(one, lanes.exp(lanes.neg(x))))
}

#[cfg(test)]
mod tests;
