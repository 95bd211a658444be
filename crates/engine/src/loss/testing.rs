//! Golden vectors and derivatives for tests.

#[path = "../../../../tests/fixtures/rl_math.rs"]
mod rl_math;

pub(crate) use rl_math::{assert_close, learning, matrix, numbers, rl_math};

/// Computes the derivative of `f` at `x` by central differences.
pub(crate) fn central(f: impl Fn(f64) -> f64, x: f64) -> f64 {
    const H: f64 = 1e-6;
    (f(x + H) - f(x - H)) / (2.0 * H)
}
