#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use super::write::{Change, Meta, WrittenNumbers, WrittenTensor, write_file};
use super::*;
use crate::files::{HfConfig, ModelFiles, ModelSource, Shards};
use crate::net::tests::fixture;
use crate::net::tests::mutation::fuzz_binary;
use crate::text::Tokenizer;

/// Returns a normal number of an index.
fn number(index: usize) -> f32 {
    let uniform = |lot| maverl_kernels::sample::uniform_number(7, 2 * index as u64 + lot);
    let (u, v) = (uniform(0).max(1e-12), uniform(1));
    ((-2.0 * libm::log(u)).sqrt() * libm::cos(std::f64::consts::TAU * v)) as f32
}

fn text(text: &str) -> Meta {
    Meta::Text(text.to_owned())
}

/// Returns the keys of a Qwen2 with a layer, and of a byte-level tokenizer.
fn metadata() -> Vec<(String, Meta)> {
    let tokens = ["a", "b", "ab", "Ġ", "<|im_start|>", "<|im_end|>", "[PAD6]", "[PAD7]"];
    let texts = |texts: &[&str]| Meta::Texts(texts.iter().map(|text| (*text).to_owned()).collect());
    let keys = [
        ("general.architecture", text("qwen2")),
        ("qwen2.block_count", Meta::Whole(1)),
        ("qwen2.context_length", Meta::Whole(64)),
        ("qwen2.embedding_length", Meta::Whole(32)),
        ("qwen2.feed_forward_length", Meta::Whole(64)),
        ("qwen2.attention.head_count", Meta::Whole(4)),
        ("qwen2.attention.head_count_kv", Meta::Whole(2)),
        ("qwen2.attention.layer_norm_rms_epsilon", Meta::Float(1e-6)),
        ("qwen2.rope.freq_base", Meta::Float(1e6)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("qwen2")),
        ("tokenizer.ggml.tokens", texts(&tokens)),
        ("tokenizer.ggml.token_type", Meta::Wholes(vec![1, 1, 1, 1, 3, 3, 5, 5])),
        ("tokenizer.ggml.merges", texts(&["a b"])),
        ("tokenizer.ggml.eos_token_id", Meta::Whole(5)),
        ("tokenizer.chat_template", text("{{ messages[0].content }}")),
    ];
    keys.map(|(key, value)| (key.to_owned(), value)).into()
}

/// Returns the tensors of the model, with matrices of a kind.
fn tensors(kind: NumberKind) -> Vec<WrittenTensor<'static>> {
    let shapes: [(&str, &[usize]); 14] = [
        ("token_embd.weight", &[8, 32]),
        ("output_norm.weight", &[32]),
        ("blk.0.attn_norm.weight", &[32]),
        ("blk.0.ffn_norm.weight", &[32]),
        ("blk.0.attn_q.weight", &[32, 32]),
        ("blk.0.attn_q.bias", &[32]),
        ("blk.0.attn_k.weight", &[16, 32]),
        ("blk.0.attn_k.bias", &[16]),
        ("blk.0.attn_v.weight", &[16, 32]),
        ("blk.0.attn_v.bias", &[16]),
        ("blk.0.attn_output.weight", &[32, 32]),
        ("blk.0.ffn_gate.weight", &[64, 32]),
        ("blk.0.ffn_up.weight", &[64, 32]),
        ("blk.0.ffn_down.weight", &[32, 64]),
    ];
    let made = shapes.map(|(name, dims)| WrittenTensor {
        name: name.to_owned(),
        dims: dims.to_vec(),
        kind: if dims.len() == 1 { NumberKind::F32 } else { kind },
        change: Change::None,
        numbers: WrittenNumbers::Own((0..dims.iter().product()).map(number).collect()),
    });
    made.into()
}

/// Returns a file with other keys than those of [`metadata`] in place of them.
fn bytes(kind: NumberKind, other: &[(&str, Meta)]) -> Vec<u8> {
    let mut keys = metadata();
    keys.retain(|(key, _)| other.iter().all(|(name, _)| name != key));
    keys.extend(other.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    let mut file = Vec::new();
    write_file(&mut file, &keys, &tensors(kind)).unwrap();
    file
}

/// Returns the files of a model in `model.gguf` of a directory.
fn files(dir: &Path, bytes: &[u8]) -> ModelFiles {
    let path = dir.join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    ModelFiles::new(&ModelSource::at(path))
}

/// Returns the error of a file, without its directory.
fn refused(bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path(), bytes);
    let read = HfConfig::load(&files).and_then(|_| Tokenizer::load(&files).map(drop));
    let place = format!("{}/", dir.path().display());
    read.unwrap_err().to_string().replace(&place, "")
}

