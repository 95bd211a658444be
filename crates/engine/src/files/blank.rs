//! Models of known shapes with random weights, for measurements: as large as the real ones, without a download.

use std::borrow::Cow;
use std::path::Path;

use maverl_kernels::sample::derive_seed;
use safetensors::tensor::View;
use serde_json::Value;

use crate::files::create::{draw_values, parse, write};
use crate::files::save::{SavedTensor, safetensors_file};
use crate::files::shapes::configuration;
pub use crate::files::shapes::{SHAPES, Shape};
use crate::files::{ModelError, ModelErrorKind, StoredDtype, builtin};

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
    let tensors = parsed.stored_tensors();
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
    use crate::files::create::Size;
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
            ("mistral-7b", 7_248_023_552),
            ("smollm3-3b", 3_075_098_624),
            ("gemma2-2b", 2_614_341_888),
            ("gemma3-1b", 999_885_952),
            ("olmo3-7b", 7_298_011_136),
            ("phi4-mini", 3_836_021_760),
            ("qwen3-30b-a3b", 30_532_122_624),
            ("gpt-oss-20b", 20_914_757_184),
            ("qwen3.5-0.8b", 752_393_024),
            ("qwen3.5-9b", 8_953_803_264),
            ("qwen3.5-35b-a3b", 34_660_610_688),
            ("lfm2-1.2b", 1_170_340_608),
            ("bench-s", 1_116_288),
            ("bench-m", 26_753_536),
        ];
        assert_eq!(counts.collect::<Vec<(&str, usize)>>(), wanted);
    }

    #[test]
    fn a_model_of_each_family_loads_and_runs() {
        for published in SHAPES.iter().filter(|shape| shape.size.num_hidden_layers > 8) {
            let name = published.name;
            // The family with few and narrow layers.
            let size = Size {
                vocab_size: 1024,
                hidden_size: 64,
                num_hidden_layers: 6,
                num_attention_heads: 4,
                num_key_value_heads: 2,
                // Models with experts have hundreds of them.
                intermediate_size: 32,
                ..published.size
            };
            let dir = tempfile::tempdir().unwrap();
            let small = Shape { size, head_dim: 128, ..*published };
            let parameters = blank_model(dir.path(), small, StoredDtype::F32, 3).unwrap();
            let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
            let model = Model::load(&files).unwrap();
            assert_eq!(model.weights.parameters() as u64, parameters, "{name}");
            assert_eq!(model.config.whole_context, published.size.max_position_embeddings);
            let logits = model.logits(&[1, 2, 3]).unwrap();
            assert!(logits.iter().all(|logit| logit.is_finite()), "{name}");
        }
    }
}
