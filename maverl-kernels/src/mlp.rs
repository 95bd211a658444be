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

/// [`swiglu`] of the output of one product for gate and up: `gate_up [n, 2 width]` has each row's gate before its up,
/// `out` is `[n, width]`.
///
/// # Panics
///
/// If `width` is zero, or the lengths differ from the shapes.
pub fn swiglu_merged(gate_up: &[f32], width: usize, out: &mut [f32]) {
    check_merged("swiglu_merged", gate_up.len(), width, out.len());
    par::parts(out, width, |start, out| {
        let gate_up = &gate_up[2 * start..2 * (start + out.len())];
        lanes::dispatch(
            #[inline(always)]
            || {
                let rows = gate_up.chunks_exact(2 * width).zip(out.chunks_exact_mut(width));
                for (row, out) in rows {
                    let (gate, up) = row.split_at(width);
                    for ((out, &g), &u) in out.iter_mut().zip(gate).zip(up) {
                        *out = g * sigmoid(g) * u;
                    }
                }
            },
        );
    });
}

/// The gradient of [`swiglu_merged`], as [`swiglu_bwd`]; `dgate_up [n, 2 width]` is overwritten.
///
/// # Panics
///
/// As [`swiglu_merged`], for `dout [n, width]` too.
pub fn swiglu_merged_bwd(gate_up: &[f32], width: usize, dout: &[f32], dgate_up: &mut [f32]) {
    check_merged("swiglu_merged_bwd", gate_up.len(), width, dout.len());
    check_merged("swiglu_merged_bwd", dgate_up.len(), width, dout.len());
    par::parts(dgate_up, 2 * width, |start, dgate_up| {
        let gate_up = &gate_up[start..start + dgate_up.len()];
        let dout = &dout[start / 2..(start + dgate_up.len()) / 2];
        lanes::dispatch(
            #[inline(always)]
            || {
                let outputs = dgate_up.chunks_exact_mut(2 * width);
                let inputs = gate_up.chunks_exact(2 * width).zip(dout.chunks_exact(width));
                for (drow, (row, dout)) in outputs.zip(inputs) {
                    let ((gate, up), (dgate, dup)) =
                        (row.split_at(width), drow.split_at_mut(width));
                    row_bwd(gate, up, dout, dgate, dup);
                }
            },
        );
    });
}

fn check_merged(name: &str, merged: usize, width: usize, out: usize) {
    assert!(width > 0 && out.is_multiple_of(width), "{name}: {out} elements, not rows of {width}");
    assert_eq!(merged, 2 * out, "{name}: gate and up have {merged} elements, the output {out}");
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
