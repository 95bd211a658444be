//! State of a trainer in a checkpoint: moments, counters and a renewed reference.

use std::path::Path;

use super::Trainer;
use crate::files::ModelError;
use crate::files::Shards;
use crate::files::save::{SavedTensor, TensorWriter};
use crate::net::Model;
use crate::net::ops::Backend;
use crate::runtime::checkpoint::{halves, restore, whole_counters};
use crate::runtime::loss_scale::{LossScale, SCALE};
use crate::runtime::{RuntimeError, SavedMoments};

/// Directory of a renewed reference in that of its policy.
const REFERENCE: &str = "reference";
/// Name of the number of optimizer steps since training began, in a file whose moments have fewer.
const TAKEN: &str = "steps_taken";

impl<O: Backend> Trainer<O> {
    /// Writes moments and counters into `dir/optimizer.safetensors`.
    pub(crate) fn save(
        &self,
        dir: &Path,
        moments: SavedMoments,
        writer: &mut TensorWriter,
    ) -> Result<(), ModelError> {
        let (step, taken) = (self.optimizer.saved_step(moments), self.optimizer.taken);
        let (counters, of_taken) = (halves(step, self.version), halves(taken, 0));
        let moments = self.optimizer.moments(moments)?;
        let scale = self.scale.as_ref().map(LossScale::saved);
        let mut entries = vec![SavedTensor::slice("counters", &[4], &counters)];
        entries.extend(scale.as_ref().map(|scale| SavedTensor::slice(SCALE, &[5], scale)));
        entries.extend((taken != step).then(|| SavedTensor::slice(TAKEN, &[2], &of_taken[..2])));
        entries.extend(moments.entries());
        let written = writer.put(dir.join("optimizer.safetensors"), &entries);
        drop(entries);
        moments.end(written)?;
        let Some(reference) = self.reference.as_ref().filter(|_| self.renewed) else {
            return Ok(());
        };
        let dir = dir.join(REFERENCE);
        let made = std::fs::create_dir_all(&dir);
        made.map_err(|error| {
            ModelError::io(format!("{} cannot be created: {error}", dir.display()), error)
        })?;
        reference.decoder.ops().host(reference)?.save_with(&dir, writer)
    }

    /// Sends the moments of this rank to rank 0, which saves the trainer.
    pub(crate) fn share(&self) -> Result<(), ModelError> {
        self.optimizer.share()
    }

    /// Makes the current weights the reference, if the policy has one.
    pub(crate) fn renew_reference(&mut self, model: &Model<O>) -> Result<(), RuntimeError> {
        if self.reference.is_some() {
            // The old copy is dropped first, so that memory holds one.
            self.reference = None;
            let copy = model.copy(false).map_err(|error| self.failed_update(&error))?;
            (self.reference, self.renewed) = (Some(copy), true);
        }
        Ok(())
    }

    /// Moves the reference towards the current weights, if the policy has one: TR-DPO, [2404.09656] eq. 6.
    ///
    /// ```text
    /// reference ← (1 − share) · reference + share · policy
    /// ```
    ///
    /// [2404.09656]: https://arxiv.org/abs/2404.09656
    pub(crate) fn mix_reference(
        &mut self,
        model: &Model<O>,
        share: f64,
    ) -> Result<(), RuntimeError> {
        if let Some(reference) = &self.reference {
            mix(reference, model, share).map_err(|error| self.failed_update(&error))?;
            self.renewed = true;
        }
        Ok(())
    }

    /// Restores weights, reference, moments and counters from a directory that was saved.
    pub(crate) fn load(&mut self, model: &Model<O>, dir: &Path) -> Result<(), ModelError> {
        restore(model, dir)?;
        if let Some(sharded) = &self.sharded {
            sharded.take_masters(model)?;
        }
        let saved = dir.join(REFERENCE);
        if let Some(reference) = self.reference.as_ref().filter(|_| saved.is_dir()) {
            restore(reference, &saved)?;
            self.renewed = true;
        }
        let saved = Shards::open_file(&dir.join("optimizer.safetensors"))?;
        let (step, version) = whole_counters(&saved.values("counters")?);
        self.version = version;
        if let Some(scale) = &mut self.scale {
            scale.restore(&saved.values(SCALE)?);
        }
        self.optimizer.restore(&saved, step)?;
        if saved.shape(TAKEN).is_some() {
            self.optimizer.taken = whole_counters(&saved.values(TAKEN)?).0;
        }
        Ok(())
    }
}

/// Moves the trainable weights of a model towards those of another one of the same shape.
fn mix<O: Backend>(model: &Model<O>, other: &Model<O>, share: f64) -> Result<(), ModelError> {
    let ops = model.decoder.ops();
    let (host, other) = (ops.host(model)?, ops.host(other)?);
    host.trainable().mix_in(other.trainable(), share);
    ops.store(&host, model)
}
