//! Linear maps with the correction of an adapter. Shapes: `N` rows, `I` inputs, `O` outputs, `r` rank.

use candle_core::{Result, Tensor};
use maverl_kernels::sample::{derive_seed, uniform_number};
use rayon::prelude::*;

use super::matrix::Matrix;
use super::{Candle, CandleTensor, Done, add_gradient, weight};
use crate::net::gradients::Gradients;
use crate::net::linear::{Dropout, Linear, Lora};
use crate::net::ops::LinearOps;
use crate::net::pool::Pool;

impl LinearOps for Candle {
    fn linear(
        &self,
        x: &CandleTensor,
        map: &Linear<Self>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        Ok(forward(map, &x.rows(map.dims().1)?, None)?.into())
    }

    fn linear_onto(
        &self,
        onto: &CandleTensor,
        x: &CandleTensor,
        map: &Linear<Self>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let (o, i) = map.dims();
        Ok((onto.rows(o)? + forward(map, &x.rows(i)?, None)?)?.into())
    }

    fn linear_back(
        &self,
        x: &CandleTensor,
        maps: &[(&Linear<Self>, &CandleTensor)],
        sums: &mut Gradients<'_, Self>,
        _: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        let mut sum: Option<Tensor> = None;
        for (map, dy) in maps {
            let (o, i) = map.dims();
            let dx = backward(map, [&x.rows(i)?, &dy.rows(o)?], None, sums)?;
            sum = Some(sum.map_or(Ok(dx.clone()), |sum| sum + dx)?);
        }
        Ok(CandleTensor(sum))
    }

    fn linear_onto_back(
        &self,
        x: &CandleTensor,
        map: &Linear<Self>,
        dy: &CandleTensor,
        sums: &mut Gradients<'_, Self>,
        pool: &mut Pool<Self>,
    ) -> Done<CandleTensor> {
        self.linear_back(x, &[(map, dy)], sums, pool)
    }
}

/// Rows of a pass, where they are not all of its tokens in their order.
pub(super) type PassedRows<'a> = Option<&'a [usize]>;

/// Computes `y [N, O]` for `x [N, I]`:
///
/// ```text
/// y = x weightᵀ + bias + scale · dropout(x) Aᵀ Bᵀ
/// ```
pub(super) fn forward(map: &Linear<Candle>, x: &Tensor, tokens: PassedRows<'_>) -> Done<Tensor> {
    let mut y = Matrix::of(&map.weight)?.times(x)?;
    if let Some(bias) = &map.bias {
        y = y.broadcast_add(&weight(bias)?)?;
    }
    if let Some(lora) = &map.lora {
        let kept = drop_out(lora, x, tokens)?;
        y = (y + low(lora, &kept)?.matmul(&weight(&lora.b)?.t()?)?)?;
    }
    Ok(y)
}

/// Computes the gradient of [`forward`] by `x` from `dy [N, O]`, and adds those of the weights:
///
/// ```text
/// dweight = dyᵀ x,   dbias = Σ_rows dy,   dB = dyᵀ low,   dA = dlowᵀ dropout(x),   dlow = scale · dy B
/// dx = dy weight + dropout(dlow A)
/// ```
pub(super) fn backward(
    map: &Linear<Candle>,
    [x, dy]: [&Tensor; 2],
    tokens: PassedRows<'_>,
    sums: &mut Gradients<'_, Candle>,
) -> Done<Tensor> {
    add_gradient(sums, &map.weight, || dy.t()?.matmul(x))?;
    if let Some(bias) = &map.bias {
        add_gradient(sums, bias, || dy.sum(0))?;
    }
    let dx = Matrix::of(&map.weight)?.times_back(dy)?;
    let Some(lora) = &map.lora else { return Ok(dx) };
    let kept = drop_out(lora, x, tokens)?;
    let low = low(lora, &kept)?;
    add_gradient(sums, &lora.b, || dy.t()?.matmul(&low))?;
    let dlow = (dy.matmul(&weight(&lora.b)?)? * f64::from(lora.scale))?;
    add_gradient(sums, &lora.a, || dlow.t()?.matmul(&kept))?;
    let through = drop_out(lora, &dlow.matmul(&weight(&lora.a)?)?, tokens)?;
    Ok((dx + through)?)
}

/// Computes `scale · kept Aᵀ`, `[N, r]`.
fn low(lora: &Lora<Candle>, kept: &Tensor) -> Done<Tensor> {
    Ok((kept.matmul(&weight(&lora.a)?.t()?)? * f64::from(lora.scale))?)
}

/// Sets dropped numbers of `x [N, I]` to 0 and scales the others, if the adapter has dropout.
fn drop_out(lora: &Lora<Candle>, x: &Tensor, tokens: PassedRows<'_>) -> Result<Tensor> {
    match &lora.dropout {
        None => Ok(x.clone()),
        Some(dropout) => x * dropout.mask(x, tokens)?,
    }
}

impl Dropout {
    /// Returns the factor of each number of `x [N, width]`: 0 or `1 / (1 − p)`.
    fn mask(&self, x: &Tensor, tokens: PassedRows<'_>) -> Result<Tensor> {
        let ((n, width), keep) = (x.dims2()?, 1.0 / (1.0 - self.p));
        let key = |row: usize| self.keys[tokens.map_or(row, |tokens| tokens[row])];
        let mut mask = vec![keep; n * width];
        mask.par_chunks_mut(width).enumerate().for_each(|(row, mask)| {
            let seed = derive_seed(key(row), self.place);
            clear_dropped(mask, seed, f64::from(self.p));
        });
        Tensor::from_vec(mask, (n, width), x.device())
    }
}

/// Sets the factors of dropped columns to 0.
fn clear_dropped(mask: &mut [f32], seed: u64, share: f64) {
    for (column, factor) in mask.iter_mut().enumerate() {
        if uniform_number(seed, column as u64) < share {
            *factor = 0.0;
        }
    }
}
