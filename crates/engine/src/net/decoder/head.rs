//! Output head of a decoder.

use std::ops::Range;

use maverl_kernels::logprob::cap_logits;

use super::Decoder;
use crate::files::ModelError;
use crate::net::gradients::Gradients;
use crate::net::ops::{Backend, Ops, Targets, project};
use crate::net::pool::Pool;

impl Decoder {
    /// Computes the logits `[M, V]` of hidden states `[M, D]`.
    pub fn logits(&self, hidden: &[f32], pool: &mut Pool) -> Vec<f32> {
        let mut logits = project(&self.head.map, hidden, self.precision(), pool);
        if let Some(cap) = self.head.softcap {
            cap_logits(&mut logits, cap);
        }
        logits
    }
}

impl<O: Backend> Decoder<O> {
    /// Computes the logits of some rows of hidden states `[N, D]`, and reads them.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn read_logits(
        &self,
        hidden: &O::Act,
        rows: &[u32],
        pool: &mut Pool<O>,
    ) -> Result<Vec<f32>, ModelError> {
        self.ops.logits(hidden, rows, &self.head, pool)
    }
}

impl<O: Ops> Decoder<O> {
    /// Returns the index of the embedding among the trained weights, if it is also the head.
    pub(crate) fn tied_slot(&self) -> Option<usize> {
        self.embed.slot().filter(|slot| self.head.map.weight().slot() == Some(*slot))
    }

    /// Computes log-probabilities of targets `[M, k]` and entropies (in nats) `[M]` under
    /// `softmax(logits * inv_temperature)`, for hidden states `[M, D]`, without keeping `[M, V]` logits.
    ///
    /// # Errors
    ///
    /// If a target is not in the vocabulary, or the device fails.
    pub fn logprobs(
        &self,
        hidden: &O::Act,
        targets: &[u32],
        inv_temperature: &[f32],
    ) -> Result<(Vec<f32>, Vec<f32>), ModelError> {
        self.check_targets(targets)?;
        self.ops.logprobs(hidden, &self.head, Targets { ids: targets, inv_temperature })
    }

    /// Computes the gradient `[M, D]` of hidden states from a loss of the results of [`Decoder::logprobs`], and adds
    /// the head's gradient. Sequence `s` is the rows `offsets[s]..offsets[s + 1]`. `loss` gets some sequences at a
    /// time, with log-probs `[rows, k]` and entropies `[rows]` of their rows, and writes its derivatives by both.
    ///
    /// # Errors
    ///
    /// If a target is not in the vocabulary, the device fails, or the error of `loss`.
    pub fn loss(
        &self,
        hidden: &O::Act,
        of: Targets<'_>,
        offsets: &[usize],
        gradients: &mut Gradients<'_, O>,
        loss: impl FnMut(Range<usize>, [&[f32]; 2], [&mut [f32]; 2]) -> Result<(), ModelError>,
    ) -> Result<O::Act, ModelError> {
        self.check_targets(of.ids)?;
        self.ops.loss(hidden, &self.head, of, offsets, loss, gradients)
    }

    fn check_targets(&self, targets: &[u32]) -> Result<(), ModelError> {
        let vocab = self.config.vocab_size;
        match targets.iter().find(|&&id| id as usize >= vocab) {
            Some(id) => {
                Err(ModelError::wrong_argument(format!("token id {id} in a vocabulary of {vocab}")))
            }
            None => Ok(()),
        }
    }
}
