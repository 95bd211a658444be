//! Models of known shapes with random weights, for measurements: as large as the real ones, without a download.

use std::borrow::Cow;
use std::path::Path;

use maverl_kernels::sample::derive_seed;
use safetensors::tensor::View;
use serde_json::{Value, json};

use crate::files::create::{self, Size, draw_values, parse, write};
use crate::files::save::{SavedTensor, safetensors_file};
use crate::files::{ModelError, ModelErrorKind, StoredDtype, builtin};

/// Family of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlankFamily {
    Qwen2,
    Qwen3,
    /// Llama 3.2, with its scaling of positions.
    Llama,
}

/// Shape of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Name; empty for a shape of a size alone.
    pub name: &'static str,
    /// Size.
    pub size: Size,
    family: BlankFamily,
    /// Width of a head.
    head_dim: usize,
    /// True if the head is the embedding.
    tied: bool,
}

impl From<Size> for Shape {
    /// Returns the shape of a Qwen2 model.
    fn from(size: Size) -> Self {
        let head_dim = size.hidden_size.checked_div(size.num_attention_heads).unwrap_or(0);
        Self { name: "", size, family: BlankFamily::Qwen2, head_dim, tied: true }
    }
}

/// Shapes by name: those of published models, from their `config.json`, and two that are quick to measure (1.1 M and 26.8 M
/// parameters).
pub const SHAPES: &[Shape] = &[
    qwen2("qwen2.5-0.5b", 151_936, 896, 24, [14, 2, 64], 4864),
    qwen2("qwen2.5-1.5b", 151_936, 1536, 28, [12, 2, 128], 8960),
    qwen2("qwen2.5-3b", 151_936, 2048, 36, [16, 2, 128], 11_008),
    Shape { tied: false, ..qwen2("qwen2.5-7b", 152_064, 3584, 28, [28, 4, 128], 18_944) },
    qwen3("qwen3-0.6b", 1024, 28, [16, 8, 128], 3072),
    qwen3("qwen3-1.7b", 2048, 28, [16, 8, 128], 6144),
    qwen3("qwen3-4b", 2560, 36, [32, 8, 128], 9728),
    Shape { tied: false, ..qwen3("qwen3-8b", 4096, 36, [32, 8, 128], 12_288) },
    llama("llama3.2-1b", 2048, 16, [32, 8, 64], 8192),
    llama("llama3.2-3b", 3072, 28, [24, 8, 128], 8192),
    with_context(512, qwen2("bench-s", 1024, 128, 4, [4, 2, 32], 512)),
    with_context(512, qwen2("bench-m", 8192, 512, 8, [8, 2, 64], 1408)),
];

/// Returns a shape of Qwen2.5. Heads are those of queries, those of keys, and their width.
const fn qwen2(
    name: &'static str,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    [num_attention_heads, num_key_value_heads, head_dim]: [usize; 3],
    intermediate_size: usize,
) -> Shape {
    let size = Size {
        vocab_size,
        hidden_size,
        num_hidden_layers,
        num_attention_heads,
        num_key_value_heads,
        intermediate_size,
        max_position_embeddings: 32_768,
    };
    Shape { name, size, family: BlankFamily::Qwen2, head_dim, tied: true }
}

/// Returns a shape of Qwen3.
const fn qwen3(
    name: &'static str,
    hidden_size: usize,
    layers: usize,
    heads: [usize; 3],
    intermediate_size: usize,
) -> Shape {
    let shape = qwen2(name, 151_936, hidden_size, layers, heads, intermediate_size);
    Shape { family: BlankFamily::Qwen3, ..with_context(40_960, shape) }
}

/// Returns a shape of Llama 3.2.
const fn llama(
    name: &'static str,
    hidden_size: usize,
    layers: usize,
    heads: [usize; 3],
    intermediate_size: usize,
) -> Shape {
    let shape = qwen2(name, 128_256, hidden_size, layers, heads, intermediate_size);
    Shape { family: BlankFamily::Llama, ..with_context(131_072, shape) }
}

/// Returns a shape with another context.
const fn with_context(max_position_embeddings: usize, shape: Shape) -> Shape {
    Shape { size: Size { max_position_embeddings, ..shape.size }, ..shape }
}

/// Writes a model directory of a shape with random weights and the tokenizer of `builtin:tiny`, one tensor at a time. Returns
/// the number of parameters.
///
/// # Errors
///
/// If a file cannot be written, or the embedding has fewer rows than the tokenizer has tokens.
pub fn blank_model(
    dir: &Path,
    shape: impl Into<Shape>,
    dtype: StoredDtype,
    seed: u64,
) -> Result<u64, ModelError> {
    let shape = shape.into();
    let text = format!("{:#}\n", configuration(&shape, dtype));
    let parsed = parse(&text)?;
    write(dir, "config.json", text)?;
    for name in ["generation_config.json", "tokenizer.json"] {
        write(dir, name, tiny(name)?)?;
    }
    let mut tokenizer: Value = serde_json::from_slice(tiny("tokenizer_config.json")?)
        .expect("the built-in files are JSON");
    tokenizer["model_max_length"] = shape.size.max_position_embeddings.into();
    write(dir, "tokenizer_config.json", format!("{tokenizer:#}\n"))?;
    let tensors = parsed.tensors();
    let parameters = tensors.iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum();
    let blanks = tensors.into_iter().zip(1..).map(|((name, shape), index)| {
        (name.clone(), Blank { name, shape, dtype, seed: derive_seed(seed, index) })
    });
    safetensors_file(&dir.join("model.safetensors"), blanks)?;
    Ok(parameters)
}

