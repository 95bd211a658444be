//! An optimizer step layer by layer, on weights that ranks divide: all micro-batches of a rank go through a unit of the model before
//! the next one is gathered (layered accumulation: Lamy-Poirier, 2021, arXiv:2106.02679).
//!
//! For each weight, gradients are added in the order of micro-batches, as by one micro-batch after the other: sums have the same
//! bits. Those of an embedding that is also the head are apart, as on all ranks. A unit is exchanged once, whatever the number of
//! micro-batches, and a rank without rows makes the same exchanges.

use super::micro::Micro;
use super::routers::token_counts;
use super::totals::Totals;
use super::weights::token_share;
use super::{Trainer, pass_of_rows, shares};
use crate::files::ModelError;
use crate::net::ops::Backend;
use crate::net::{Gradients, Model, Pool, Tape};
use crate::runtime::sharded::ShardedModel;
use crate::runtime::{Batch, Objective, Row, RuntimeError};
use maverl_dist::{Phase, Unit, Work};

/// Micro-batches on their way through the layers.
struct LayeredPass<'a, O: Backend> {
    micros: &'a [Micro<'a>],
    tapes: Vec<Tape<'a, O>>,
    /// Gradients of the hidden states, `[N, D]` each.
    slopes: Vec<O::Act>,
    /// Number of the last layer.
    last: usize,
}

impl<O: Backend> Trainer<O> {
    /// Gathers all weights of the policy, if ranks divide them and it does not have them.
    pub(super) fn gather_whole(&mut self, model: &Model<O>) -> Result<(), ModelError> {
        self.sharded.as_mut().map_or(Ok(()), |sharded| sharded.gather_whole(model))
    }

    /// Takes an optimizer step on weights that ranks divide.
    pub(super) fn sharded_step(
        &mut self,
        (model, sharded): (&Model<O>, &mut ShardedModel<O>),
        (batch, part): (&Batch, usize),
        rows: &[&Row],
        totals: &mut Totals,
    ) -> Result<(), RuntimeError> {
        let sums = self.sharded_sums((model, &mut *sharded), (batch, part), rows, totals);
        let sums = sums.map_err(|error| self.failed_update(&error))?;
        let gradients = Gradients::complete(sharded.masters(), sums);
        let norm = sharded.norm(&gradients).map_err(|error| self.failed_update(&error))?;
        self.require_finite(totals, [norm, 0.0])?;
        totals.grad_norm += norm;
        totals.steps += 1;
        let applied = self.optimizer.apply_to_owned(sharded.masters(), gradients, batch.lr, norm);
        applied.map_err(|error| self.failed_update(&error))
    }

    /// Computes the gradients of an optimizer step, summed over all ranks, by the parameters that this rank owns.
    fn sharded_sums(
        &self,
        (model, sharded): (&Model<O>, &mut ShardedModel<O>),
        (batch, part): (&Batch, usize),
        rows: &[&Row],
        totals: &mut Totals,
    ) -> Result<O::Sums, ModelError> {
        if passes_before(batch) {
            sharded.gather_whole(model)?;
        }
        let mut pool = self.pools.lend();
        let factors = self.token_weights(model, (batch, part), rows, totals, &mut pool)?;
        let (pass, share) = (pass_of_rows(rows, shares(model)), token_share(batch));
        let own = self.peers.share(&pass.rank_units(self.peers.size()));
        totals.tokens += pass.counts();
        let units = (&pass, own.clone());
        let slopes = self.balance_slopes(model, batch.router_aux_coef, rows, units, &mut pool)?;
        sharded.free_whole(model)?;
        let before = totals.begin_step::<O>(None);
        let micros = pass.micro_batches(own, self.micro_batch_tokens).into_iter();
        let micros = micros.map(|indices| {
            let micro = Micro::new(pass.pack(indices), (rows, &factors), indices, share);
            micro.with_slopes(slopes.as_deref())
        });
        let micros: Vec<Micro<'_>> = micros.collect();
        let computed = micros.iter().map(|micro| micro.packed.tokens() as u64);
        totals.tokens.computed += computed.sum::<u64>();
        let step = (batch, micros.as_slice());
        let sums = self.accumulate_by_layers(model, sharded, step, totals, &mut pool)?;
        self.combine_totals(model, before, None, totals)?;
        totals.routers.end_step();
        Ok(sums)
    }

