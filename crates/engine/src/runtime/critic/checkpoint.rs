//! State of a critic in a checkpoint: trunk, head, scales, moments and counters.

use std::path::{Path, PathBuf};

use super::Critic;
use crate::files::save::{SavedTensor, TensorWriter};
use crate::files::{ModelError, Shards};
use crate::net::ops::Backend;
use crate::runtime::SavedMoments;
use crate::runtime::checkpoint::{halves, restore, whole_counters};
use crate::runtime::loss_scale::{LossScale, SCALE};

impl<O: Backend> Critic<O> {
    /// Writes trunk, head, scale and moments into `dir/critic`.
    pub(crate) fn save(
        &self,
        dir: &Path,
        moments: SavedMoments,
        writer: &mut TensorWriter,
    ) -> Result<(), ModelError> {
        let dir = place(dir);
        let made = std::fs::create_dir_all(&dir);
        made.map_err(|error| ModelError::cannot_do("make", &dir, error))?;
        if let Some(trunk) = &self.body.trunk {
            self.body.ops.host(trunk)?.save_with(&dir, writer)?;
        }
        self.body.head.save_with(&dir, writer)?;
        let steps = (self.of_trunk.saved_step(moments), self.of_head.saved_step(moments));
        let counters = halves(steps.0, steps.1);
        let loss_scale = self.loss_scale.as_ref().map(LossScale::saved);
        let (trunk, head) = (self.of_trunk.moments(moments)?, self.of_head.moments(moments)?);
        let mut entries = vec![
            SavedTensor::slice("counters", &[4], &counters),
            SavedTensor::slice("scale", &[3], &self.scale.sums),
        ];
        entries.extend(loss_scale.as_ref().map(|scale| SavedTensor::slice(SCALE, &[5], scale)));
        entries.extend(trunk.entries());
        entries.extend(head.entries());
        let written = writer.put(dir.join("optimizer.safetensors"), &entries);
        drop(entries);
        trunk.end(written)
    }

    /// Sends the moments of this rank to rank 0, which saves the critic.
    pub(crate) fn share(&self) -> Result<(), ModelError> {
        self.of_trunk.share()
    }

    /// Restores everything from a directory that [`Critic::save`] wrote into.
    pub(crate) fn load(&mut self, dir: &Path) -> Result<(), ModelError> {
        let dir = place(dir);
        if let Some(trunk) = &self.body.trunk {
            restore(trunk, &dir)?;
        }
        self.body.head.restore(&dir)?;
        let saved = Shards::open_file(&dir.join("optimizer.safetensors"))?;
        let steps = whole_counters(&saved.values("counters")?);
        let sums = saved.values("scale")?;
        for (ours, saved) in self.scale.sums.iter_mut().zip(sums) {
            *ours = saved;
        }
        if let Some(scale) = &mut self.loss_scale {
            scale.restore(&saved.values(SCALE)?);
        }
        self.of_trunk.restore(&saved, steps.0)?;
        self.of_head.restore(&saved, steps.1)
    }
}

/// Returns the directory of the critic in a policy's directory.
fn place(dir: &Path) -> PathBuf {
    dir.join("critic")
}
