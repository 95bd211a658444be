//! Creation of models: a tokenizer trained on texts, and random weights.

use std::path::Path;

use maverl_kernels::sample::{derive_seed, uniform_number};
use rayon::prelude::*;
use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    AddedToken, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    TokenizerBuilder, Trainer,
};

use crate::files::save::{self, SHARD_BYTES, SavedTensor, TensorWriter};
use crate::files::{HfConfig, ModelError, StoredDtype};

/// Special tokens of ChatML: padding, and the start and end of a turn.
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// ChatML: `<|im_start|>role`, a line break, the content, `<|im_end|>` and a line break.
const CHAT_TEMPLATE: &str = "{%- for message in messages %}\
     {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\
     {%- endfor %}\
     {%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

/// Size of a model to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of tokens, special ones included.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of decoder layers.
    pub num_hidden_layers: usize,
    /// Number of query heads. The width of a head is `hidden_size` divided by it.
    pub num_attention_heads: usize,
    /// Number of key and value heads.
    pub num_key_value_heads: usize,
    /// Width of the MLP.
    pub intermediate_size: usize,
    /// Length of the longest sequence.
    pub max_position_embeddings: usize,
}

/// Trains a byte-level BPE on texts, so that any text can be encoded. Returns the content of `tokenizer.json`.
///
/// If `pieces` splits a word in two, no token crosses the split: names made of syllables are then tokenized by
/// syllables, unseen names too. The same texts in the same order give the same tokenizer.
///
/// # Errors
///
/// If the texts give no tokenizer (they are empty).
pub fn byte_level_bpe(
    texts: &[String],
    vocab_size: usize,
    pieces: impl Fn(&str) -> Option<(&str, &str)> + Sync,
) -> Result<String, ModelError> {
    train_bpe(texts, vocab_size, &pieces)
        .map_err(|e| ModelError::wrong_argument(format!("cannot train a tokenizer: {e}")))
}

fn train_bpe(
    texts: &[String],
    vocab_size: usize,
    pieces: &(impl Fn(&str) -> Option<(&str, &str)> + Sync),
) -> tokenizers::Result<String> {
    let mut trainer = BpeTrainer::builder()
        .vocab_size(vocab_size)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(SPECIAL.iter().map(|token| AddedToken::from(*token, true)).collect())
        .build();
    let byte_level = ByteLevel::new(false, true, true);
    trainer.feed(texts.iter(), |text| {
        let mut text = PreTokenizedString::from(text);
        byte_level.pre_tokenize(&mut text)?;
        let words = text.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
        Ok(words.into_iter().flat_map(|(word, ..)| split(word, pieces)).collect())
    })?;
    let mut model = BPE::default();
    let special = trainer.train(&mut model)?;
    let mut tokenizer =
        TokenizerBuilder::<BPE, NormalizerWrapper, ByteLevel, ByteLevel, ByteLevel>::new()
            .with_model(model)
            .with_pre_tokenizer(Some(byte_level))
            .with_post_processor(Some(byte_level))
            .with_decoder(Some(byte_level))
            .build()?;
    tokenizer.add_special_tokens(special)?;
    tokenizer.to_string(true)
}

/// Splits a byte-level word where its pieces meet. The space before a word is written `Ġ`.
fn split(word: &str, pieces: impl Fn(&str) -> Option<(&str, &str)>) -> Vec<String> {
    let (space, bare) = match word.strip_prefix('Ġ') {
        Some(bare) => ("Ġ", bare),
        None => ("", word),
    };
    match pieces(bare) {
        Some((start, end)) => vec![format!("{space}{start}"), end.to_owned()],
        None => vec![word.to_owned()],
    }
}

/// Writes a Qwen2 model directory with random weights: normal(0, 0.02), biases 0, norms 1.
///
/// # Errors
///
/// If a file cannot be written, or the size is not a valid model.
pub fn random_model(dir: &Path, size: Size, tokenizer: &str, seed: u64) -> Result<(), ModelError> {
    let config = qwen2(size, StoredDtype::F32, "rope_theta", &json!(10000.0));
    let tokenizer_config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": null,
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0],
        "model_max_length": size.max_position_embeddings,
        "chat_template": CHAT_TEMPLATE,
    });
    let generation = json!({ "eos_token_id": [2], "pad_token_id": 0 });
    let text = format!("{config:#}");
    let parsed = parse(&text)?;
    std::fs::create_dir_all(dir).map_err(|e| ModelError::cannot_do("make", dir, e))?;
    write(dir, "config.json", text)?;
    write(dir, "tokenizer_config.json", format!("{tokenizer_config:#}"))?;
    write(dir, "generation_config.json", format!("{generation:#}"))?;
    write(dir, "tokenizer.json", tokenizer)?;
    let tensors = parsed.tensors();
    let entries: Vec<SavedTensor<'_>> = tensors
        .iter()
        .zip(1..)
        .map(|(tensor, index)| {
            let (name, shape) = tensor;
            SavedTensor::computed(name, shape, move || {
                draw_values(name, shape, derive_seed(seed, index))
            })
        })
        .collect();
    save::shards(dir, &entries, SHARD_BYTES, &mut TensorWriter::Direct)
}

