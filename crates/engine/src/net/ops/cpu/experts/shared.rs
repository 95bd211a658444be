//! Shared expert on the CPU: an MLP of every token, times the sigmoid of a gate. Shapes: `N` tokens, `D` width of the residual
//! stream, `F` width of the expert.

use maverl_kernels::experts::{add_gated_rows, gated_rows_bwd};
use maverl_kernels::matmul::Precision;

use super::expert::{activate, expert_back, split_maps};
use crate::files::parts::SharedExpert;
use crate::net::experts::SavedShared;
use crate::net::gradients::Gradients;
use crate::net::linear::Linear;
use crate::net::ops::Cpu;
use crate::net::ops::cpu::linear;
use crate::net::pool::Pool;

/// Adds `sigmoid(gate(h)) mlp(h)` to `mixed [N, D]`, for `h [N, D]`.
pub(super) fn forward(
    h: &[f32],
    of: &SharedExpert<Linear>,
    mixed: &mut [f32],
    precision: Precision,
    pool: &mut Pool,
) -> SavedShared<Cpu> {
    // 1. Gate and maps: (N, D) -> (N), (N, F), (N, F)
    let gates = linear::project(&of.gate, h, precision, pool);
    let [gate, up] = linear::project_each(split_maps(&of.mlp), h, precision, pool);
    // 2. Activation: (N, F), (N, F) -> (N, F)
    let mut act = pool.take(gate.len());
    activate(of.mlp.activation, &gate, &up, &mut act);
    // 3. Map: (N, F) -> (N, D)
    let out = linear::project(&of.mlp.down, &act, precision, pool);
    pool.give([act]);
    // 4. Gated sum: (N, D), (N) -> (N, D)
    add_gated_rows(&out, &gates, of.gate.dims().1, mixed);
    SavedShared { gates, gate, up, out }
}

/// Adds the gradient of [`forward`] by `h` to `dh [N, D]`, from that of its result, and those of the weights.
pub(super) fn backward(
    h: &[f32],
    of: &SharedExpert<Linear>,
    saved: SavedShared<Cpu>,
    (dmixed, dh): (&[f32], &mut [f32]),
    precision: Precision,
    sums: &mut Gradients<'_>,
    pool: &mut Pool,
) {
    // 4. (N, D) -> (N, D), (N)
    let mut dout = pool.take(dmixed.len());
    let dgates = gated_rows_bwd(&saved.out, &saved.gates, dmixed, of.gate.dims().1, &mut dout);
    // 3. to 1. (N, D), (N) -> (N, D)
    let inputs = [h, &saved.gate, &saved.up];
    expert_back(&of.mlp, inputs, (&dout, &mut *dh), precision.add(), sums, pool);
    linear::backward(&of.gate, [h, &dgates], dh, precision.add(), sums, pool);
    pool.give([dout]);
    pool.give(saved.buffers());
}
