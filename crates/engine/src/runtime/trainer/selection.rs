//! Weights and penalties of the tokens of a minibatch, after the selection of tokens.

use maverl_kernels::sample::derive_seed;

use super::weights::{TokenFactors, divergence_weights, token_weights, weigh_observations};
use super::{Totals, Trainer, pass_of_rows};
use crate::files::ModelError;
use crate::loss::{MinibatchTokens, Selection, TokenUse, covariances};
use crate::net::ops::Backend;
use crate::net::{Model, Pool};
use crate::runtime::{Batch, Objective, Row};

/// Number of the random stream that orders tokens.
const ORDER: u64 = 0x5e1e;

impl<O: Backend> Trainer<O> {
    /// Computes the weights of the tokens of minibatch `part` in the loss, with the penalties beside them. In the loss of pairs, weights
    /// are derivatives.
    pub(super) fn token_weights(
        &self,
        model: &Model<O>,
        (batch, part): (&Batch, usize),
        rows: &[&Row],
        totals: &mut Totals,
        pool: &mut Pool<O>,
    ) -> Result<TokenFactors, ModelError> {
        let mut divergences = Vec::new();
        let uses = match batch.objective {
            Objective::Preference(options) => {
                let rows = (rows, &*batch.pairs_of(part));
                let weights = if options.loss.labels_replies() {
                    self.labeled_grads(model, rows, &options, totals, pool)?
                } else {
                    self.pair_grads(model, rows, &options, totals, pool)?
                };
                return Ok(TokenFactors::of_weights(weights));
            }
            Objective::PolicyGradient => {
                divergences = divergence_weights(batch, rows);
                self.select_tokens(model, batch, rows, totals, pool)?
            }
            Objective::Supervised => Vec::new(),
        };
        let mut weights = token_weights(batch, rows, &uses);
        weigh_observations(rows, &mut weights);
        let coef = batch.selection.penalty_coef() as f32;
        let penalty = |used: &TokenUse| if *used == TokenUse::Penalty { coef } else { 0.0 };
        let penalties = if coef == 0.0 { Vec::new() } else { uses.iter().map(penalty).collect() };
        Ok(TokenFactors { weights, penalties, divergences })
    }

    /// Computes the use of each token of a minibatch, by values before its update; returns an empty list without a selection.
    /// Tokens of rows that are not trained on are not chosen from. All ranks compute the same.
    fn select_tokens(
        &self,
        model: &Model<O>,
        batch: &Batch,
        rows: &[&Row],
        totals: &mut Totals,
        pool: &mut Pool<O>,
    ) -> Result<Vec<TokenUse>, ModelError> {
        if batch.selection == Selection::None {
            return Ok(Vec::new());
        }
        let trained: Vec<&Row> = rows.iter().copied().filter(|row| !row.skipped).collect();
        let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let logp: Vec<f64> = trained.iter().flat_map(|row| wide(&row.logprobs)).collect();
        let advantages: Vec<f64> = trained.iter().flat_map(|row| wide(&row.advantages)).collect();
        let entropies = if batch.selection.needs_entropies() {
            wide(&self.entropies(model, &trained, pool)?.concat())
        } else {
            Vec::new()
        };
        let tokens =
            MinibatchTokens { logp: &logp, advantages: &advantages, entropies: &entropies };
        let seed = derive_seed(derive_seed(self.seed, ORDER), self.optimizer.taken);
        let uses = batch.selection.uses(&tokens, |token| derive_seed(seed, token as u64));
        let by_covariance = !batch.selection.needs_entropies();
        totals.selection.add(&uses, by_covariance.then(|| covariances(&tokens)));
        let mut chosen = uses.into_iter();
        let mut all = Vec::new();
        for row in rows {
            let n = row.completion.len();
            if row.skipped {
                all.resize(all.len() + n, TokenUse::Keep);
            } else {
                all.extend(chosen.by_ref().take(n));
            }
        }
        Ok(all)
    }

    /// Computes the entropies of the tokens of rows under the model, for each row.
    fn entropies(
        &self,
        model: &Model<O>,
        rows: &[&Row],
        pool: &mut Pool<O>,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        pass_of_rows(rows, true).lists(&self.peers, self.micro_batch_tokens, |packed, _| {
            packed.entropies(&model.decoder, pool)
        })
    }
}
