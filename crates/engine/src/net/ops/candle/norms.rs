//! RMS norms. Shapes: `N` rows, `D` width.

use candle_core::{D, Result, Tensor};

use super::{Candle, Done, add_gradient, weight};
use crate::files::parts::Gain;
use crate::net::gradients::Gradients;
use crate::net::norm::Norm;

/// Returns `1 / √(mean(x²) + eps)` of each row.
fn inverse_rms(x: &Tensor, eps: f64) -> Result<Tensor> {
    (x.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?.recip()
}

/// Computes the norm of each row of `x [N, D]` with gains `[D]`.
pub(super) fn norm(x: &Tensor, gains: &Tensor, eps: f64) -> Result<Tensor> {
    x.broadcast_mul(&inverse_rms(x, eps)?)?.broadcast_mul(gains)
}

/// Computes the gradients of [`norm`] by `x` and by the gains.
///
/// ```text
/// r = 1 / √(mean(x²) + eps),   g = dy gain:   dx = r (g − x r mean(g x r)),   dgain = Σ dy x r
/// ```
pub(super) fn norm_back(x: &Tensor, gains: &Tensor, eps: f64, dy: &Tensor) -> Result<[Tensor; 2]> {
    let r = inverse_rms(x, eps)?;
    let unit = x.broadcast_mul(&r)?;
    let g = dy.broadcast_mul(gains)?;
    let along = (&g * &unit)?.mean_keepdim(D::Minus1)?;
    let dx = (g - unit.broadcast_mul(&along)?)?.broadcast_mul(&r)?;
    Ok([dx, (dy * &unit)?.sum(0)?])
}

impl Norm<Candle> {
    /// Returns the gains `[D]`.
    fn gains(&self) -> Done<Tensor> {
        let weight = weight(&self.weight)?;
        Ok(match self.gain {
            Gain::Weight => weight,
            Gain::OnePlus => (weight + 1.0)?,
        })
    }

    /// Returns the width of the rows.
    pub(super) fn width(&self) -> usize {
        self.weight.dims()[0]
    }

    /// Computes the norm of each row of `x [N, D]`.
    pub(super) fn forward(&self, x: &Tensor) -> Done<Tensor> {
        Ok(norm(x, &self.gains()?, f64::from(self.eps))?)
    }

    /// Computes the gradient of [`Norm::forward`] by `x`, and adds that of the weight.
    pub(super) fn backward(
        &self,
        x: &Tensor,
        dy: &Tensor,
        sums: &mut Gradients<'_, Candle>,
    ) -> Done<Tensor> {
        let [dx, dw] = norm_back(x, &self.gains()?, f64::from(self.eps), dy)?;
        add_gradient(sums, &self.weight, || Ok(dw))?;
        Ok(dx)
    }
}
