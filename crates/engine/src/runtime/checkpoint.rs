//! Parts of a checkpoint that policies and critics have in common, and copies of policies that are written later.

use std::path::Path;
use std::sync::Arc;

use crate::files::ModelError;
use crate::files::save::CopiedFile;
use crate::net::Model;
use crate::net::ops::Backend;
use crate::runtime::RuntimeError;

/// Copy of the weights and moments of a policy in the memory of this process, from which their files are written while the
/// policy is updated.
#[derive(Debug)]
#[must_use = "its files are not written yet"]
pub struct PolicyCopy {
    /// Name of the worker group of the policy.
    pub(super) worker: Arc<str>,
    pub(super) files: Vec<CopiedFile>,
}

impl PolicyCopy {
    /// Returns the bytes of the copy.
    pub fn byte_count(&self) -> u64 {
        self.files.iter().map(|file| file.byte_count() as u64).sum()
    }

    /// Writes the files, and frees the copy of each when it is written. This may be done on any thread.
    ///
    /// # Errors
    ///
    /// See [`RuntimeError`].
    pub fn write(self) -> Result<(), RuntimeError> {
        let written = self.files.into_iter().try_for_each(CopiedFile::write);
        written.map_err(|source| source.in_worker(&*self.worker))
    }
}

/// Restores the trainable weights of a model from a directory that was saved.
pub(super) fn restore<O: Backend>(model: &Model<O>, dir: &Path) -> Result<(), ModelError> {
    let ops = model.decoder.ops();
    let host = ops.host(model)?;
    host.restore(dir)?;
    ops.store(&host, model)
}

/// Encodes two counters as four f32, which hold 24 bits each exactly.
pub(super) fn halves(a: u64, b: u64) -> Vec<f32> {
    [a >> 24, a & 0xff_ffff, b >> 24, b & 0xff_ffff].iter().map(|&half| half as f32).collect()
}

/// Decodes the counters of [`halves`].
pub(super) fn whole_counters(halves: &[f32]) -> (u64, u64) {
    let mut parts = [0; 4];
    parts.iter_mut().zip(halves).for_each(|(part, &half)| *part = half as u64);
    (parts[0] << 24 | parts[1], parts[2] << 24 | parts[3])
}