#[test]
fn a_file_is_read_as_a_model_directory_is() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path(), &bytes(NumberKind::Q8_0, &[]));
    let config = HfConfig::load(&files).unwrap();
    assert_eq!((config.model_type, config.vocab_size, config.layers.len()), ("qwen2", 8, 1));
    assert!(config.tie_word_embeddings);
    assert_eq!(config.warning(), None);
    let tokenizer = Tokenizer::load(&files).unwrap();
    assert_eq!(tokenizer.len(), 6);
    assert_eq!(tokenizer.stop_ids(), [5]);
    assert_eq!(tokenizer.encode("ab ab<|im_end|>").unwrap(), [2, 3, 2, 5]);
    let shards = Shards::matching(&files, &config).unwrap();
    let down = shards.values("model.layers.0.mlp.down_proj.weight").unwrap();
    let off = down.iter().enumerate().map(|(i, x)| (x - number(i)).abs()).fold(0.0, f32::max);
    assert!(off > 0.0 && off < 0.03, "{off}");
    let types = shards.stored_types();
    assert_eq!(types["q8_0"][1], 34 * types["q8_0"][0] / 32);
}

#[test]
fn what_is_not_read_is_refused_by_its_name() {
    let whole = bytes(NumberKind::F16, &[]);
    let mut iq4 = bytes(NumberKind::F16, &[]);
    let name = b"blk.0.ffn_down.weight";
    let at = iq4.windows(name.len()).position(|bytes| bytes == name).unwrap() + name.len();
    iq4[at + 20..at + 24].copy_from_slice(&23_u32.to_le_bytes());
    let cases = [
        (
            iq4,
            "model.gguf: tensor `blk.0.ffn_down.weight` is IQ4_XS; read are F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K..Q6_K",
        ),
        (
            bytes(NumberKind::F16, &[("tokenizer.ggml.pre", text("foo"))]),
            "model.gguf: tokenizer.ggml.pre is \"foo\", which this program cannot split by; take the model as a Hugging Face \
             directory, which has its tokenizer.json, or one of gpt-2, smollm, qwen2, qwen35, llama-bpe, dbrx, tekken, gpt-4o, \
             default",
        ),
        (
            bytes(NumberKind::F16, &[("tokenizer.ggml.model", text("bert"))]),
            "model.gguf: tokenizer.ggml.model is \"bert\"; gpt2 and llama are read; take the model as a Hugging Face \
             directory, which has its tokenizer.json",
        ),
        (
            bytes(NumberKind::F16, &[("general.architecture", text("mamba"))]),
            "model.gguf: general.architecture is \"mamba\"; read are gemma2, gemma3, llama, olmo2, phi3, qwen2, qwen3, \
             qwen3moe, smollm3",
        ),
        (
            bytes(NumberKind::F16, &[("general.type", text("adapter"))]),
            "model.gguf: general.type is \"adapter\"; a model is needed",
        ),
        (
            bytes(NumberKind::F16, &[("split.count", Meta::Whole(3))]),
            "model.gguf: it is a part of 3; `llama-gguf-split --merge` of llama.cpp makes one file of all",
        ),
        (
            bytes(NumberKind::F16, &[("qwen2.block_count", Meta::Float(1.0))]),
            "model.gguf: `qwen2.block_count` is missing, or no whole number",
        ),
        (whole[..whole.len() - 1].to_vec(), "ends after the file"),
        (whole[..40].to_vec(), "it ends within its header"),
        (b"GGML".to_vec(), "model.gguf: it does not begin with GGUF"),
        (b"GGUF\x04\0\0\0".to_vec(), "model.gguf: its version is 4; 1, 2 and 3 are read"),
        (b"GGUF\0\0\0\x03".to_vec(), "model.gguf: it is big-endian; little-endian files are read"),
    ];
    for (bytes, expected) in cases {
        let found = refused(&bytes);
        assert!(
            found == expected || !expected.contains(": ") && found.contains(expected),
            "{found}"
        );
    }
}

#[test]
fn a_key_of_the_architecture_that_is_not_read_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let other = [("qwen2.attention.odd", Meta::Whole(1)), ("other.key", Meta::Whole(2))];
    let config = HfConfig::load(&files(dir.path(), &bytes(NumberKind::F16, &other))).unwrap();
    let warning = config.warning().unwrap();
    assert!(warning.ends_with("that are not read: `qwen2.attention.odd`"), "{warning}");
}

