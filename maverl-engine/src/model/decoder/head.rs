//! Output head of a decoder.

use std::ops::{Deref, Range};

use maverl_kernels::logprob::LmHead;

use super::Decoder;
use crate::model::gradients::Gradients;
use crate::model::pool::Pool;
use crate::model::{ModelError, ModelErrorKind};

impl Decoder {
    /// Returns the weight of the output head, `[V, D]`.
    fn head_values(&self) -> impl Deref<Target = [f32]> {
        self.head.weight().values()
    }

    /// Computes the logits `[M, V]` of hidden states `[M, D]`.
    pub fn logits(&self, hidden: &[f32], pool: &mut Pool) -> Vec<f32> {
        self.head.project(hidden, self.precision, pool)
    }

    /// Computes log-probabilities and entropies (in nats) `[M]` of targets `[M]` under
    /// `softmax(logits * inv_temperature)`, for hidden states `[M, D]`, without keeping `[M, V]` logits.
    ///
    /// # Errors
    ///
    /// If a target is not in the vocabulary.
    pub fn logprobs(
        &self,
        hidden: &[f32],
        targets: &[u32],
        inv_temperature: &[f32],
    ) -> Result<(Vec<f32>, Vec<f32>), ModelError> {
        self.check_targets(targets)?;
        let (mut logp, mut entropy) = (vec![0.0; targets.len()], vec![0.0; targets.len()]);
        let (w, precision) = (self.head_values(), self.precision);
        let head = LmHead { h: hidden, w: &w, targets, inv_temperature, precision };
        head.logprobs(&mut logp, &mut entropy);
        Ok((logp, entropy))
    }

    /// Computes the gradient `[M, D]` of hidden states from a loss of the results of [`Decoder::logprobs`], and adds
    /// the head's gradient. Sequence `s` is the rows `offsets[s]..offsets[s + 1]`. `loss` gets some sequences at a
    /// time, with log-probs and entropies of their rows, and writes its derivatives by both.
    ///
    /// # Errors
    ///
    /// If a target is not in the vocabulary, or the error of `loss`.
    pub fn loss(
        &self,
        hidden: &[f32],
        targets: &[u32],
        inv_temperature: &[f32],
        offsets: &[usize],
        loss: impl FnMut(Range<usize>, [&[f32]; 2], [&mut [f32]; 2]) -> Result<(), ModelError>,
        gradients: &mut Gradients<'_>,
    ) -> Result<Vec<f32>, ModelError> {
        self.check_targets(targets)?;
        let mut dhidden = vec![0.0; hidden.len()];
        let (w, precision) = (self.head_values(), self.precision);
        let head = LmHead { h: hidden, w: &w, targets, inv_temperature, precision };
        head.loss(offsets, loss, &mut dhidden, gradients.of(self.head.weight().slot()))?;
        Ok(dhidden)
    }

    fn check_targets(&self, targets: &[u32]) -> Result<(), ModelError> {
        let vocab = self.config.vocab_size;
        match targets.iter().find(|&&id| id as usize >= vocab) {
            Some(id) => Err(ModelError::new(
                ModelErrorKind::Argument,
                format!("token id {id} in a vocabulary of {vocab}"),
            )),
            None => Ok(()),
        }
    }
}
