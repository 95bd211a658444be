//! A critic on the policy's trunk: the value loss is part of the policy's optimizer steps.

use super::{Aimed, Body, Critic, CriticTotals, failed_critic, weight};
use crate::files::ModelError;
use crate::loss::ValueLoss;
use crate::net::Gradients;
use crate::net::ops::{Backend, Cpu};
use crate::runtime::optimizer::Optimizer;
use crate::runtime::peers::Peers;
use crate::runtime::{CriticSpec, RuntimeError, ValueBatch, ValueStats};

/// A critic on the policy's trunk during a joint update.
pub(crate) struct SharedTrunk<'a, O: Backend> {
    critic: &'a mut Critic<O>,
    batch: &'a ValueBatch,
    rows: Vec<Aimed<'a>>,
    totals: CriticTotals,
}

impl<'a, O: Backend> SharedTrunk<'a, O> {
    pub(crate) fn new(
        critic: &'a mut Critic<O>,
        batch: &'a ValueBatch,
    ) -> Result<Self, RuntimeError> {
        let rows = critic.aim(batch).map_err(|error| failed_critic(&critic.policy, &error))?;
        Ok(Self { critic, batch, rows, totals: CriticTotals::default() })
    }

    /// Starts one optimizer step, on every `parts`-th row from `part`.
    pub(crate) fn part(&mut self, part: usize, parts: usize) -> Joint<'_, O> {
        let rows: Vec<&Aimed<'_>> = self.rows.iter().skip(part).step_by(parts).collect();
        let Critic { body, of_head: optimizer, .. } = &mut *self.critic;
        Joint {
            gradients: Gradients::new(body.head.params()),
            weight: weight(&rows),
            body,
            rows,
            optimizer,
            totals: &mut self.totals,
            lr: self.batch.lr,
        }
    }

    pub(crate) fn stats(&self) -> ValueStats {
        self.totals.stats(self.batch)
    }
}

/// The value loss in one optimizer step of a policy.
pub(crate) struct Joint<'a, O: Backend> {
    body: &'a Body<O>,
    rows: Vec<&'a Aimed<'a>>,
    weight: f64,
    gradients: Gradients<'a>,
    optimizer: &'a mut Optimizer,
    totals: &'a mut CriticTotals,
    lr: f64,
}

impl<O: Backend> Joint<'_, O> {
    /// Returns the sum of the gradient of the value loss and that of the hidden states that predict the completions, both `[M, D]`.
    /// `rows` are the numbers of the rows in the minibatch, with their completion lengths. `factor` is the scale of the loss that
    /// `dhidden` has.
    pub(crate) fn backward(
        &mut self,
        ops: &O,
        hidden: &O::Act,
        rows: impl Iterator<Item = (usize, usize)>,
        (dhidden, factor): (O::Act, f32),
    ) -> Result<O::Act, ModelError> {
        let hidden = ops.read(hidden)?;
        let spec: &CriticSpec = &self.body.spec;
        let values = self.body.head.values(&hidden);
        let mut dvalues = vec![0.0; values.len()];
        let mut start = 0;
        for (row, length) in rows {
            // Rows of observations, which follow all others, have no values.
            if let Some(row) = self.rows.get(row) {
                let span = start..start + row.text.places;
                let sums = &mut self.totals.value;
                let grads = row.grads(&values[span.clone()], self.weight, spec.limits, sums);
                dvalues[span].copy_from_slice(&grads);
            }
            start += length;
        }
        dvalues.iter_mut().for_each(|slope| *slope *= factor);
        let through = self.body.head.backward(&hidden, &dvalues, &mut self.gradients);
        let mut sum = ops.unload(dhidden)?;
        for (d, through) in sum.iter_mut().zip(through) {
            *d += spec.value_coef as f32 * through;
        }
        ops.act(sum)
    }

    /// Begins the sums of a step of several ranks, and returns those before it.
    pub(crate) fn begin_step(&mut self) -> ValueLoss {
        std::mem::take(&mut self.totals.value)
    }

    /// Adds the gradients and the sums of the other ranks to those of this step.
    pub(crate) fn combine(&mut self, peers: &Peers, before: ValueLoss) -> Result<(), ModelError> {
        peers.on_host().combine(&Cpu::default(), &mut self.gradients)?;
        let all = peers.value_loss(self.totals.value)?;
        self.totals.value = before;
        self.totals.value += all;
        Ok(())
    }

    /// Returns the sum of the value losses of the optimizer steps so far.
    pub(crate) fn loss(&self) -> f64 {
        self.totals.value.loss
    }

    /// Returns the norm of the head's gradient.
    pub(crate) fn norm(&self) -> Result<f64, ModelError> {
        self.gradients.norm(&Cpu::default())
    }

    /// Skips the optimizer step of the head, as that of the trunk is skipped.
    pub(crate) fn skip(self) {
        self.totals.skipped += 1;
    }

    /// Takes the optimizer step of the head, whose gradient has a scale that its norm does not have.
    pub(crate) fn apply(self, norm: f64, factor: f32) -> Result<(), ModelError> {
        self.totals.grad_norm += norm;
        self.totals.steps += 1;
        self.optimizer.apply(self.gradients, self.lr, (norm, factor))
    }
}
