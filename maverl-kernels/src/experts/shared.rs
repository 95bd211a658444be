//! Gate of an expert that every token has: a factor of each row. `N` tokens, `d` width.
//!
//! ```text
//! y += σ(g) x,   σ(g) = 1 / (1 + e⁻ᵍ)
//! ```

use pulp::Simd;

use crate::lanes::{self, Kernel, Lanes};
use crate::par;

/// Adds `σ(g) x` to `y [N, d]`, for `x [N, d]` and a gate `g` of each row, `[N]`.
///
/// # Panics
///
/// If the lengths differ from the shapes.
pub fn add_gated_rows(x: &[f32], gates: &[f32], d: usize, y: &mut [f32]) {
    check_rows("add_gated_rows", [x.len(), y.len()], gates, d);
    par::for_each_part(y, d, |start, y| {
        let rows = x[start..].chunks_exact(d).zip(&gates[start / d..]);
        for (y, (x, gate)) in y.chunks_exact_mut(d).zip(rows) {
            let factor = sigmoid(*gate);
            y.iter_mut().zip(x).for_each(|(y, x)| *y += factor * x);
        }
    });
}

/// Computes the gradients of [`add_gated_rows`] from that of its result: `dx [N, d]` is overwritten, that of the gates is
/// returned.
///
/// ```text
/// dx = σ dy,   dg = (Σ_j dy_j x_j) σ (1 − σ)
/// ```
///
/// # Panics
///
/// If the lengths differ from the shapes.
pub fn gated_rows_bwd(x: &[f32], gates: &[f32], dy: &[f32], d: usize, dx: &mut [f32]) -> Vec<f32> {
    check_rows("gated_rows_bwd", [x.len(), dy.len()], gates, d);
    assert_eq!(x.len(), dx.len(), "gated_rows_bwd: x and dx");
    par::for_each_part(dx, d, |start, dx| {
        let rows = dy[start..].chunks_exact(d).zip(&gates[start / d..]);
        for (dx, (dy, gate)) in dx.chunks_exact_mut(d).zip(rows) {
            let factor = sigmoid(*gate);
            dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = factor * dy);
        }
    });
    let mut dgates = vec![0.0; gates.len()];
    par::for_each_part(&mut dgates, 1, |start, dgates| {
        let gates = &gates[start..];
        lanes::run_kernel(GateGradients {
            x: &x[start * d..],
            dy: &dy[start * d..],
            gates,
            d,
            dgates,
        });
    });
    dgates
}

fn sigmoid(gate: f32) -> f32 {
    1.0 / (1.0 + libm::expf(-gate))
}

/// Asserts the lengths of rows and of their gates.
#[track_caller]
fn check_rows(name: &str, rows: [usize; 2], gates: &[f32], d: usize) {
    assert!(d > 0 && rows == [gates.len() * d; 2], "{name}: rows of {d}, a gate for each");
}

/// Gradients of the gates of some rows.
struct GateGradients<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    gates: &'a [f32],
    d: usize,
    dgates: &'a mut [f32],
}

impl Kernel for GateGradients<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { x, dy, gates, d, dgates } = self;
        let rows = x.chunks_exact(d).zip(dy.chunks_exact(d)).zip(gates);
        for (dgate, ((x, dy), gate)) in dgates.iter_mut().zip(rows) {
            let s = sigmoid(*gate);
            *dgate = lanes.dot(dy, x) * s * (1.0 - s);
        }
    }
}