#[test]
fn blocks_have_the_numbers_that_their_bytes_say() {
    let half = half::f16::from_f32(0.5).to_le_bytes();
    let q8: Vec<u8> = half.into_iter().chain((0..32).map(|i| (i - 16_i32) as u8)).collect();
    let mut values = [0.0; 32];
    assert!(NumberKind::Q8_0.read(&q8, &mut values));
    let expected: Vec<f32> = (0..32).map(|i| 0.5 * (i - 16) as f32).collect();
    assert_eq!(values[..], expected);
    // The low halves of the bytes are the first sixteen numbers.
    let q4: Vec<u8> = half.into_iter().chain((0..16).map(|i| i | (15 - i) << 4)).collect();
    assert!(NumberKind::Q4_0.read(&q4, &mut values));
    let expected = (0..16).chain((0..16).rev()).map(|i| 0.5 * (i - 8) as f32);
    assert_eq!(values[..], expected.collect::<Vec<_>>());
    let one = half::f16::from_f32(1.0).to_le_bytes();
    let q4_1: Vec<u8> = half.into_iter().chain(one).chain((0..16).map(|i| i | i << 4)).collect();
    assert!(NumberKind::Q4_1.read(&q4_1, &mut values));
    assert!((0..32).all(|i| values[i] == 0.5 * (i % 16) as f32 + 1.0));
}

#[test]
fn numbers_come_back_within_the_noise_of_their_kind() {
    let values: Vec<f32> = (0..64 * 256).map(number).collect();
    let norm = values.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
    for (kind, most) in [
        (NumberKind::F32, 0.0),
        (NumberKind::F16, 3e-4),
        (NumberKind::Bf16, 3e-3),
        (NumberKind::Q8_0, 0.008),
        (NumberKind::Q6K, 0.03),
        (NumberKind::Q5K, 0.06),
        (NumberKind::Q4K, 0.12),
        (NumberKind::Q3K, 0.25),
        (NumberKind::Q2K, 0.4),
        (NumberKind::Q5_1, 0.06),
        (NumberKind::Q5_0, 0.06),
        (NumberKind::Q4_1, 0.12),
        (NumberKind::Q4_0, 0.12),
    ] {
        let bytes = kind.write(&values).unwrap();
        assert_eq!(Some(bytes.len()), kind.bytes_of(values.len()), "{kind:?}");
        let mut read = vec![0.0; values.len()];
        assert!(kind.read(&bytes, &mut read));
        let off =
            values.iter().zip(&read).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
        println!("{}: off by {:.5} of the norm", kind.name(), off / norm);
        assert!(off / norm <= most, "{kind:?}: {}", off / norm);
    }
    for (value, expected) in
        [(f32::NAN, "not finite"), (1e6, "is beyond 6.5504e4"), (f32::INFINITY, "not finite")]
    {
        let told = NumberKind::F16.write(&[value]).unwrap_err();
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_damaged_file_is_an_error_or_a_model_and_costs_what_it_has_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let spm = [
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.scores", Meta::Floats(vec![0.0; 8])),
        ("qwen2.rope.scaling.type", text("yarn")),
        ("qwen2.rope.scaling.factor", Meta::Float(4.0)),
    ];
    let whole = [bytes(NumberKind::Q4_0, &[]), bytes(NumberKind::Q8_0, &spm)];
    fuzz_binary("model.gguf", &whole, 64, |bytes| {
        let files = files(dir.path(), bytes);
        let texts = ["tokenizer.json", "tokenizer_config.json", "generation_config.json"];
        let read = texts.iter().all(|name| files.read(name).is_ok());
        let Ok(config) = HfConfig::load(&files) else { return false };
        let Ok(shards) = Shards::matching(&files, &config) else { return false };
        read && config.tensors().iter().all(|(name, _)| shards.values(name).is_ok())
    });
}

/// Returns the hostile files that are kept.
fn corpus() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixture("hostile/gguf")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_hostile_file_that_is_kept_is_refused() {
    let told: Vec<String> = corpus()
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            format!("{name}: {}", refused(&std::fs::read(path).unwrap()))
        })
        .collect();
    let expected = [
        "deep_list: model.gguf: `a`: a list of type 9",
        "dimension_0: model.gguf: tensor `token_embd.weight`: a dimension is 0",
        "key_twice: model.gguf: `general.architecture` is there twice",
        "long_list: model.gguf: `a`: a list is too long",
        "long_text: model.gguf: `a`: it ends within its header, at 49",
        "many_keys: model.gguf: it has 4294967295 keys; at most 16384 are read",
        "many_tensors: model.gguf: it has 18446744073709551615 tensors; at most 131072 are read",
        "overlap: model.gguf: tensors overlap",
        "product: model.gguf: tensor `token_embd.weight`: it ends after the file, which has 128 bytes",
    ];
    assert_eq!(told, expected);
}
