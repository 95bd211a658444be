//! Weights of tokens in the losses and means of an update.

use crate::loss::{self, Aggregation, LossUnit, TokenUse};
use crate::runtime::{Batch, Objective, Row};

/// Factors of each token of a minibatch in the loss, packed.
pub(super) struct TokenFactors {
    /// Weights, `[N]`.
    pub(super) weights: Vec<f32>,
    /// Coefficients of the penalty, `[N]`; empty if no token has one.
    pub(super) penalties: Vec<f32>,
    /// Weights of the divergence from teachers, `[N]`; empty if no row has a teacher.
    pub(super) divergences: Vec<f32>,
}

impl TokenFactors {
    /// Returns factors of which only the weights are not empty.
    pub(super) fn of_weights(weights: Vec<f32>) -> Self {
        Self { weights, penalties: Vec::new(), divergences: Vec::new() }
    }
}

/// Sums over the tokens that selections chose from.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SelectionSums {
    /// Number of tokens.
    tokens: u64,
    /// Number of tokens that are trained on without a penalty.
    kept: u64,
    /// Sum of the covariances, if they are computed.
    covariance: Option<f64>,
}

impl SelectionSums {
    /// Adds the tokens of a minibatch, with their covariances if these are computed.
    pub(super) fn add(&mut self, uses: &[TokenUse], covariances: Option<Vec<f64>>) {
        self.tokens += uses.len() as u64;
        self.kept += uses.iter().filter(|used| **used == TokenUse::Keep).count() as u64;
        if let Some(covariances) = covariances {
            let sum: f64 = covariances.iter().sum();
            self.covariance = Some(self.covariance.unwrap_or(0.0) + sum);
        }
    }

    /// Returns the share of the tokens that are trained on without a penalty.
    pub(super) fn kept_share(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.kept as f64 / self.tokens as f64)
    }

    /// Returns the mean covariance of the tokens.
    pub(super) fn mean_covariance(&self) -> Option<f64> {
        self.covariance.map(|sum| sum / self.tokens.max(1) as f64)
    }
}

/// Returns the number of tokens of a row that are not trained on.
fn masked_tokens(batch: &Batch, row: &Row) -> usize {
    match batch.objective {
        _ if row.skipped => row.completion.len(),
        Objective::Supervised => row.weights.iter().filter(|&&weight| weight == 0.0).count(),
        Objective::PolicyGradient | Objective::Preference(_) => 0,
    }
}

/// Returns the weight of each token, row after row: the aggregation over all tokens that are trained on, times the rows' own
/// weights. `uses` has the use of each token; it is empty if all are kept.
pub(super) fn token_weights(batch: &Batch, rows: &[&Row], uses: &[TokenUse]) -> Vec<f32> {
    let kept = kept_tokens(rows, uses);
    let lengths: Vec<usize> = kept.iter().copied().filter(|&tokens| tokens > 0).collect();
    let by_token = loss::token_weights(&lengths, batch.aggregation, batch.longest);
    let by_reply = loss::token_weights(&lengths, Aggregation::SequenceMean, batch.longest);
    let (mut weights, mut at) = (Vec::new(), 0);
    for (row, &kept) in rows.iter().zip(&kept) {
        let (first, n) = (weights.len(), row.completion.len());
        if kept == 0 {
            weights.resize(first + n, 0.0);
            continue;
        }
        let all = match batch.surrogate_of(row).unit() {
            LossUnit::Token => &by_token,
            LossUnit::Reply => &by_reply,
        };
        // The tokens of a row have equal weights.
        weights.resize(first + n, all[at]);
        weights[first..].iter_mut().zip(&row.weights).for_each(|(weight, by)| *weight *= by);
        at += kept;
    }
    let dropped = weights.iter_mut().zip(uses).filter(|(_, used)| **used == TokenUse::Drop);
    dropped.for_each(|(weight, _)| *weight = 0.0);
    weights
}

/// Sets the weights of the tokens of observations: their coefficient over the number of tokens of all observations of the
/// minibatch, whatever the aggregation of the other rows is.
pub(super) fn weigh_observations(rows: &[&Row], weights: &mut [f32]) {
    let observed = rows.iter().filter(|row| row.observation.is_some());
    let tokens: usize = observed.map(|row| row.completion.len()).sum();
    let mut at = 0;
    for row in rows {
        let own = at..at + row.completion.len();
        at = own.end;
        if let Some(of) = row.observation {
            weights[own].fill((f64::from(of.coef) / tokens as f64) as f32);
        }
    }
}

/// Returns the weight of the divergence of each token, row after row: the aggregation over the rows with a teacher that are trained
/// on, times their coefficient. Without such rows, the list is empty.
pub(super) fn divergence_weights(batch: &Batch, rows: &[&Row]) -> Vec<f32> {
    let taught = |row: &Row| row.teacher.as_ref().filter(|_| !row.skipped).map(|of| of.coef);
    let coefs: Vec<Option<f32>> = rows.iter().map(|row| taught(row)).collect();
    let with_teacher = rows.iter().zip(&coefs).filter(|(_, coef)| coef.is_some());
    let lengths: Vec<usize> = with_teacher.map(|(row, _)| row.completion.len()).collect();
    if lengths.is_empty() {
        return Vec::new();
    }
    let mut all = loss::token_weights(&lengths, batch.aggregation, batch.longest).into_iter();
    let mut weights = Vec::new();
    for (row, coef) in rows.iter().zip(coefs) {
        let n = row.completion.len();
        match coef {
            Some(coef) => weights.extend(all.by_ref().take(n).map(|weight| weight * coef)),
            None => weights.resize(weights.len() + n, 0.0),
        }
    }
    weights
}

/// Returns the number of tokens of each row that are trained on.
fn kept_tokens(rows: &[&Row], uses: &[TokenUse]) -> Vec<usize> {
    let mut at = 0;
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        let n = row.completion.len();
        let own = uses.get(at..at + n).unwrap_or_default();
        let dropped = own.iter().filter(|used| **used == TokenUse::Drop).count();
        kept.push(if row.skipped { 0 } else { n - dropped });
        at += n;
    }
    kept
}

/// Returns the weight of a token in the means of a pass over a batch, whatever `aggregation` and `minibatches` are: that of a
/// mean over all tokens, or in supervised training over those with a weight. It is rounded as the weights of the loss are.
pub(super) fn token_share(batch: &Batch) -> f64 {
    let tokens: usize =
        batch.rows.iter().map(|row| row.completion.len() - masked_tokens(batch, row)).sum();
    f64::from((1.0 / tokens.max(1) as f64) as f32)
}
