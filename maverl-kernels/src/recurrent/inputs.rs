//! Inputs of the gated delta rule: normalized queries and keys, and gates.

use pulp::Simd;

use super::delta::DeltaHeads;
use crate::lanes::{self, Kernel, Lanes};
use crate::par;

/// Constant added to the sum of squares.
const EPS: f32 = 1e-6;

/// Normalizes queries and keys in rows of queries, keys and values, `mixed [n, mixed_width]`; the queries are also divided by
/// the root of their width.
///
/// ```text
/// q ← q / √(key_dim (Σ q² + 10⁻⁶)),   k ← k / √(Σ k² + 10⁻⁶)
/// ```
///
/// # Panics
///
/// If `mixed` is not whole rows.
pub fn normalize_keys(mixed: &mut [f32], heads: DeltaHeads) {
    let width = heads.mixed_width();
    assert!(mixed.len().is_multiple_of(width), "normalize_keys: rows of {width}");
    par::for_each_part(mixed, width, |_, mixed| {
        lanes::run_kernel(NormalizeRows { mixed, heads });
    });
}

/// Computes the gradients of [`normalize_keys`] in place: `gradient` is that of its result, then that of its input. `raw` is
/// its input.
///
/// ```text
/// y = x r,   r = 1 / √(Σ x² + 10⁻⁶):   dx = r (dy − y (y · dy))
/// ```
///
/// # Panics
///
/// If the arrays are not the same number of whole rows.
pub fn normalize_keys_bwd(raw: &[f32], heads: DeltaHeads, gradient: &mut [f32]) {
    let width = heads.mixed_width();
    assert!(raw.len().is_multiple_of(width), "normalize_keys_bwd: rows of {width}");
    assert_eq!(raw.len(), gradient.len(), "normalize_keys_bwd: raw and gradient");
    par::for_each_part(gradient, width, |start, gradient| {
        let raw = &raw[start..start + gradient.len()];
        lanes::run_kernel(NormalizeBackward { raw, heads, gradient });
    });
}

/// Factor of normalized queries, or of keys, by their index among both.
fn factor(heads: DeltaHeads, index: usize) -> f32 {
    if index < heads.keys { (heads.key_dim as f32).sqrt().recip() } else { 1.0 }
}

struct NormalizeRows<'a> {
    mixed: &'a mut [f32],
    heads: DeltaHeads,
}

impl Kernel for NormalizeRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { mixed, heads } = self;
        for row in mixed.chunks_exact_mut(heads.mixed_width()) {
            let both = &mut row[..2 * heads.keys_width()];
            for (index, x) in both.chunks_exact_mut(heads.key_dim).enumerate() {
                let r = (lanes.dot(x, x) + EPS).sqrt().recip();
                let scale = lanes.splat(r * factor(heads, index));
                lanes.map_lanes(
                    [],
                    [x],
                    #[inline(always)]
                    |[], [x]| [lanes.mul(x, scale)],
                );
            }
        }
    }
}

struct NormalizeBackward<'a> {
    raw: &'a [f32],
    heads: DeltaHeads,
    gradient: &'a mut [f32],
}

impl Kernel for NormalizeBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { raw, heads, gradient } = self;
        let (width, both) = (heads.mixed_width(), 2 * heads.keys_width());
        for (raw, row) in raw.chunks_exact(width).zip(gradient.chunks_exact_mut(width)) {
            let inputs = raw[..both].chunks_exact(heads.key_dim);
            let pairs = inputs.zip(row[..both].chunks_exact_mut(heads.key_dim));
            for (index, (x, gradient)) in pairs.enumerate() {
                let (square, scale) = ((lanes.dot(x, x) + EPS).recip(), factor(heads, index));
                // y (y · dy) = x r² (x · dy)
                let along = lanes.splat(-lanes.dot(x, gradient) * square);
                let r = lanes.splat(square.sqrt() * scale);
                lanes.map_lanes(
                    [x],
                    [gradient],
                    #[inline(always)]
                    |[x], [dy]| [lanes.mul(r, lanes.mul_add(x, along, dy))],
                );
            }
        }
    }
}

