//! Quantities computed before an optimizer step: log-probs of whole rows.

use std::borrow::Cow;

use super::routers::check_routes;
use super::{Totals, Trainer, pass_of_rows, shares};
use crate::files::ModelError;
use crate::loss::{self, Pair, PreferenceOptions, preference};
use crate::net::ops::Backend;
use crate::net::{Decoder, Model, Pool};
use crate::runtime::packed::{PackedRows, Support};
use crate::runtime::{Batch, Row, RuntimeError, TopTokens};

impl<O: Backend> Trainer<O> {
    /// Computes the current log-probs of the rows' completions, each `[T]`.
    pub(crate) fn logprobs(
        &self,
        model: &Model<O>,
        rows: &[Row],
    ) -> Result<Vec<Vec<f32>>, RuntimeError> {
        check_routes(model, rows).map_err(|error| self.failed_update(&error))?;
        let rows: Vec<&Row> = rows.iter().collect();
        self.current_logprobs(model, &rows).map_err(|error| self.failed_update(&error))
    }

    /// Computes the log-probs of each row's completion under the reference.
    pub(crate) fn reference(&self, rows: &[Row]) -> Result<Vec<Vec<f32>>, RuntimeError> {
        let rows: Vec<&Row> = rows.iter().collect();
        self.under_reference(&rows, &mut self.pools.lend())
            .map_err(|error| self.failed_update(&error))
    }

    /// Computes the log-probs of the tokens of a support in the place of each completion token of rows, at most of the whole
    /// vocabulary.
    pub(crate) fn top_tokens(
        &self,
        model: &Model<O>,
        rows: &[Row],
        support: Support,
    ) -> Result<Vec<TopTokens>, RuntimeError> {
        check_routes(model, rows)
            .and_then(|()| self.tops_of(model, rows, support))
            .map_err(|error| self.failed_update(&error))
    }

    /// Computes the log-probs of the tokens of a support under the reference.
    pub(crate) fn reference_top_tokens(
        &self,
        rows: &[Row],
        support: Support,
    ) -> Result<Vec<TopTokens>, RuntimeError> {
        self.kept_reference()
            .and_then(|reference| self.tops_of(reference, rows, support))
            .map_err(|error| self.failed_update(&error))
    }

    /// Computes the log-probs of the tokens of a support under a model, whose routers choose experts themselves.
    fn tops_of(
        &self,
        model: &Model<O>,
        rows: &[Row],
        support: Support,
    ) -> Result<Vec<TopTokens>, ModelError> {
        let rows: Vec<&Row> = rows.iter().collect();
        let (vocab, mut pool) = (model.config.vocab_size, self.pools.lend());
        let support = match support {
            Support::Top { k, among } => {
                let among = among.min(vocab);
                Support::Top { k: k.min(among), among }
            }
            Support::Given => Support::Given,
        };
        let pass = pass_of_rows(&rows, true);
        let found = pass.lists(&self.peers, self.micro_batch_tokens, |packed, _| {
            packed.unrouted().top_tokens((&model.decoder, vocab), support, &mut pool)
        })?;
        let tokens = found.iter().zip(&rows);
        Ok(tokens.map(|(numbers, row)| TopTokens::of_row(numbers, row.completion.len())).collect())
    }

    /// Returns the reference; an error if none is kept.
    fn kept_reference(&self) -> Result<&Model<O>, ModelError> {
        self.reference.as_ref().ok_or_else(|| {
            let message = "no reference is kept to compare with";
            ModelError::wrong_argument(message)
        })
    }

    fn under_reference(
        &self,
        rows: &[&Row],
        pool: &mut Pool<O>,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let reference = self.kept_reference()?;
        pass_of_rows(rows, true).lists(&self.peers, self.micro_batch_tokens, |packed, _| {
            packed.unrouted().logprobs(&reference.decoder, pool)
        })
    }

