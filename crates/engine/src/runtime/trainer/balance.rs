//! Loss that balances the load of experts (reference: transformers `load_balancing_loss_func`).
//!
//! The loss of an optimizer step is that of all its tokens, so its derivative depends on the load of all micro-batches and ranks.
//! A forward pass counts it before the gradient. Counts are whole numbers, so the derivative does not depend on how the rows are
//! divided.

use std::ops::Range;

use super::Trainer;
use super::routers::{LayerLoads, token_counts};
use crate::files::ModelError;
use crate::net::ops::Backend;
use crate::net::{Model, Pool, RoutedTokens, Tape};
use crate::runtime::Row;
use crate::runtime::pass::PassTexts;

impl<O: Backend> Trainer<O> {
    /// Computes the derivative of the loss that balances the load of experts in an optimizer step, by the probability of each
    /// expert at a token; `None` without such a loss. `own` are the units of this rank.
    pub(super) fn balance_slopes(
        &self,
        model: &Model<O>,
        coefficient: f64,
        rows: &[&Row],
        (pass, own): (&PassTexts<'_>, Range<usize>),
        pool: &mut Pool<O>,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        let mut loads = LayerLoads::of_model(&model.config);
        if coefficient == 0.0 || loads.is_empty() {
            return Ok(None);
        }
        for indices in pass.micro_batches(own, self.micro_batch_tokens) {
            let packed = pass.pack(indices);
            let its: Vec<&Row> = indices.iter().map(|&row| rows[row]).collect();
            let Some(counts) = token_counts(model, &packed, &its) else { continue };
            let routes = packed.routes();
            let tokens = Some(RoutedTokens { counts: &counts, slopes: None, routes });
            let decoder = self.decoder(model, &packed, indices);
            let tape = Tape::record_routed(&decoder, packed.rows(), tokens, true, pool)?;
            loads.add(tape.loads());
        }
        let load = loads.add_ranks(&model.config, &self.peers)?.sum();
        Ok(Some(load.balance_slopes(coefficient)))
    }
}
