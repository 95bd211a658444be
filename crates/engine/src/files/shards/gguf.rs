//! Tensors of a GGUF file by the names and shapes of transformers.

use std::collections::BTreeMap;

use super::index::{Form, Stored};
use super::{Bytes, Shards};
use crate::files::gguf::write::Change;
use crate::files::gguf::{GgufFile, LONG_ROPE, ROPE_FREQS, TensorPlace};

/// Most experts of a layer.
const MOST_EXPERTS: usize = 512;

impl Shards {
    /// Returns the tensors of a file. The tensor of all experts of a layer is one for each. What belongs to the configuration is
    /// left out, and a tensor that the architecture does not have keeps its name.
    pub(crate) fn of_gguf(file: &GgufFile) -> Self {
        let mut tensors = BTreeMap::new();
        for (name, place) in file.tensors() {
            if name == ROPE_FREQS || LONG_ROPE.contains(&name.as_str()) {
                continue;
            }
            let change = change(file, name);
            let known = file.architecture.name_in_directory(name);
            let known = known.unwrap_or_else(|| name.clone());
            match known.split_once('*') {
                Some((before, after)) if place.dims.first().is_some_and(|n| *n <= MOST_EXPERTS) => {
                    tensors.extend(
                        experts(place, change)
                            .map(|(expert, stored)| (format!("{before}{expert}{after}"), stored)),
                    );
                }
                _ => {
                    let (span, shape) = (place.span.clone(), place.dims.clone());
                    let form = Form::Gguf(place.kind, change);
                    tensors.insert(known, Stored { file: 0, span, form, shape });
                }
            }
        }
        Self { files: vec![Bytes::Shared(file.bytes())], tensors }
    }
}

/// Iterates over the tensors of the experts of a layer.
fn experts(place: &TensorPlace, change: Change) -> impl Iterator<Item = (usize, Stored)> {
    let count = place.dims[0];
    let bytes = place.span.len() / count;
    (0..count).map(move |expert| {
        let start = place.span.start + expert * bytes;
        let (span, shape) = (start..start + bytes, place.dims[1..].to_vec());
        (expert, Stored { file: 0, span, form: Form::Gguf(place.kind, change), shape })
    })
}

/// Returns how numbers of a file differ from those of transformers.
fn change(file: &GgufFile, name: &str) -> Change {
    let part = name.rsplit('.').nth(1).unwrap_or_default();
    let [q, kv] = file.heads();
    match part {
        "attn_q" if file.architecture.paired => Change::Pairs(q),
        "attn_k" if file.architecture.paired => Change::Pairs(kv),
        _ if file.architecture.one_plus && part.ends_with("norm") => Change::PlusOne,
        _ => Change::None,
    }
}
