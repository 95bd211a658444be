//! Losses of the rows of a micro-batch.

use std::ops::Range;

use super::divergence;
use super::totals::Totals;
use super::weights::TokenFactors;
use crate::loss::{self, PolicyLoss, RowTokens};
use crate::runtime::packed::PackedRows;
use crate::runtime::{Batch, Objective, Row};

/// Rows of one micro-batch.
pub(super) struct Micro<'a> {
    pub(super) rows: Vec<&'a Row>,
    /// Number of each row in the minibatch.
    pub(super) indices: &'a [usize],
    /// Weight of each completion token in the loss.
    weights: Vec<f32>,
    /// Coefficient of the penalty of each completion token; empty if none has one.
    penalties: Vec<f32>,
    /// Weight of the divergence of each completion token; empty if no row has a teacher.
    pub(super) divergences: Vec<f32>,
    /// Weight of a completion token in means.
    share: f64,
    /// Derivative of the loss that balances the load of experts, if there is one.
    pub(super) slopes: Option<&'a [f32]>,
    pub(super) packed: PackedRows,
}

impl<'a> Micro<'a> {
    /// Selects rows of a minibatch by their numbers. `factors` are those of the tokens of all its rows, one after the other.
    pub(super) fn new(
        packed: PackedRows,
        (rows, factors): (&[&'a Row], &TokenFactors),
        indices: &'a [usize],
        share: f64,
    ) -> Self {
        let ends = rows.iter().scan(0, |end, row| {
            *end += row.completion.len();
            Some(*end)
        });
        let ends: Vec<usize> = ends.collect();
        let own = indices.iter().map(|&row| ends[row] - rows[row].completion.len()..ends[row]);
        let own: Vec<Range<usize>> = own.collect();
        let TokenFactors { weights, penalties, divergences } = factors;
        let [weights, penalties, divergences] =
            [weights, penalties, divergences].map(|all| at_ranges(all, &own));
        let rows = indices.iter().map(|&row| rows[row]).collect();
        Self { rows, indices, weights, penalties, divergences, share, slopes: None, packed }
    }
}

/// Returns the numbers of ranges, one after the other; none of an empty list.
fn at_ranges(all: &[f32], ranges: &[Range<usize>]) -> Vec<f32> {
    ranges.iter().filter_map(|range| all.get(range.clone())).flatten().copied().collect()
}

impl Micro<'_> {
    /// Computes the losses of some rows, and their derivatives by the log-probs and entropies of the rows' completion
    /// tokens. With teachers, log-probs and their derivatives are of `each` tokens a place, the completion token first.
    pub(super) fn loss(
        &self,
        batch: &Batch,
        rows: Range<usize>,
        [logp, entropy]: [&[f32]; 2],
        reference: Option<&[f32]>,
        [d_logp, d_entropy]: [&mut [f32]; 2],
        totals: &mut Totals,
    ) {
        let completions = &self.packed.completions;
        let (start, each) = (completions[rows.start], self.packed.predicted().each());
        for index in rows {
            let all = completions[index]..completions[index + 1];
            let here = all.start - start..all.end - start;
            let of_row = here.start * each..here.end * each;
            let (row, logp): (&Row, _) = (self.rows[index], &logp[of_row.clone()]);
            let sampled = divergence::of_sampled(logp, each);
            let tokens = RowTokens {
                logp: &sampled,
                entropy: &entropy[here.clone()],
                old: &row.logprobs,
                sampler: (!row.sampler.is_empty()).then_some(row.sampler.as_slice()),
                reference: reference.map(|reference| &reference[all.clone()]),
                weights: &self.weights[all.clone()],
                penalties: self.penalties.get(all.clone()),
                share: self.share,
            };
            let (d_logp, d_entropy) = (&mut d_logp[of_row], &mut d_entropy[here]);
            let first = totals.steps == 0 && totals.mean_weight.is_none();
            if first && batch.objective == Objective::PolicyGradient {
                totals.mismatch(tokens.logp, tokens.old);
            }
            if let Some(recorder) = totals.recorder.as_mut().filter(|_| row.observation.is_none()) {
                recorder.add(self.indices[index], row, &tokens, first);
            }
            if let Some(logprobs) = &mut totals.logprobs {
                logprobs[self.indices[index]] = tokens.logp.to_vec();
            }
            if row.skipped && row.observation.is_none() {
                continue;
            }
            totals.policy += if each == 1 {
                row_loss(batch, row, &tokens, [d_logp, d_entropy])
            } else {
                self.loss_with_teacher(batch, (row, all), &tokens, logp, [d_logp, d_entropy])
            };
        }
    }
}

/// Computes the loss of a row, and adds its derivatives by the log-probs and entropies of its tokens.
pub(super) fn row_loss(
    batch: &Batch,
    row: &Row,
    tokens: &RowTokens<'_>,
    [d_logp, d_entropy]: [&mut [f32]; 2],
) -> PolicyLoss {
    if row.observation.is_some() {
        return loss::observation(tokens, d_logp);
    }
    match batch.objective {
        Objective::Supervised => loss::log_likelihood(tokens, d_logp),
        Objective::Preference(_) => loss::linear(tokens, d_logp),
        Objective::PolicyGradient => {
            let options = (&row.loss, batch.surrogate_of(row));
            loss::policy_gradient(tokens, &row.advantages, options, [d_logp, d_entropy])
        }
    }
}