/// Returns the configuration of a Qwen2 model. The positions are written as `rope_theta` (transformers 4) or as
/// `rope_parameters` (transformers 5).
pub(super) fn qwen2(size: Size, dtype: StoredDtype, rope: &str, positions: &Value) -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "dtype": dtype.name(),
        "hidden_act": "silu",
        "hidden_size": size.hidden_size,
        "intermediate_size": size.intermediate_size,
        "num_hidden_layers": size.num_hidden_layers,
        "num_attention_heads": size.num_attention_heads,
        "num_key_value_heads": size.num_key_value_heads,
        "max_position_embeddings": size.max_position_embeddings,
        "vocab_size": size.vocab_size,
        "rms_norm_eps": 1e-6,
        (rope): positions,
        "tie_word_embeddings": true,
        "use_sliding_window": false,
        "bos_token_id": null,
        "eos_token_id": 2,
        "pad_token_id": 0,
    })
}

/// Reads a configuration that was just made.
pub(super) fn parse(config: &str) -> Result<HfConfig, ModelError> {
    HfConfig::parse(config.as_bytes())
        .map_err(|e| ModelError::wrong_argument(e.to_string()).with_source(e))
}

/// Writes a file of a model directory.
pub(super) fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> Result<(), ModelError> {
    let path = dir.join(name);
    std::fs::write(&path, bytes).map_err(|e| ModelError::cannot_do("write", &path, e))
}

/// Generates the random values of a tensor. They depend on its name.
pub(super) fn draw_values(name: &str, shape: &[usize], seed: u64) -> Vec<f32> {
    let n = shape.iter().product();
    match name {
        name if name.ends_with(".bias") || name.ends_with("_bias") => vec![0.0; n],
        name if name.ends_with("norm.weight") => vec![1.0; n],
        name if name.ends_with(".dt_bias") => vec![1.0; n],
        // Rates of decay from 1 to 16, as transformers draws them.
        name if name.ends_with(".A_log") => {
            let rates = (0..n as u64).map(|i| 1.0 + 15.0 * uniform_number(seed, i));
            rates.map(|rate| libm::log(rate) as f32).collect()
        }
        name => {
            let fan_in = shape.last().copied().unwrap_or(1) as f32;
            let std = if name.contains("embed") { 0.1 } else { fan_in.sqrt().recip() };
            (0..n as u64).into_par_iter().map(|i| std * normal(seed, i)).collect()
        }
    }
}

/// Generates a standard normal number (Box & Muller, 1958).
fn normal(seed: u64, counter: u64) -> f32 {
    let (u, v) = (1.0 - uniform_number(seed, 2 * counter), uniform_number(seed, 2 * counter + 1));
    ((-2.0 * libm::log(u)).sqrt() * libm::cos(std::f64::consts::TAU * v)) as f32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::files::{ModelFiles, ModelSource};
    use crate::message::{Message, Role};
    use crate::net::Model;
    use crate::text::Tokenizer;

    #[test]
    fn a_made_model_loads_and_any_text_goes_there_and_back() {
        let dir = tempfile::tempdir().unwrap();
        let texts = vec!["the cat sat on the mat; the cat ate".to_owned(); 3];
        let tokenizer = byte_level_bpe(&texts, 280, |_| None).unwrap();
        assert_eq!(tokenizer, byte_level_bpe(&texts, 280, |_| None).unwrap());
        let size = Size {
            vocab_size: 280,
            hidden_size: 32,
            num_hidden_layers: 1,
            num_attention_heads: 2,
            num_key_value_heads: 1,
            intermediate_size: 48,
            max_position_embeddings: 64,
        };
        random_model(dir.path(), size, &tokenizer, 1).unwrap();
        let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
        assert_eq!(Model::load(&files).unwrap().config.vocab_size, 280);
        let tokenizer = Tokenizer::load(&files).unwrap();
        for text in ["the cat", "Zürich \u{1f980} <tag>\n\tx"] {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids), text);
        }
        let messages = [Message { role: Role::User, content: "hi".to_owned() }];
        let text = tokenizer.render(&messages, true).unwrap().text().to_owned();
        assert_eq!(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
        assert_eq!(tokenizer.encode("<|im_end|>").unwrap(), [2]);
        assert_eq!(tokenizer.stop_ids(), [2]);
    }
}
