//! Sizes and amounts of what is measured.

use crate::attention::Heads;

/// Sizes of a model whose kernels are measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredSizes {
    /// Name of the model.
    pub name: &'static str,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Heads.
    pub heads: Heads,
    /// Tokens of the vocabulary.
    pub vocab: usize,
}

/// Amounts of work that are measured.
#[derive(Debug, Clone)]
pub struct Amounts {
    /// Tokens of a pass in training.
    pub tokens: usize,
    /// Tokens of a row in training, and of a sequence in decoding.
    pub row: usize,
    /// Rows of decoding.
    pub rows: usize,
    /// Rows of logits at once.
    pub logits: usize,
    /// Parameters of an optimizer step.
    pub parameters: usize,
    /// Milliseconds of a measurement, about.
    pub milliseconds: f64,
}