    /// Returns the rows of a batch after the correction of the sampler's mismatch: the log-probs of corrected rows are the
    /// trainer's, and their tokens are weighted by the ratio of the trainer's to the sampler's.
    pub(super) fn correct_rows<'b>(
        &self,
        model: &Model<O>,
        batch: &'b Batch,
        totals: &mut Totals,
    ) -> Result<Cow<'b, [Row]>, ModelError> {
        let chosen: Vec<&Row> = batch.rows.iter().filter(|row| is_corrected(row)).collect();
        if chosen.is_empty() {
            return Ok(Cow::Borrowed(&batch.rows));
        }
        let mut found = self.current_logprobs(model, &chosen)?.into_iter();
        let mut rows = batch.rows.clone();
        let (mut sum, mut kept, mut tokens) = (0.0, 0, 0_usize);
        for (index, row) in rows.iter_mut().enumerate().filter(|(_, row)| is_corrected(row)) {
            let trainer = found.next().expect("one list of log-probs for each row");
            totals.mismatch(&trainer, &row.logprobs);
            if let Some(recorder) = &mut totals.recorder {
                recorder.record_correction(index, &trainer, &row.logprobs);
            }
            let weights = loss::correction_weights(&row.loss.correction, &trainer, &row.logprobs);
            if !row.skipped {
                (sum, tokens) = (sum + weights.iter().sum::<f64>(), tokens + weights.len());
                kept += weights.iter().filter(|&&weight| weight > 0.0).count();
            }
            row.weights = weights.into_iter().map(|weight| weight as f32).collect();
            row.sampler = std::mem::replace(&mut row.logprobs, trainer);
        }
        let tokens = tokens.max(1) as f64;
        totals.mean_weight = Some(sum / tokens);
        let masks = chosen.iter().any(|row| row.loss.has_mask());
        totals.kept = masks.then_some(kept as f64 / tokens);
        Ok(Cow::Owned(rows))
    }

    /// Computes the derivative of the mean loss of pairs by each token's log-prob, packed. Of each pair, `pairs` has the
    /// numbers of rows of the better and of the worse reply, which follow each other in `rows`.
    ///
    /// All tokens of a reply have the same derivative, which depends on both replies. It is computed before any
    /// gradient, so micro-batches and ranks may split a pair.
    pub(super) fn pair_grads(
        &self,
        model: &Model<O>,
        (rows, pairs): (&[&Row], &[[usize; 2]]),
        options: &PreferenceOptions,
        totals: &mut Totals,
        pool: &mut Pool<O>,
    ) -> Result<Vec<f32>, ModelError> {
        let ratios = self.log_ratios(model, rows, options, pool)?;
        let count = pairs.len() as f64;
        let mut grads = Vec::new();
        let mut at = 0;
        for &[better, worse] in pairs {
            let middle = at + better;
            let [chosen, rejected] = [at..middle, middle..middle + worse].map(|own| {
                let tokens = rows[own.clone()].iter().map(|row| row.completion.len()).sum();
                (ratios[own].iter().sum(), tokens)
            });
            at = middle + worse;
            let lost = preference(options, &Pair { chosen, rejected });
            totals.policy.loss += lost.value / count;
            totals.policy.surrogate += lost.value / count;
            totals.pairs.add(&lost);
            for (grad, (_, tokens)) in [(lost.chosen, chosen), (lost.rejected, rejected)] {
                grads.extend(std::iter::repeat_n((grad / count) as f32, tokens));
            }
        }
        Ok(grads)
    }

    /// Computes the sum of the log-ratios of each row to the reference, under the decoder of training.
    pub(super) fn log_ratios(
        &self,
        model: &Model<O>,
        rows: &[&Row],
        options: &PreferenceOptions,
        pool: &mut Pool<O>,
    ) -> Result<Vec<f64>, ModelError> {
        let own = self.logprobs_under(rows, shares(model), pool, |packed, rows| {
            self.decoder(model, packed, rows)
        })?;
        self.less_reference(rows, &own, options, pool)
    }

    /// Returns the sum of the log-probs of each row, less those of the reference if the loss has one.
    pub(super) fn less_reference(
        &self,
        rows: &[&Row],
        own: &[Vec<f32>],
        options: &PreferenceOptions,
        pool: &mut Pool<O>,
    ) -> Result<Vec<f64>, ModelError> {
        let mut ratios = sum_rows(own);
        if options.needs_reference() {
            let reference = sum_rows(&self.under_reference(rows, pool)?);
            ratios.iter_mut().zip(reference).for_each(|(own, reference)| *own -= reference);
        }
        Ok(ratios)
    }

    /// Computes the log-probs of the completions of rows under the model itself.
    pub(super) fn current_logprobs(
        &self,
        model: &Model<O>,
        rows: &[&Row],
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        self.logprobs_under(rows, true, &mut self.pools.lend(), |_, _| {
            Cow::Borrowed(&model.decoder)
        })
    }

    /// Computes the log-probs of the completions of rows, for each row. With `share`, rows share what they begin with. `decoder`
    /// gets packed rows and their numbers in `rows`.
    pub(super) fn logprobs_under<'m>(
        &self,
        rows: &[&Row],
        share: bool,
        pool: &mut Pool<O>,
        decoder: impl Fn(&PackedRows, &[usize]) -> Cow<'m, Decoder<O>>,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let pass = pass_of_rows(rows, share);
        pass.lists(&self.peers, self.micro_batch_tokens, |packed, rows| {
            packed.logprobs(&decoder(packed, rows), pool)
        })
    }
}

/// Returns true if the sampler's mismatch of a row is corrected.
fn is_corrected(row: &Row) -> bool {
    row.loss.is_corrected() && !row.logprobs.is_empty()
}

/// Returns the sum of the log-probs of each row.
fn sum_rows(lists: &[Vec<f32>]) -> Vec<f64> {
    lists.iter().map(|list| list.iter().map(|&logp| f64::from(logp)).sum()).collect()
}
