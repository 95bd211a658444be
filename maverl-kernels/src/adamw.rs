//! AdamW, and the gradient norm used for clipping.

use pulp::Simd;
use rayon::prelude::*;

use crate::lanes::{self, Kernel, Lanes};
use crate::par;

/// Elements in one block of [`sum_of_squares`]. Block sums are added in order.
const BLOCK: usize = par::GRAIN;

/// Constants of an AdamW update ([Loshchilov and Hutter, 2019], Algorithm 2), with the meaning that `torch.optim.AdamW`
/// gives them.
///
/// [Loshchilov and Hutter, 2019]: https://arxiv.org/abs/1711.05101
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Constant added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

/// Updates one parameter and its moments `m`, `v` in place. All four slices have the same length.
///
/// ```text
/// g = scale · grad,   p ← p (1 − lr λ)
/// m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²
/// p ← p − lr/(1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)
/// ```
///
/// # Panics
///
/// If the lengths differ, or `step` is 0: the first step is 1.
pub fn adamw_step(
    cfg: &AdamW,
    step: u64,
    grad_scale: f32,
    param: &mut [f32],
    grad: &[f32],
    m: &mut [f32],
    v: &mut [f32],
) {
    assert!(step > 0, "adamw_step: the first step is 1");
    let n = param.len();
    for (name, len) in [("grad", grad.len()), ("m", m.len()), ("v", v.len())] {
        assert_eq!(len, n, "adamw_step: {name} has {len} elements, param has {n}");
    }
    let rates = cfg.step_rates(step, grad_scale);
    if !par::worth_it(n) {
        return lanes::run_kernel(Update { rates, param, grad, m, v });
    }
    let moments = m.par_chunks_mut(BLOCK).zip(v.par_chunks_mut(BLOCK));
    let parts = param.par_chunks_mut(BLOCK).zip(grad.par_chunks(BLOCK)).zip(moments);
    parts
        .for_each(|((param, grad), (m, v))| lanes::run_kernel(Update { rates, param, grad, m, v }));
}

/// Returns `Σ xᵢ²` in f64: the square of a gradient's norm. Blocks of fixed size are added in order, so the bits do not
/// depend on the number of threads.
pub fn sum_of_squares(x: &[f32]) -> f64 {
    if !par::worth_it(x.len()) {
        return x.chunks(BLOCK).map(block_of_squares).sum();
    }
    let blocks: Vec<f64> = x.par_chunks(BLOCK).map(block_of_squares).collect();
    blocks.iter().sum()
}

/// Constants of one step.
#[derive(Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) keep: f32,
    pub(crate) beta2: f32,
    pub(crate) gain1: f32,
    pub(crate) gain2: f32,
    pub(crate) correction: f32,
    pub(crate) eps: f32,
    pub(crate) rate: f32,
    pub(crate) scale: f32,
}

impl AdamW {
    /// Returns the constants of a step.
    pub(crate) fn step_rates(&self, step: u64, grad_scale: f32) -> Rates {
        let t = step as f64;
        Rates {
            keep: (1.0 - self.lr * self.weight_decay) as f32,
            beta2: self.beta2 as f32,
            gain1: (1.0 - self.beta1) as f32,
            gain2: (1.0 - self.beta2) as f32,
            correction: (1.0 - libm::pow(self.beta2, t)).sqrt() as f32,
            eps: self.eps as f32,
            rate: (self.lr / (1.0 - libm::pow(self.beta1, t))) as f32,
            scale: grad_scale,
        }
    }
}

/// Elements of one thread in [`adamw_step`].
struct Update<'a> {
    rates: Rates,
    param: &'a mut [f32],
    grad: &'a [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
}

impl Kernel for Update<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { rates, param, grad, m, v } = self;
        let [scale, gain1, gain2] = [rates.scale, rates.gain1, rates.gain2].map(|x| lanes.splat(x));
        let [keep, beta2, rate] = [rates.keep, rates.beta2, rates.rate].map(|x| lanes.splat(x));
        let [correction, eps] = [rates.correction, rates.eps].map(|x| lanes.splat(x));
        lanes.map_lanes(
            [grad],
            [param, m, v],
            #[inline(always)]
            |[grad], [param, m, v]| {
                let grad = lanes.mul(grad, scale);
                let m = lanes.mul_add(lanes.sub(grad, m), gain1, m);
                let squared = lanes.mul(gain2, lanes.mul(grad, grad));
                let v = lanes.add(lanes.mul(v, beta2), squared);
                let denominator = lanes.add(lanes.div(lanes.sqrt(v), correction), eps);
                let change = lanes.mul(rate, lanes.div(m, denominator));
                [lanes.sub(lanes.mul(param, keep), change), m, v]
            },
        );
    }
}

fn block_of_squares(x: &[f32]) -> f64 {
    lanes::run_kernel(Squares(x))
}

/// Computes `Σ xᵢ²` in sixteen lanes of f64, element by element.
struct Squares<'a>(&'a [f32]);

impl Kernel for Squares<'_> {
    type Output = f64;

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) -> f64 {
        let mut sums = lanes.splat_wide(0.0);
        let (body, tail) = self.0.as_chunks();
        for x in body {
            let x = lanes.to_wide(lanes.load(x));
            sums = lanes.add_wide(sums, lanes.mul_wide(x, x));
        }
        let mut sums = lanes.wide_array(sums);
        for (lane, &x) in sums.iter_mut().zip(tail) {
            *lane += f64::from(x) * f64::from(x);
        }
        sums.iter().sum()
    }
}

#[cfg(test)]
mod tests;
