//! One expert on the CPU: an MLP with a gate, of some rows.

use maverl_kernels::matmul::Matmul;
use maverl_kernels::mlp;

use crate::files::parts::{Activation, GatedMlp, Maps};
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::ops::cpu::linear;
use crate::net::pool::Pool;

/// Computes the gradient `dx [n, D]` of an expert's rows from that of its results, overwritten or added to, and adds those of
/// its weights.
pub(super) fn expert_back(
    expert: &GatedMlp<Linear>,
    [x, gate, up]: [&[f32]; 3],
    (dout, dx): (&[f32], &mut [f32]),
    products: Matmul,
    sums: &mut Gradients<'_>,
    pool: &mut Pool,
) {
    let [mut act, mut dact, mut dgate, mut dup] = [(); 4].map(|()| pool.take(gate.len()));
    activate(expert.activation, gate, up, &mut act);
    let precision = products.precision();
    linear::backward(&expert.down, [&act, dout], &mut dact, precision.set(), sums, pool);
    match expert.activation {
        Activation::Silu => mlp::swiglu_bwd(gate, up, &dact, &mut dgate, &mut dup),
        Activation::Gelu => mlp::geglu_bwd(gate, up, &dact, &mut dgate, &mut dup),
        Activation::Clamped(of) => of.backward(gate, up, &dact, [&mut dgate, &mut dup]),
    }
    let [of_gate, of_up] = split_maps(expert);
    linear::backward(of_gate, [x, &dgate], dx, products, sums, pool);
    linear::backward(of_up, [x, &dup], dx, precision.add(), sums, pool);
    pool.give([act, dact, dgate, dup]);
}

/// Returns the maps to gate and up of an expert; no family fuses those of experts in memory.
pub(super) fn split_maps(expert: &GatedMlp<Linear>) -> [&Linear; 2] {
    match &expert.gate_up {
        Maps::Split(maps) => maps.each_ref(),
        Maps::Fused(..) => unreachable!("the maps of experts are split when they are read"),
    }
}

/// Computes the activated gate times `up`.
pub(super) fn activate(activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match activation {
        Activation::Silu => mlp::swiglu(gate, up, out),
        Activation::Gelu => mlp::geglu(gate, up, out),
        Activation::Clamped(of) => of.forward(gate, up, out),
    }
}
