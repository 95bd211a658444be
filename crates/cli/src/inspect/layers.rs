//! Layers of a model, and tensors that its decoder does not read.

use maverl::files::HfConfig;
use safetensors::tensor::Metadata;
use serde::Serialize;

/// Layers that are equal.
#[derive(Debug, Serialize)]
pub(super) struct LayerKind {
    /// Indices of the layers.
    layers: Vec<usize>,
    /// Parts of each.
    parts: String,
}

impl LayerKind {
    pub(super) fn new((layers, parts): (Vec<usize>, String)) -> Self {
        Self { layers, parts }
    }

    pub(super) fn text(&self) -> String {
        format!("{} x {}", self.layers.len(), self.parts)
    }
}

/// Returns the number of values that a model's decoder does not read.
pub(super) fn skipped_tensors(config: &HfConfig, headers: &[Metadata]) -> u64 {
    let tensors = headers.iter().flat_map(|header| header.tensors());
    let skipped = tensors.filter(|(name, _)| config.skips(name));
    numbers(skipped.map(|(name, info)| (name, info.shape.clone())))
}

/// Returns the number of values of tensors.
pub(super) fn numbers(tensors: impl IntoIterator<Item = (String, Vec<usize>)>) -> u64 {
    tensors.into_iter().map(|(_, dims)| dims.iter().map(|&n| n as u64).product::<u64>()).sum()
}
