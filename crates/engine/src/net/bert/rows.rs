//! Operations on the rows of an encoder. Each number depends on its own row only.

use rayon::prelude::*;

use crate::files::EncoderActivation;

/// Numbers of a row that a thread takes at least.
const GRAIN: usize = 4096;

/// Gain and bias `[D]` of a norm.
pub(super) struct LayerNorm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) eps: f32,
}

impl LayerNorm {
    /// Normalizes rows in place. Mean and variance of a row are sums in f64, in the order of its numbers:
    ///
    /// ```text
    /// y = w (x − mean) / √(var + eps) + b,   var = Σ (x − mean)² / D
    /// ```
    pub(super) fn apply(&self, x: &mut [f32]) {
        x.par_chunks_mut(self.weight.len()).for_each(|row| self.apply_row(row));
    }

    fn apply_row(&self, row: &mut [f32]) {
        let width = row.len() as f64;
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / width;
        let squares: f64 = row.iter().map(|&x| (f64::from(x) - mean) * (f64::from(x) - mean)).sum();
        let scale = 1.0 / (squares / width + f64::from(self.eps)).sqrt();
        for ((x, weight), bias) in row.iter_mut().zip(&self.weight).zip(&self.bias) {
            *x = ((f64::from(*x) - mean) * scale) as f32 * weight + bias;
        }
    }
}

/// Applies an activation to each number.
pub(super) fn activate(activation: EncoderActivation, x: &mut [f32]) {
    let apply: fn(f32) -> f32 = match activation {
        EncoderActivation::Gelu => gelu,
        EncoderActivation::GeluTanh => gelu_tanh,
        EncoderActivation::Relu => relu,
    };
    x.par_chunks_mut(GRAIN).for_each(|part| part.iter_mut().for_each(|z| *z = apply(*z)));
}

/// Computes `z (1 + erf(z / √2)) / 2` (arXiv:1606.08415, section 2).
fn gelu(z: f32) -> f32 {
    0.5 * z * (1.0 + libm::erff(z * std::f32::consts::FRAC_1_SQRT_2))
}

/// Computes `z (1 + tanh(√(2/π) (z + 0.044715 z³))) / 2` (arXiv:1606.08415, section 2).
fn gelu_tanh(z: f32) -> f32 {
    /// √(2/π)
    const FACTOR: f32 = 0.797_884_6;
    0.5 * z * (1.0 + libm::tanhf(FACTOR * (z + 0.044_715 * z * z * z)))
}

fn relu(z: f32) -> f32 {
    z.max(0.0)
}

/// Replaces each row `[width]` of scores by the softmax of them times `scale`.
pub(super) fn softmax_rows(scores: &mut [f32], width: usize, scale: f32) {
    for row in scores.chunks_exact_mut(width) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0_f64;
        for score in row.iter_mut() {
            *score = libm::expf((*score - most) * scale);
            sum += f64::from(*score);
        }
        let factor = (1.0 / sum) as f32;
        row.iter_mut().for_each(|weight| *weight *= factor);
    }
}
