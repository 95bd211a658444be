//! Layers of a model.

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

/// Returns the number of values of tensors.
pub(super) fn numbers(tensors: impl IntoIterator<Item = (String, Vec<usize>)>) -> u64 {
    tensors.into_iter().map(|(_, dims)| dims.iter().map(|&n| n as u64).product::<u64>()).sum()
}
