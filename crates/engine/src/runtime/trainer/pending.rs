//! Passes whose gradients stay until a later step: the halves of an update as operations of their own.
//!
//! Losses are sums: the weight of a token is that of its row, or 1. No aggregation divides them.

use std::path::Path;

use super::micro::{Micro, row_loss};
use super::weights::TokenFactors;
use super::{Back, Totals, Trainer, pass_of_rows, shares};
use crate::files::ModelError;
use crate::loss::{PolicyLoss, RowTokens};
use crate::net::ops::Backend;
use crate::net::{Gradients, Model, PendingSums};
use crate::runtime::checkpoint::restore;
use crate::runtime::{Batch, OptimOptions, Row, RuntimeError};

/// Result of a pass over rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PendingPass {
    /// Log-probs of the completion of each row.
    pub(crate) logprobs: Vec<Vec<f32>>,
    /// Sums of the losses.
    pub(crate) loss: PolicyLoss,
}

impl<O: Backend> Trainer<O> {
    /// Computes the losses of rows, and adds their gradients to those that are pending. The log-probs equal those of sampling,
    /// to the bit. If a loss is not finite, nothing stays pending.
    pub(crate) fn forward_backward(
        &mut self,
        model: &Model<O>,
        batch: &Batch,
        pending: &mut Option<PendingSums<O>>,
    ) -> Result<PendingPass, RuntimeError> {
        let taken = pending.take();
        let (sums, pass) =
            self.add_gradients(model, batch, taken).map_err(|error| self.failed_update(&error))?;
        if !pass.loss.loss.is_finite() {
            return Err(self.not_finite("the loss"));
        }
        *pending = Some(sums);
        Ok(pass)
    }

    fn add_gradients(
        &mut self,
        model: &Model<O>,
        batch: &Batch,
        pending: Option<PendingSums<O>>,
    ) -> Result<(PendingSums<O>, PendingPass), ModelError> {
        let rows: Vec<&Row> = batch.rows.iter().collect();
        let weights = rows.iter().flat_map(|row| row_weights(row)).collect();
        let factors = TokenFactors::of_weights(weights);
        let gradients = match pending {
            Some(pending) => Gradients::resumed(model.trainable(), pending),
            None => self.optimizer.gradients(model.trainable())?,
        };
        let logprobs = Some(vec![Vec::new(); rows.len()]);
        let mut totals = Totals { logprobs, ..Totals::default() };
        let (mut back, mut pool) = (Back { gradients, joint: None }, self.pools.lend());
        let pass = pass_of_rows(&rows, shares(model));
        for indices in pass.micro_batches(0..rows.len(), self.micro_batch_tokens) {
            let micro = Micro::new(pass.pack(indices), (&rows, &factors), indices, 1.0);
            self.accumulate(model, batch, &micro, &mut back, &mut totals, &mut pool)?;
        }
        let logprobs = totals.logprobs.unwrap_or_default();
        let pass = PendingPass { logprobs, loss: totals.policy };
        Ok((back.gradients.into_pending(), pass))
    }

    /// Computes the losses of rows without gradients.
    pub(crate) fn forward_only(
        &self,
        model: &Model<O>,
        batch: &Batch,
    ) -> Result<PendingPass, RuntimeError> {
        let logprobs = self.logprobs(model, &batch.rows)?;
        let mut loss = PolicyLoss::default();
        for (row, logp) in batch.rows.iter().zip(&logprobs) {
            let (weights, zeros) = (row_weights(row), vec![0.0; logp.len()]);
            let [mut d_logp, mut d_entropy] = [zeros.clone(), zeros.clone()];
            let tokens = RowTokens {
                logp,
                entropy: &zeros,
                old: &row.logprobs,
                sampler: None,
                reference: None,
                weights: &weights,
                penalties: None,
                share: 1.0,
            };
            loss += row_loss(batch, row, &tokens, [&mut d_logp, &mut d_entropy]);
        }
        Ok(PendingPass { logprobs, loss })
    }

    /// Takes an optimizer step with pending gradients. Returns their norm. If it is not finite, no step is taken.
    pub(crate) fn optim_step(
        &mut self,
        model: &Model<O>,
        pending: PendingSums<O>,
        options: OptimOptions,
    ) -> Result<f64, RuntimeError> {
        let gradients = Gradients::resumed(model.trainable(), pending);
        let norm = gradients.norm(model.decoder.ops());
        let norm = norm.map_err(|error| self.failed_update(&error))?;
        if !norm.is_finite() {
            return Err(self.not_finite("the gradient"));
        }
        self.optimizer.set_options(options);
        let applied = self.optimizer.apply(gradients, options.lr, (norm, 1.0));
        applied.map_err(|error| self.failed_update(&error))?;
        self.version += 1;
        Ok(norm)
    }

    /// Restores the weights from a directory that was saved, and begins with moments of zero.
    pub(crate) fn load_weights(&mut self, model: &Model<O>, dir: &Path) -> Result<(), ModelError> {
        restore(model, dir)?;
        self.optimizer.reset()
    }

    fn not_finite(&self, what: &str) -> RuntimeError {
        RuntimeError::NotFinite { policy: self.policy.clone(), what: what.to_owned() }
    }
}

/// Returns the weight of each completion token.
fn row_weights(row: &Row) -> Vec<f32> {
    if row.weights.is_empty() { vec![1.0; row.completion.len()] } else { row.weights.clone() }
}
