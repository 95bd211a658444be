//! Operations on a policy in its worker group.

use std::path::Path;

use crate::files::ModelError;
use crate::files::save::TensorWriter;
use crate::runtime::generator::Published;
use crate::runtime::packed::Support;
use crate::runtime::snapshots::Placing;
use crate::runtime::{
    Batch, Row, RuntimeError, SavedMoments, TopTokens, UpdateStats, ValueBatch, ValueStats,
    ValueText,
};

/// A policy in its worker, on any device.
pub(crate) type PolicyOperations = dyn Operations;

/// Operations on a policy in its worker. Those of a critic return `None` if there is none.
pub(crate) trait Operations {
    /// Updates the weights; together with a critic on the same trunk, if there is a batch for it.
    fn update(
        &mut self,
        batch: &Batch,
        values: Option<&ValueBatch>,
    ) -> Result<(UpdateStats, Option<ValueStats>), RuntimeError>;

    /// Makes the current weights the reference, if one is kept.
    fn renew_reference(&mut self) -> Result<(), RuntimeError>;

    /// Moves the reference towards the current weights, if one is kept.
    fn mix_reference(&mut self, share: f64) -> Result<(), RuntimeError>;

    /// Computes the log-probs of the rows' completions under the reference.
    fn reference(&self, rows: &[Row]) -> Result<Vec<Vec<f32>>, RuntimeError>;

    /// Computes the current log-probs of the rows' completions.
    fn logprobs(&self, rows: &[Row]) -> Result<Vec<Vec<f32>>, RuntimeError>;

    /// Computes the log-probs of the tokens of a support in the place of each completion token of rows.
    fn top_tokens(&self, rows: &[Row], support: Support) -> Result<Vec<TopTokens>, RuntimeError>;

    /// Computes the log-probs of the tokens of a support under the reference.
    fn reference_top_tokens(
        &self,
        rows: &[Row],
        support: Support,
    ) -> Result<Vec<TopTokens>, RuntimeError>;

    /// Computes the critic's values of texts.
    fn values(&self, texts: &[ValueText]) -> Option<Result<Vec<Vec<f32>>, RuntimeError>>;

    /// Computes the states of texts by the critic's trunk.
    fn states(&self, texts: &[ValueText]) -> Option<Result<Vec<Vec<f32>>, RuntimeError>>;

    /// Updates a critic with a trunk of its own.
    fn update_critic(&mut self, batch: &ValueBatch) -> Option<Result<ValueStats, RuntimeError>>;

    /// Writes policy and critic into a directory, tensors by a writer.
    fn save(
        &self,
        dir: &Path,
        moments: SavedMoments,
        writer: &mut TensorWriter,
    ) -> Result<(), ModelError>;

    /// Sends the moments of this rank to rank 0, which saves policy and critic.
    fn share(&self) -> Result<(), ModelError>;

    /// Writes weights of the policy alone into a directory.
    fn publish(&self, dir: &Path, weights: Published) -> Result<(), ModelError>;

    /// Copies the weights of the policy into a place; `None` if the worker group has no places.
    fn snapshot(&mut self, place: usize) -> Result<Option<Placing>, ModelError>;

    /// Returns the number of updates.
    fn version(&self) -> u64;

    /// Restores policy and critic from a directory.
    fn load(&mut self, dir: &Path) -> Result<(), ModelError>;

    /// Computes the SHA-256 over all weights of the policy.
    fn fingerprint(&self) -> Result<String, ModelError>;
}