    /// Adds the gradients of micro-batches layer by layer, and those of the other ranks. Returns the sums of this rank's parameters.
    fn accumulate_by_layers(
        &self,
        model: &Model<O>,
        sharded: &ShardedModel<O>,
        (batch, micros): (&Batch, &[Micro<'_>]),
        totals: &mut Totals,
        pool: &mut Pool<O>,
    ) -> Result<O::Sums, ModelError> {
        let counts = micros.iter().map(|micro| token_counts(model, &micro.packed, &micro.rows));
        let counts: Vec<Option<Vec<f32>>> = counts.collect();
        let mut walk = sharded.walk(model.trainable())?;
        let last = model.config.layers.len() - 1;
        let mut layered = LayeredPass { micros, tapes: Vec::new(), slopes: Vec::new(), last };
        for (at, work) in sharded.works().iter().enumerate() {
            walk.before(at)?;
            if matches!(work.phase, Phase::Loss | Phase::Backward) {
                let mut gradients = walk.gradients(work.unit)?;
                if work.phase == Phase::Loss {
                    self.losses_of_micros(
                        &mut layered,
                        sharded,
                        batch,
                        &mut gradients,
                        totals,
                        pool,
                    )?;
                } else {
                    layered.go_back(work, &mut gradients, pool)?;
                }
                walk.after(work, Some(gradients))?;
                continue;
            }
            if work.unit == Unit::Table && work.phase == Phase::Forward {
                layered.begin(sharded, &counts, pool)?;
            }
            layered.go_forward(work, self.checkpointing, totals, pool)?;
            walk.after(work, None)?;
        }
        walk.finish()
    }

    /// Computes the losses of all micro-batches.
    fn losses_of_micros(
        &self,
        layered: &mut LayeredPass<'_, O>,
        sharded: &ShardedModel<O>,
        batch: &Batch,
        gradients: &mut Gradients<'_, O>,
        totals: &mut Totals,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let mut critic = None;
        for (micro, tape) in layered.micros.iter().zip(&mut layered.tapes) {
            let (heads, hidden) = ((&mut *gradients, &mut critic), tape.hidden());
            let step = (batch, micro);
            let slopes = self.losses(sharded.decoder(), hidden, step, heads, totals, pool)?;
            layered.slopes.push(slopes);
            tape.give_hidden(pool);
        }
        Ok(())
    }
}

impl<'a, O: Backend> LayeredPass<'a, O> {
    /// Computes the embeddings. `counts` has the number of rows with each token for each micro-batch, if the model has experts.
    fn begin(
        &mut self,
        sharded: &'a ShardedModel<O>,
        counts: &'a [Option<Vec<f32>>],
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        for (micro, counts) in self.micros.iter().zip(counts) {
            let (rows, tokens) = (micro.packed.rows(), micro.routed_tokens(counts.as_deref()));
            self.tapes.push(Tape::begin(sharded.decoder(), rows, tokens, pool)?);
        }
        Ok(())
    }

    /// Runs a layer on all micro-batches, if the work is one.
    fn go_forward(
        &mut self,
        work: &Work,
        checkpointing: bool,
        totals: &mut Totals,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let Unit::Layer(layer) = work.unit else { return Ok(()) };
        for tape in &mut self.tapes {
            tape.run_layer(checkpointing, pool)?;
            if layer == self.last {
                tape.run_last_norm(pool)?;
                totals.routers.step.add(tape.loads());
            }
        }
        Ok(())
    }

    /// Adds the gradients of a layer, with the last norm if it is the last, or of the embedding.
    fn go_back(
        &mut self,
        work: &Work,
        gradients: &mut Gradients<'_, O>,
        pool: &mut Pool<O>,
    ) -> Result<(), ModelError> {
        let Unit::Layer(layer) = work.unit else {
            let mut tapes = self.tapes.drain(..);
            return tapes.try_for_each(|tape| tape.embedding_backward(gradients, pool));
        };
        for (at, tape) in self.tapes.iter_mut().enumerate() {
            if layer == self.last {
                let slopes = std::mem::take(&mut self.slopes[at]);
                tape.last_norm_backward(&slopes, gradients, pool)?;
            }
            tape.layer_backward(gradients, pool)?;
        }
        Ok(())
    }
}

/// Returns true if an optimizer step of a batch begins with passes without gradients.
fn passes_before(batch: &Batch) -> bool {
    matches!(batch.objective, Objective::Preference(_))
        || batch.selection.needs_entropies()
        || batch.router_aux_coef != 0.0
}

#[cfg(test)]
mod tests;
