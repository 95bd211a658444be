//! Parts of a checkpoint that policies and critics have in common.

use std::path::Path;

use crate::files::ModelError;
use crate::net::Model;
use crate::net::ops::Backend;

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
