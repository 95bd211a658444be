//! Configurations that contain that of a decoder, and names of tensors in their checkpoints.

use serde_json::{Map, Value};

use super::families::NESTED;

/// Names of a decoder's tensors in a checkpoint, and of its modules in adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorNames {
    /// Prefix of all names but the head's.
    prefix: &'static str,
    /// Name of the output head's weight.
    pub(crate) head: &'static str,
    /// Prefix of the names of modules in adapters, in place of `prefix`.
    modules: &'static str,
}

/// Names of a model without vision.
pub(super) const OWN: TensorNames =
    TensorNames { prefix: "model.", head: "lm_head.weight", modules: "model." };

/// Names of the decoder of a model with vision: those of the hub and of transformers 5, and those of transformers 4.52 to 4.57.
pub(crate) const WITHIN: [TensorNames; 2] = [
    TensorNames {
        prefix: "language_model.model.",
        head: "language_model.lm_head.weight",
        modules: "model.language_model.",
    },
    TensorNames {
        prefix: "model.language_model.",
        head: "lm_head.weight",
        modules: "model.language_model.",
    },
];

/// Returns the names that a decoder of a family usually has within a larger model. A checkpoint may have others of [`WITHIN`].
pub(super) fn usual_names(family: &str) -> TensorNames {
    let [first, second] = WITHIN;
    if family.starts_with("qwen3_5") { second } else { first }
}

/// Starts of the names of tensors that a decoder does not read: those of vision, and of the prediction of several tokens.
pub(super) const SKIPPED: &[&str] = &[
    "model.visual.",
    "visual.",
    "vision_tower.",
    "model.vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "mtp.",
];

impl TensorNames {
    /// Returns the name of the embedding's weight.
    pub(crate) fn embedding(self) -> String {
        format!("{}embed_tokens.weight", self.prefix)
    }

    /// Returns the name of what has a name within a layer.
    pub(crate) fn in_layer(self, layer: usize, name: &str) -> String {
        format!("{}layers.{layer}.{name}", self.prefix)
    }

    /// Returns the name of what has a name beside the layers.
    pub(crate) fn beside_layers(self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns the name that adapters have for a module of a layer.
    pub(crate) fn module(self, layer: usize, name: &str) -> String {
        format!("{}layers.{layer}.{name}", self.modules)
    }

    /// Returns the name of a module's weight, from its name in adapters.
    pub(crate) fn weight_of_module(self, module: &str) -> String {
        let within = module.strip_prefix(self.modules).unwrap_or(module);
        format!("{}{within}.weight", self.prefix)
    }
}

/// Returns the configuration of a decoder within `text_config`, with the keys that count outside of it; `None` if there is no
/// such key. The outer `tie_word_embeddings` counts, and the inner `model_type` may be missing.
pub(super) fn text_config(outer: &Map<String, Value>) -> Option<Map<String, Value>> {
    let mut inner = outer.get("text_config")?.as_object()?.clone();
    let kind = outer.get("model_type").and_then(Value::as_str);
    let Some((_, text, tied)) = NESTED.into_iter().find(|(name, ..)| Some(*name) == kind) else {
        // Refused under its own name.
        inner.insert("model_type".to_owned(), outer.get("model_type").cloned().unwrap_or_default());
        return Some(inner);
    };
    inner.entry("model_type").or_insert_with(|| text.into());
    let tied = outer.get("tie_word_embeddings").cloned().unwrap_or(tied.into());
    inner.insert("tie_word_embeddings".to_owned(), tied);
    for key in ["architectures", "quantization_config", "compression_config"] {
        if let Some(value) = outer.get(key) {
            inner.insert(key.to_owned(), value.clone());
        }
    }
    Some(inner)
}
