//! End of an optimizer step: it is taken, or skipped if a gradient overflowed in f16.

use super::totals::Totals;
use super::{Back, Trainer};
use crate::files::ModelError;
use crate::net::ops::Backend;
use crate::net::tape::first_overflow;
use crate::net::{Decoder, Model, Pool};
use crate::runtime::critic::Joint;
use crate::runtime::loss_scale::{LossScale, factor_of};
use crate::runtime::packed::PackedRows;
use crate::runtime::{Batch, RuntimeError};

impl<O: Backend> Trainer<O> {
    /// Takes the optimizer step of gradients that are complete, unless they overflowed in f16. A loss that is not finite is an
    /// error, as is such a gradient in another precision.
    pub(super) fn end_step(
        &mut self,
        model: &Model<O>,
        batch: &Batch,
        Back { gradients, joint }: Back<'_, O>,
        totals: &mut Totals,
    ) -> Result<(), RuntimeError> {
        let factor = factor_of(self.scale.as_ref());
        let norm = self.peers.norm(model.decoder.ops(), &gradients);
        let norm = norm.map_err(|error| self.failed_update(&error))? / f64::from(factor);
        let of_head = joint.as_ref().map_or(Ok(0.0), Joint::norm);
        let of_head = of_head.map_err(|error| self.failed_update(&error))? / f64::from(factor);
        let of_values = joint.as_ref().filter(|_| self.scale.is_some()).map_or(0.0, Joint::loss);
        for (loss, what) in [(totals.policy.loss, "the loss"), (of_values, "the value loss")] {
            if !loss.is_finite() {
                return Err(self.loss_not_finite(what, totals.overflow));
            }
        }
        if !norm.is_finite() || !of_head.is_finite() {
            totals.skipped += 1;
            joint.into_iter().for_each(Joint::skip);
            return self.skip_step();
        }
        self.scale.iter_mut().for_each(LossScale::count_step);
        totals.grad_norm += norm;
        totals.steps += 1;
        let applied = self.optimizer.apply(gradients, batch.lr, (norm, factor));
        totals.muon_rms = self.optimizer.muon_rms();
        let applied =
            applied.and_then(|()| joint.map_or(Ok(()), |joint| joint.apply(of_head, factor)));
        applied.map_err(|error| self.failed_update(&error))
    }

    /// Skips an optimizer step, whose gradients are not finite. Weights, moments and their counter stay.
    fn skip_step(&mut self) -> Result<(), RuntimeError> {
        let policy = self.policy.clone();
        let Some(scale) = &mut self.scale else {
            return Err(RuntimeError::NotFinite { policy, what: "the gradient".to_owned() });
        };
        if scale.skip_step() {
            return Ok(());
        }
        Err(RuntimeError::SmallestLossScale { policy, what: "gradients".to_owned() })
    }

    /// Returns the error of a loss that is not finite.
    fn loss_not_finite(&self, what: &str, layer: Option<usize>) -> RuntimeError {
        let (policy, what) = (self.policy.clone(), what.to_owned());
        match self.scale {
            None => RuntimeError::NotFinite { policy, what },
            Some(_) => RuntimeError::LossBeyondF16 { policy, what, layer },
        }
    }

    /// Notes the first layer in which an activation overflowed in f16, if the loss of a micro-batch is not finite.
    pub(super) fn note_overflow(
        &self,
        decoder: &Decoder<O>,
        packed: &PackedRows,
        totals: &mut Totals,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let unknown = totals.overflow.is_none() && !totals.policy.loss.is_finite();
        if self.scale.is_some() && unknown {
            let (rows, routes) = (packed.rows(), packed.routes());
            totals.overflow = first_overflow(decoder, rows, routes, pool)?;
        }
        Ok(())
    }
}
