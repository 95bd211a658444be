//! Gates of MLPs and of mixers, element by element.

use candle_core::{Result, Tensor};
use maverl_kernels::mlp::ClampedGate;

use crate::files::parts::Activation;

/// `√(2 / π)`.
const GELU_SCALE: f64 = 0.797_884_560_802_865_4;
/// Factor of the cube in GELU.
const GELU_CUBE: f64 = 0.044_715;

/// Computes `1 / (1 + e⁻ˣ)`.
pub(super) fn sigmoid(x: &Tensor) -> Result<Tensor> {
    ((x * 0.5)?.tanh()? + 1.0)? * 0.5
}

/// Computes `x / (1 + e^(−slope x))` and its derivative.
///
/// ```text
/// σ = 1 / (1 + e^(−slope x)):   x σ,   σ (1 + slope x (1 − σ))
/// ```
fn silu_and_slope(x: &Tensor, slope: f64) -> Result<[Tensor; 2]> {
    let s = sigmoid(&(x * slope)?)?;
    let rest = ((x * slope)? * (1.0 - &s)?)?;
    Ok([(x * &s)?, (s * (rest + 1.0)?)?])
}

/// Computes GELU, approximated with `tanh`, and its derivative.
///
/// ```text
/// t = tanh(√(2 / π) (x + 0.044715 x³)):   x (1 + t) / 2,   (1 + t) / 2 + x (1 − t²) √(2 / π) (1 + 3 · 0.044715 x²) / 2
/// ```
fn gelu_and_slope(x: &Tensor) -> Result<[Tensor; 2]> {
    let square = x.sqr()?;
    let t = ((x * ((&square * GELU_CUBE)? + 1.0)?)? * GELU_SCALE)?.tanh()?;
    let half = ((&t + 1.0)? * 0.5)?;
    let inner = (((square * (3.0 * GELU_CUBE))? + 1.0)? * (0.5 * GELU_SCALE))?;
    let slope = (((x * (1.0 - t.sqr()?)?)? * inner)? + &half)?;
    Ok([(x * half)?, slope])
}

/// Computes the activated gate times `up`; shapes are equal.
pub(super) fn gated(of: Activation, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    match of {
        Activation::Silu => silu(gate)? * up,
        Activation::Gelu => {
            let [value, _] = gelu_and_slope(gate)?;
            value * up
        }
        Activation::Clamped(ClampedGate { alpha, limit }) => {
            let limit = f64::from(limit);
            let (gate, up) = (gate.minimum(limit)?, up.minimum(limit)?.maximum(-limit)?);
            let [value, _] = silu_and_slope(&gate, f64::from(alpha))?;
            value * (up + 1.0)?
        }
    }
}

/// Computes the gradients of [`gated`] by gate and `up`. Beyond a bound they are 0.
pub(super) fn gated_back(
    of: Activation,
    [gate, up]: [&Tensor; 2],
    dout: &Tensor,
) -> Result<[Tensor; 2]> {
    let ClampedGate { alpha, limit } = match of {
        Activation::Clamped(of) => of,
        Activation::Silu | Activation::Gelu => {
            let [value, slope] = match of {
                Activation::Gelu => gelu_and_slope(gate)?,
                _ => silu_and_slope(gate, 1.0)?,
            };
            return Ok([((dout * up)? * slope)?, (dout * value)?]);
        }
    };
    let limit = f64::from(limit);
    let within = |x: &Tensor| x.le(limit)?.to_dtype(x.dtype());
    let (low, high) = (gate.minimum(limit)?, up.minimum(limit)?.maximum(-limit)?);
    let [value, slope] = silu_and_slope(&low, f64::from(alpha))?;
    let dgate = (((dout * (high + 1.0)?)? * slope)? * within(gate)?)?;
    Ok([dgate, ((dout * value)? * within(&up.abs()?)?)?])
}

/// Computes SiLU.
pub(super) fn silu(x: &Tensor) -> Result<Tensor> {
    x * sigmoid(x)?
}

/// Computes the gradient of [`silu`] from that of its result.
pub(super) fn silu_back(x: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let [_, slope] = silu_and_slope(x, 1.0)?;
    dy * slope
}

/// Computes `x σ(gate)`.
pub(super) fn sigmoid_gate(x: &Tensor, gate: &Tensor) -> Result<Tensor> {
    x * sigmoid(gate)?
}

/// Computes the gradients of [`sigmoid_gate`] by `x` and gate.
///
/// ```text
/// dx = dy σ,   dgate = dy x σ (1 − σ)
/// ```
pub(super) fn sigmoid_gate_back(x: &Tensor, gate: &Tensor, dy: &Tensor) -> Result<[Tensor; 2]> {
    let s = sigmoid(gate)?;
    let dx = (dy * &s)?;
    let dgate = ((&dx * x)? * (1.0 - s)?)?;
    Ok([dx, dgate])
}
