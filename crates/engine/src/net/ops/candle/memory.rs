//! Parameters, sums and moments of candle: one flat array each.

use std::borrow::Cow;
use std::ops::Range;

use candle_core::{DType, Result, Tensor};
use maverl_kernels::adamw::AdamW;
use maverl_kernels::muon::Muon;
use maverl_kernels::sample::{BadLogits, Sampled};

use super::head::read;
use super::{Candle, CandleAngles, CandleKv, CandleTensor};
use crate::net::memory::OptimizerPart;
use crate::net::ops::{Done, Memory};

/// Elements of a piece of a sum of squares, and of a step.
const PIECE: usize = 1 << 16;

impl Memory for Candle {
    type Weights = Tensor;
    type Sums = Tensor;
    type Stream = CandleTensor;
    type Act = CandleTensor;
    type Lse = ();
    type Packed = ();
    type Rope = CandleAngles;
    type Kv = CandleKv;
    type Spare = ();
    type Passes = ();
    type Drawn = Vec<std::result::Result<Sampled, BadLogits>>;

    fn give((): &mut (), _: impl IntoIterator<Item = CandleTensor>) {}

    fn give_streams((): &mut (), _: impl IntoIterator<Item = CandleTensor>) {}

    fn weights(&self, values: &[f32], _: bool) -> Done<Tensor> {
        Ok(self.upload(values.to_vec(), values.len())?)
    }

    fn blank(&self, elements: usize, _: bool) -> Done<Tensor> {
        self.sums(elements)
    }

    fn copy_weights(&self, of: &Tensor, _: bool) -> Done<Tensor> {
        Ok(of.force_contiguous()?)
    }

    fn assign(&self, to: &mut Tensor, values: &[f32]) -> Done<()> {
        *to = self.weights(values, true)?;
        Ok(())
    }

    fn read_weights<'a>(&self, of: &'a Tensor) -> Done<Cow<'a, [f32]>> {
        Ok(Cow::Owned(read(of)?))
    }

    fn sums(&self, elements: usize) -> Done<Tensor> {
        Ok(Tensor::zeros(elements, DType::F32, &self.device)?)
    }

    fn reuse(&self, sums: Tensor) -> Option<Tensor> {
        sums.zero_set().ok().map(|()| sums)
    }

    fn sums_of(&self, values: Vec<f32>) -> Done<Tensor> {
        let len = values.len();
        Ok(self.upload(values, len)?)
    }

    fn read_sums<'a>(&self, of: &'a Tensor) -> Done<Cow<'a, [f32]>> {
        self.read_weights(of)
    }

    fn update_sums(&self, of: &mut Tensor, f: &mut dyn FnMut(&mut [f32]) -> Done<()>) -> Done<()> {
        self.update_weights(of, f)
    }

    fn squares(
        &self,
        of: &Tensor,
        _: Range<usize>,
        parts: impl Iterator<Item = Range<usize>>,
    ) -> Done<f64> {
        let mut sum = 0.0;
        for piece in parts.flat_map(pieces) {
            let squares = of.narrow(0, piece.start, piece.len())?.sqr()?.sum_all()?;
            sum += f64::from(squares.to_scalar::<f32>()?);
        }
        Ok(sum)
    }

    fn adamw(
        &self,
        cfg: &AdamW,
        (step, scale): (u64, f32),
        range: Range<usize>,
        (weights, gradients): (&mut Tensor, &mut Tensor),
        [m, v]: [&mut Tensor; 2],
    ) -> Done<()> {
        let rates = StepConstants::of(cfg, step, scale);
        Ok(rates.step(range.clone(), [weights, gradients], range.start, [m, v])?)
    }

    fn muon(
        &self,
        (muon, adamw): (&Muon, &AdamW),
        (step, scale): (u64, f32),
        parts: &[OptimizerPart],
        (weights, gradients): (&mut Tensor, &mut Tensor),
        [m, v]: [&mut Tensor; 2],
    ) -> Done<f64> {
        let (rates, mut squares) = (StepConstants::of(adamw, step, scale), 0.0);
        for OptimizerPart { range, matrix } in parts {
            let arrays = [&*weights, &*gradients];
            match *matrix {
                Some(shape) => squares += muon_step(muon, scale, (range, shape), arrays, m)?,
                None => rates.step(range.clone(), arrays, 0, [m, v])?,
            }
        }
        Ok(squares)
    }
}

