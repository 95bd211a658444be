//! Models of known shapes with random weights, for measurements: as large as the real ones, without a download.

use std::borrow::Cow;
use std::path::Path;

use maverl_kernels::sample::derive_seed;
use safetensors::tensor::View;
use serde_json::{Value, json};

use crate::model::create::{Size, drawn, parse, qwen2, write};
use crate::model::save::{Entry, safetensors_file};
use crate::model::{ModelError, StoredDtype, builtin};

/// Sizes by name: that of Qwen2.5-0.5B (494 M parameters), and two that are quick to measure (1.1 M and 26.8 M).
pub const SHAPES: &[(&str, Size)] = &[
    (
        "qwen2.5-0.5b",
        Size {
            vocab_size: 151_936,
            hidden_size: 896,
            num_hidden_layers: 24,
            num_attention_heads: 14,
            num_key_value_heads: 2,
            intermediate_size: 4864,
            max_position_embeddings: 32_768,
        },
    ),
    (
        "bench-s",
        Size {
            vocab_size: 1024,
            hidden_size: 128,
            num_hidden_layers: 4,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            intermediate_size: 512,
            max_position_embeddings: 512,
        },
    ),
    (
        "bench-m",
        Size {
            vocab_size: 8192,
            hidden_size: 512,
            num_hidden_layers: 8,
            num_attention_heads: 8,
            num_key_value_heads: 2,
            intermediate_size: 1408,
            max_position_embeddings: 512,
        },
    ),
];

/// Writes a Qwen2 model directory of a size with random weights and the tokenizer of `builtin:tiny`, one tensor at a
/// time. Returns the number of parameters.
///
/// # Errors
///
/// If a file cannot be written, or the embedding has fewer rows than the tokenizer has tokens.
pub fn blank_model(
    dir: &Path,
    size: Size,
    dtype: StoredDtype,
    seed: u64,
) -> Result<u64, ModelError> {
    let config = configuration(size, dtype);
    let text = format!("{config:#}\n");
    let parsed = parse(&text)?;
    write(dir, "config.json", text)?;
    for name in ["generation_config.json", "tokenizer.json"] {
        write(dir, name, tiny(name))?;
    }
    let mut tokenizer: Value =
        serde_json::from_slice(tiny("tokenizer_config.json")).expect("the built-in files are JSON");
    tokenizer["model_max_length"] = size.max_position_embeddings.into();
    write(dir, "tokenizer_config.json", format!("{tokenizer:#}\n"))?;
    let tensors = parsed.tensors();
    let parameters = tensors.iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum();
    let blanks = tensors.into_iter().zip(1..).map(|((name, shape), index)| {
        (name.clone(), Blank { name, shape, dtype, seed: derive_seed(seed, index) })
    });
    safetensors_file(&dir.join("model.safetensors"), blanks)?;
    Ok(parameters)
}

fn tiny(name: &str) -> &'static [u8] {
    builtin::file("tiny", name).expect("the built-in model has this file")
}

/// Returns the configuration in the format of transformers 5.
fn configuration(size: Size, dtype: StoredDtype) -> Value {
    let positions = json!({ "rope_type": "default", "rope_theta": 1e6 });
    qwen2(size, dtype, "rope_parameters", &positions)
}

/// A tensor whose values are generated when it is written, and not kept.
struct Blank {
    name: String,
    shape: Vec<usize>,
    dtype: StoredDtype,
    seed: u64,
}

impl View for Blank {
    fn dtype(&self) -> safetensors::Dtype {
        View::dtype(&&self.entry(&[]))
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let values = drawn(&self.name, &self.shape, self.seed);
        Cow::Owned(View::data(&&self.entry(&values)).into_owned())
    }

    fn data_len(&self) -> usize {
        View::data_len(&&self.entry(&[]))
    }
}

impl Blank {
    fn entry<'a>(&self, values: &'a [f32]) -> Entry<'a> {
        Entry::slice(self.name.as_str(), &self.shape, values).stored_as(self.dtype)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::model::{HfConfig, Model, ModelFiles, ModelSource, Tokenizer};

    #[test]
    fn a_blank_model_loads_with_as_many_parameters_as_it_says_in_every_type() {
        let dir = tempfile::tempdir().unwrap();
        let size = SHAPES[1].1;
        for dtype in [StoredDtype::F32, StoredDtype::Bf16, StoredDtype::F16] {
            let parameters = blank_model(dir.path(), size, dtype, 3).unwrap();
            assert_eq!(parameters, 1_116_288);
            let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
            let model = Model::load(&files).unwrap();
            assert_eq!(
                (model.weights.parameters() as u64, model.stored_dtype()),
                (parameters, dtype)
            );
            assert!(Tokenizer::load(&files).unwrap().len() <= size.vocab_size);
        }
    }

    #[test]
    fn the_shapes_have_the_sizes_of_what_they_are_like() {
        let parameters = |name: &str| -> usize {
            let size = SHAPES.iter().find(|(found, _)| *found == name).unwrap().1;
            let config = configuration(size, StoredDtype::Bf16).to_string();
            let tensors = HfConfig::parse(config.as_bytes()).unwrap().tensors();
            tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
        };
        assert_eq!(parameters("qwen2.5-0.5b"), 494_032_768);
        assert_eq!(parameters("bench-m"), 26_753_536);
    }
}
