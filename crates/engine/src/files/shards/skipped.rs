//! Tensors of a checkpoint that a decoder does not read, and that a saved model has unchanged.

use super::Shards;
use crate::files::save::SavedTensor;
use crate::files::{HfConfig, ModelError, ModelFiles};

/// Tensors that are not read: those of vision in a model whose decoder is.
#[derive(Default)]
pub(crate) struct SkippedTensors {
    /// Files, if there are such tensors.
    shards: Option<Shards>,
    /// Names and shapes.
    tensors: Vec<(String, Vec<usize>)>,
}

impl SkippedTensors {
    /// Opens the tensors of a checkpoint that matches the configuration.
    ///
    /// # Errors
    ///
    /// See [`Shards::open`].
    pub(crate) fn open(files: &ModelFiles, config: &HfConfig) -> Result<Self, ModelError> {
        if config.skipped.is_empty() {
            return Ok(Self::default());
        }
        let shards = Shards::open(files)?;
        let tensors = shards.skipped(config);
        Ok(Self { shards: Some(shards), tensors })
    }

    /// Returns the tensors, to be written.
    pub(crate) fn entries(&self) -> Vec<SavedTensor<'_>> {
        let Some(shards) = &self.shards else { return Vec::new() };
        let entries = self.tensors.iter().map(|(name, shape)| {
            let values = || shards.values(name).expect("a tensor whose type was checked");
            SavedTensor::computed(name, shape, values)
        });
        entries.collect()
    }
}
