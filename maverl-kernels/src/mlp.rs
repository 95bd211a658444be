//! The gate of a SwiGLU feed-forward layer, forward and backward.

use crate::{lanes, par};

/// Computes `silu(gate) * up`, element by element, with `silu(g) = g / (1 + e⁻ᵍ)`; any shape.
///
/// # Panics
///
/// If the lengths differ.
pub fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    let n = gate.len();
    assert_eq!(up.len(), n, "swiglu: up has {} elements, gate has {n}", up.len());
    assert_eq!(out.len(), n, "swiglu: out has {} elements, gate has {n}", out.len());
    par::parts(out, 1, |start, out| {
        let (gate, up) = (&gate[start..start + out.len()], &up[start..start + out.len()]);
        lanes::dispatch(
            #[inline(always)]
            || {
                for ((out, &g), &u) in out.iter_mut().zip(gate).zip(up) {
                    *out = g * sigmoid(g) * u;
                }
            },
        );
    });
}

/// The gradients of [`swiglu`]; `dgate` and `dup` are overwritten.
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
    par::parts2(dgate, dup, 1, |start, dgate, dup| {
        let at = start..start + dgate.len();
        let (gate, up, dout) = (&gate[at.clone()], &up[at.clone()], &dout[at]);
        lanes::dispatch(
            #[inline(always)]
            || row_bwd(gate, up, dout, dgate, dup),
        );
    });
}

#[inline(always)]
fn row_bwd(gate: &[f32], up: &[f32], dout: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
    let outputs = dgate.iter_mut().zip(dup);
    let inputs = gate.iter().zip(up).zip(dout);
    for ((dgate, dup), ((&g, &u), &dout)) in outputs.zip(inputs) {
        let s = sigmoid(g);
        *dup = dout * (g * s);
        *dgate = dout * u * (s * (1.0 + g * (1.0 - s)));
    }
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + lanes::exp(-x))
}

#[cfg(test)]
mod tests;