/// Weights of the gates, `[values]` each.
#[derive(Debug, Clone, Copy)]
pub struct GateWeights<'a> {
    /// Logarithm of the rate of decay.
    pub a_log: &'a [f32],
    /// Bias of the time step.
    pub dt_bias: &'a [f32],
}

/// Gradients of [`delta_gates`]. Those of `a` and `b` are overwritten, those of weights are added.
#[derive(Debug)]
pub struct GateGradients<'a> {
    /// Of the inputs `a` and `b`, `[n, values]`.
    pub inputs: [&'a mut [f32]; 2],
    /// Of `a_log`.
    pub a_log: Option<&'a mut [f32]>,
    /// Of `dt_bias`.
    pub dt_bias: Option<&'a mut [f32]>,
}

/// Computes decay and beta, `[n, values]`, of inputs `a` and `b`.
///
/// ```text
/// α = eᵍ,   g = −e^a_log softplus(a + dt_bias),   β = 1 / (1 + e⁻ᵇ)
/// ```
///
/// # Panics
///
/// If the lengths differ.
pub fn delta_gates([a, b]: [&[f32]; 2], of: GateWeights<'_>, [decay, beta]: [&mut [f32]; 2]) {
    assert!([b.len(), decay.len(), beta.len()] == [a.len(); 3], "delta_gates: lengths");
    let heads = of.a_log.len();
    assert_eq!(of.dt_bias.len(), heads, "delta_gates: weights");
    for (i, a) in a.iter().enumerate() {
        decay[i] = libm::expf(of.log_decay(*a, i % heads));
    }
    for (beta, b) in beta.iter_mut().zip(b) {
        *beta = logistic(*b);
    }
}

/// Computes the gradients of [`delta_gates`] from those of `g` and `β`.
///
/// ```text
/// da = −dg e^a_log / (1 + e^−(a + dt_bias)),   da_log = Σ dg g,   ddt_bias = Σ da,   db = dβ β (1 − β)
/// ```
///
/// # Panics
///
/// If the lengths differ.
pub fn delta_gates_bwd(
    [a, b]: [&[f32]; 2],
    of: GateWeights<'_>,
    [log_decay, beta]: [&[f32]; 2],
    to: GateGradients<'_>,
) {
    let GateGradients { inputs: [da, db], mut a_log, mut dt_bias } = to;
    let lengths = [b.len(), log_decay.len(), beta.len(), da.len(), db.len()];
    assert_eq!(lengths, [a.len(); 5], "delta_gates_bwd: lengths");
    let heads = of.a_log.len();
    for (i, (&a, dg)) in a.iter().zip(log_decay).enumerate() {
        let head = i % heads;
        da[i] = -dg * libm::expf(of.a_log[head]) * logistic(a + of.dt_bias[head]);
        if let Some(sums) = &mut a_log {
            sums[head] += dg * of.log_decay(a, head);
        }
        if let Some(sums) = &mut dt_bias {
            sums[head] += da[i];
        }
    }
    for ((db, b), dbeta) in db.iter_mut().zip(b).zip(beta) {
        let beta = logistic(*b);
        *db = dbeta * beta * (1.0 - beta);
    }
}

impl GateWeights<'_> {
    /// Returns `g` of an input of a head.
    fn log_decay(&self, a: f32, head: usize) -> f32 {
        -libm::expf(self.a_log[head]) * softplus(a + self.dt_bias[head])
    }
}

/// Returns `ln(1 + eˣ)`.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { libm::log1pf(libm::expf(x)) }
}

/// Returns `1 / (1 + e⁻ˣ)`.
fn logistic(x: f32) -> f32 {
    (1.0 + libm::expf(-x)).recip()
}
