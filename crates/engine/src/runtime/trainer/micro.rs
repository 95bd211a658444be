//! Losses of the rows of a micro-batch.

use std::borrow::Cow;
use std::ops::Range;

use super::totals::Totals;
use super::weights::TokenFactors;
use crate::loss::{self, PolicyLoss, RowTokens, teacher_divergence};
use crate::net::RoutedTokens;
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
    divergences: Vec<f32>,
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

    /// Sets the derivative of the loss that balances the load of experts, if there is one.
    pub(super) fn with_slopes(self, slopes: Option<&'a [f32]>) -> Self {
        Self { slopes, ..self }
    }
}

/// Returns the numbers of ranges, one after the other; none of an empty list.
fn at_ranges(all: &[f32], ranges: &[Range<usize>]) -> Vec<f32> {
    ranges.iter().filter_map(|range| all.get(range.clone())).flatten().copied().collect()
}

impl Micro<'_> {
    /// Returns the tokens for the routers of experts, if the model has some: `counts` are the rows with each token.
    pub(super) fn routed_tokens<'t>(
        &'t self,
        counts: Option<&'t [f32]>,
    ) -> Option<RoutedTokens<'t>> {
        let (slopes, routes) = (self.slopes, self.packed.routes());
        counts.map(|counts| RoutedTokens { counts, slopes, routes })
    }

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
            let sampled = of_sampled(logp, each);
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

    /// Computes the loss of a row, and of its divergence from a teacher if it has one. Adds the derivatives by the log-probs of all
    /// tokens of each place, `[T, each]`, and by the entropies. `all` are the row's tokens in the micro-batch.
    fn loss_with_teacher(
        &self,
        batch: &Batch,
        (row, all): (&Row, Range<usize>),
        tokens: &RowTokens<'_>,
        logp: &[f32],
        [d_logp, d_entropy]: [&mut [f32]; 2],
    ) -> PolicyLoss {
        let each = logp.len() / all.len();
        let mut own = vec![0.0; all.len()];
        let mut sums = row_loss(batch, row, tokens, [&mut own, d_entropy]);
        for (place, own) in d_logp.chunks_exact_mut(each).zip(own) {
            place[0] += own;
        }
        let Some(teacher) = &row.teacher else { return sums };
        let k = teacher.ids.len() / all.len();
        let mut slopes = vec![0.0; k];
        let places = logp.chunks_exact(each).zip(d_logp.chunks_exact_mut(each));
        let of_teacher = teacher.logprobs.chunks_exact(k).zip(&self.divergences[all]);
        for ((logp, d_logp), (teacher, &weight)) in places.zip(of_teacher) {
            let found = teacher_divergence(&batch.distill, &logp[1..=k], teacher, &mut slopes);
            sums.loss += f64::from(weight) * found.value;
            sums.divergence += found.value;
            sums.mass += found.mass;
            sums.taught += 1;
            for (d_logp, slope) in d_logp[1..].iter_mut().zip(&slopes) {
                *d_logp += (f64::from(weight) * slope) as f32;
            }
        }
        sums
    }
}

/// Returns the log-probs of the completion tokens, `[T]`, from those of `each` tokens a place, `[T, each]`.
fn of_sampled(logp: &[f32], each: usize) -> Cow<'_, [f32]> {
    if each == 1 { logp.into() } else { logp.iter().step_by(each).copied().collect() }
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
