//! Quantities of each completion token of an update.
//!
//! A new quantity is a column here and its recording in `runtime/trainer.rs`. In `maverl`, `train/record.rs` names it
//! in the record of a step, and `view/web/page_tokens.js` draws it.

use super::{Batch, Objective, Row};
use crate::files::ModelError;
use crate::loss::RowTokens;
use crate::runtime::peers::{self, Peers, lost_rank};

/// Quantities of the completion tokens of a batch: a list for each row, `[T]` each. An unknown quantity is NaN.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct TokenColumns {
    /// Entropy in nats at the first optimizer step of the row.
    pub entropy: Vec<Vec<f32>>,
    /// Log-prob of the trainer minus that of the reference at the same step; known where a KL is in the loss.
    pub reference: Vec<Vec<f32>>,
    /// Log-ratio in the loss at the last optimizer step of the row, before that step.
    pub moved: Vec<Vec<f32>>,
    /// Log-prob of the trainer before the update minus that of the sampler, whose weights may be older; known for rows of the
    /// first optimizer step, and for corrected rows.
    pub mismatch: Vec<Vec<f32>>,
}

/// Recorder of [`TokenColumns`] in the course of an update.
pub(super) struct ColumnRecorder {
    columns: TokenColumns,
    /// Index of the minibatch in its epoch.
    part: usize,
    /// Number of minibatches of an epoch.
    minibatches: usize,
    /// True for each row that was in an optimizer step.
    seen: Vec<bool>,
}

impl ColumnRecorder {
    /// Returns a recorder; `None` if the batch asks for none, or has no policy gradient.
    pub(super) fn new(batch: &Batch) -> Option<Self> {
        let records = batch.record_tokens && batch.objective == Objective::PolicyGradient;
        records.then(|| {
            let rows = batch.rows.iter().filter(|row| row.observation.is_none());
            let lengths = rows.map(|row| row.completion.len());
            let unknown: Vec<Vec<f32>> = lengths.map(|length| vec![f32::NAN; length]).collect();
            let seen = vec![false; unknown.len()];
            let columns = TokenColumns {
                entropy: unknown.clone(),
                reference: unknown.clone(),
                moved: unknown.clone(),
                mismatch: unknown,
            };
            Self { columns, part: 0, minibatches: batch.minibatches, seen }
        })
    }

    /// Begins a minibatch: the rows `part`, `part + minibatches`, and so on.
    pub(super) fn begin(&mut self, part: usize) {
        self.part = part;
    }

    /// Records the mismatch of a corrected row of the batch.
    pub(super) fn record_correction(&mut self, row: usize, trainer: &[f32], sampler: &[f32]) {
        self.columns.mismatch[row] = differences(trainer, sampler);
    }

    /// Records a row of the minibatch. `is_first` is true in the first optimizer step of an update without corrections,
    /// when the trainer has the weights before the update.
    pub(super) fn add(&mut self, row: usize, of: &Row, tokens: &RowTokens<'_>, is_first: bool) {
        let row = self.part + row * self.minibatches;
        if !std::mem::replace(&mut self.seen[row], true) {
            self.columns.entropy[row] = tokens.entropy.to_vec();
            if let Some(reference) = tokens.reference.filter(|_| of.loss.kl_coef != 0.0) {
                self.columns.reference[row] = differences(tokens.logp, reference);
            }
        }
        self.columns.moved[row] = differences(tokens.logp, tokens.old);
        if is_first {
            self.columns.mismatch[row].clone_from(&self.columns.moved[row]);
        }
    }

    /// Adds the rows of the other ranks. Every row was in the optimizer steps of one rank.
    pub(super) fn gather(&mut self, peers: &Peers) -> Result<(), ModelError> {
        let Some(channel) = peers.channel() else { return Ok(()) };
        let TokenColumns { entropy, reference, moved, mismatch } = &mut self.columns;
        let columns = [entropy, reference, moved, mismatch];
        let lists: Vec<Vec<f32>> = (0..self.seen.len())
            .flat_map(|row| columns.iter().map(move |column| (row, &column[row])))
            .map(|(row, list)| if self.seen[row] { list.clone() } else { Vec::new() })
            .collect();
        let all = channel.all_gather(&peers::encode(&lists)).map_err(lost_rank)?;
        for bytes in &all {
            for (place, list) in peers::decode(bytes).into_iter().enumerate() {
                let (row, column) = (place / columns.len(), place % columns.len());
                let unseen = self.seen.get(row).is_some_and(|seen| !seen);
                if unseen && !list.is_empty() {
                    columns[column][row] = list;
                }
            }
        }
        Ok(())
    }

    /// Returns the columns.
    pub(super) fn finish(self) -> TokenColumns {
        self.columns
    }
}

fn differences(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}