/// Returns a file of `builtin:tiny`, whose tokenizer blank models have.
fn tiny(name: &str) -> Result<&'static [u8], ModelError> {
    builtin::model_file("tiny", name)
        .ok_or_else(|| ModelError::new(ModelErrorKind::NotFound, builtin::unknown_model("tiny")))
}

/// Returns the configuration in the format of transformers 5.
fn configuration(shape: &Shape, dtype: StoredDtype) -> Value {
    let positions = match shape.family {
        BlankFamily::Qwen2 | BlankFamily::Qwen3 => {
            json!({ "rope_type": "default", "rope_theta": 1e6 })
        }
        BlankFamily::Llama => json!({
            "rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }),
    };
    let mut config = create::qwen2(shape.size, dtype, "rope_parameters", &positions);
    config["tie_word_embeddings"] = shape.tied.into();
    let (kind, architecture) = match shape.family {
        BlankFamily::Qwen2 => return config,
        BlankFamily::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
        BlankFamily::Llama => ("llama", "LlamaForCausalLM"),
    };
    config["model_type"] = kind.into();
    config["architectures"] = json!([architecture]);
    config["head_dim"] = shape.head_dim.into();
    config["attention_bias"] = false.into();
    if shape.family == BlankFamily::Llama {
        config["rms_norm_eps"] = 1e-5.into();
        config["mlp_bias"] = false.into();
        if let Some(keys) = config.as_object_mut() {
            keys.shift_remove("use_sliding_window");
        }
    }
    config
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
        let values = draw_values(&self.name, &self.shape, self.seed);
        Cow::Owned(View::data(&&self.entry(&values)).into_owned())
    }

    fn data_len(&self) -> usize {
        View::data_len(&&self.entry(&[]))
    }
}

impl Blank {
    fn entry<'a>(&self, values: &'a [f32]) -> SavedTensor<'a> {
        SavedTensor::slice(self.name.as_str(), &self.shape, values).stored_as(self.dtype)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::files::{HfConfig, ModelFiles, ModelSource};
    use crate::net::Model;
    use crate::text::Tokenizer;

    #[test]
    fn a_blank_model_loads_with_as_many_parameters_as_it_says_in_every_type() {
        let dir = tempfile::tempdir().unwrap();
        let shape = *SHAPES.iter().find(|shape| shape.name == "bench-s").unwrap();
        for dtype in [StoredDtype::F32, StoredDtype::Bf16, StoredDtype::F16] {
            let parameters = blank_model(dir.path(), shape, dtype, 3).unwrap();
            assert_eq!(parameters, 1_116_288);
            let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
            let model = Model::load(&files).unwrap();
            assert_eq!(
                (model.weights.parameters() as u64, model.stored_dtype()),
                (parameters, dtype)
            );
            assert!(Tokenizer::load(&files).unwrap().len() <= shape.size.vocab_size);
        }
    }

    #[test]
    fn the_shapes_have_as_many_parameters_as_the_models_that_they_are_like() {
        let counts = SHAPES.iter().map(|shape| {
            let config = configuration(shape, StoredDtype::Bf16).to_string();
            let tensors = HfConfig::parse(config.as_bytes()).unwrap().tensors();
            (shape.name, tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum())
        });
        // Those of the model cards on the hub.
        let wanted = [
            ("qwen2.5-0.5b", 494_032_768),
            ("qwen2.5-1.5b", 1_543_714_304),
            ("qwen2.5-3b", 3_085_938_688),
            ("qwen2.5-7b", 7_615_616_512),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-1.7b", 1_720_574_976),
            ("qwen3-4b", 4_022_468_096),
            ("qwen3-8b", 8_190_735_360),
            ("llama3.2-1b", 1_235_814_400),
            ("llama3.2-3b", 3_212_749_824),
            ("bench-s", 1_116_288),
            ("bench-m", 26_753_536),
        ];
        assert_eq!(counts.collect::<Vec<(&str, usize)>>(), wanted);
    }

    #[test]
    fn a_model_of_each_family_loads_and_runs() {
        for name in ["qwen3-0.6b", "llama3.2-1b", "qwen2.5-7b"] {
            let published = SHAPES.iter().find(|shape| shape.name == name).unwrap();
            // The family with few and narrow layers.
            let size = Size {
                vocab_size: 1024,
                hidden_size: 64,
                num_hidden_layers: 2,
                num_attention_heads: 4,
                num_key_value_heads: 2,
                intermediate_size: 96,
                ..published.size
            };
            let dir = tempfile::tempdir().unwrap();
            let small = Shape { size, head_dim: 16, ..*published };
            let parameters = blank_model(dir.path(), small, StoredDtype::F32, 3).unwrap();
            let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
            let model = Model::load(&files).unwrap();
            assert_eq!(model.weights.parameters() as u64, parameters, "{name}");
            assert_eq!(
                model.config.max_position_embeddings,
                published.size.max_position_embeddings
            );
        }
    }
}
