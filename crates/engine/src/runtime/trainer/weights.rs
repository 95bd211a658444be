//! Weights of tokens in the losses and means of an update.

use crate::loss::{self, Aggregation, LossUnit};
use crate::runtime::{Batch, Objective, Row};

/// Returns the number of tokens of a row that are not trained on.
fn masked_tokens(batch: &Batch, row: &Row) -> usize {
    match batch.objective {
        _ if row.skipped => row.completion.len(),
        Objective::Supervised => row.weights.iter().filter(|&&weight| weight == 0.0).count(),
        Objective::PolicyGradient | Objective::Preference(_) => 0,
    }
}

/// Returns the weight of each token, row after row: the aggregation over all rows that are trained on, times the rows' own weights.
pub(super) fn token_weights(batch: &Batch, rows: &[&Row]) -> Vec<f32> {
    let trained = rows.iter().filter(|row| !row.skipped);
    let lengths: Vec<usize> = trained.map(|row| row.completion.len()).collect();
    let by_token = loss::token_weights(&lengths, batch.aggregation, batch.longest);
    let by_reply = loss::token_weights(&lengths, Aggregation::SequenceMean, batch.longest);
    let (mut weights, mut at) = (Vec::new(), 0);
    for row in rows {
        let (first, n) = (weights.len(), row.completion.len());
        if row.skipped {
            weights.resize(first + n, 0.0);
            continue;
        }
        let all = match batch.surrogate_of(row).unit() {
            LossUnit::Token => &by_token,
            LossUnit::Reply => &by_reply,
        };
        weights.extend_from_slice(&all[at..at + n]);
        weights[first..].iter_mut().zip(&row.weights).for_each(|(weight, by)| *weight *= by);
        at += n;
    }
    weights
}

/// Returns the weight of a token in the means of a pass over a batch, whatever `aggregation` and `minibatches` are: that of a
/// mean over all tokens, or in supervised training over those with a weight. It is rounded as the weights of the loss are.
pub(super) fn token_share(batch: &Batch) -> f64 {
    let tokens: usize =
        batch.rows.iter().map(|row| row.completion.len() - masked_tokens(batch, row)).sum();
    f64::from((1.0 / tokens.max(1) as f64) as f32)
}