/// Splits a range into pieces.
fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(PIECE).map(move |start| start..range.end.min(start + PIECE))
}

/// Constants of a step of AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101).
struct StepConstants {
    keep: f64,
    betas: [f64; 2],
    correction: f64,
    eps: f64,
    rate: f64,
    scale: f64,
}

impl StepConstants {
    fn of(cfg: &AdamW, step: u64, scale: f32) -> Self {
        let t = step as f64;
        Self {
            keep: 1.0 - cfg.lr * cfg.weight_decay,
            betas: [cfg.beta1, cfg.beta2],
            correction: (1.0 - libm::pow(cfg.beta2, t)).sqrt(),
            eps: cfg.eps,
            rate: cfg.lr / (1.0 - libm::pow(cfg.beta1, t)),
            scale: f64::from(scale),
        }
    }

    /// Takes a step on a range of parameters in place. Element `i` of the moments is that of parameter `first + i`.
    fn step(
        &self,
        range: Range<usize>,
        [weights, gradients]: [&Tensor; 2],
        first: usize,
        [m, v]: [&Tensor; 2],
    ) -> Result<()> {
        let [b1, b2] = self.betas;
        for piece in pieces(range) {
            let (start, of_moments) = (piece.start, piece.start - first);
            let part = |of: &Tensor, start| of.narrow(0, start, piece.len());
            let g = (part(gradients, start)? * self.scale)?;
            let mean = ((part(m, of_moments)? * b1)? + (&g * (1.0 - b1))?)?;
            let square = ((part(v, of_moments)? * b2)? + (g.sqr()? * (1.0 - b2))?)?;
            let below = ((square.sqrt()? / self.correction)? + self.eps)?;
            let change = ((&mean / below)? * self.rate)?;
            let next = ((part(weights, start)? * self.keep)? - change)?;
            weights.slice_set(&next, 0, start)?;
            m.slice_set(&mean, 0, of_moments)?;
            v.slice_set(&square, 0, of_moments)?;
        }
        Ok(())
    }
}

/// Takes a step of Muon on a matrix in place (Liu et al., 2025, arXiv:2502.16982, Algorithm 1). Returns the sum of the squares of the
/// update before the learning rate.
fn muon_step(
    cfg: &Muon,
    scale: f32,
    (range, (rows, columns)): (&Range<usize>, (usize, usize)),
    [weights, gradients]: [&Tensor; 2],
    m: &Tensor,
) -> Result<f64> {
    /// Factor of a direction, after which the root mean square of an update is about that of AdamW.
    const SCALE: f64 = 0.2;
    let part = |of: &Tensor| of.narrow(0, range.start, range.len())?.reshape((rows, columns));
    let g = (part(gradients)? * f64::from(scale))?;
    let momentum = ((part(m)? * cfg.momentum)? + &g)?;
    m.slice_set(&momentum.flatten_all()?, 0, range.start)?;
    let direction = orthogonalized(&(g + (momentum * cfg.momentum)?)?)?;
    let scale = SCALE * (rows.max(columns) as f64).sqrt();
    let kept = (part(weights)? * (1.0 - cfg.lr * cfg.weight_decay))?;
    let next = (kept - (&direction * (cfg.lr * scale))?)?;
    weights.slice_set(&next.flatten_all()?, 0, range.start)?;
    Ok(scale * scale * f64::from(direction.sqr()?.sum_all()?.to_scalar::<f32>()?))
}

/// Returns a matrix with the same singular vectors, and singular values of about 1: five steps of Newton and Schulz.
///
/// ```text
/// A = X Xᵀ,   X ← 3.4445 X + (−4.775 A + 2.0315 A²) X
/// ```
fn orthogonalized(x: &Tensor) -> Result<Tensor> {
    let (rows, columns) = x.dims2()?;
    let norm = f64::from(x.sqr()?.sum_all()?.to_scalar::<f32>()?).sqrt();
    let x = if rows > columns { x.t()?.contiguous()? } else { x.clone() };
    let mut x = (x / (norm + 1e-7))?;
    for _ in 0..5 {
        let gram = x.matmul(&x.t()?)?;
        let turn = ((&gram * -4.775)? + (gram.matmul(&gram)? * 2.0315)?)?;
        x = ((&x * 3.4445)? + turn.matmul(&x)?)?;
    }
    if rows > columns { x.t()?.contiguous() } else { Ok(x) }
}
