//! Variants of the reference models that transformers reads in its own way: heads that are tied by `config.json` and not by
//! the checkpoint, keys in two places, tensors of old versions.

use std::collections::BTreeMap;

use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::*;
use crate::net::lora::{Patterns, linear_names};

/// Name of the embedding.
const EMBEDDING: &str = "model.embed_tokens.weight";
/// Name of the output head.
const HEAD: &str = "lm_head.weight";

type Stored = (Dtype, Vec<usize>, Vec<u8>);

/// A reference model with another `config.json` and other tensors.
fn variant(
    name: &str,
    config: impl FnOnce(&mut Value),
    tensors: impl FnOnce(&mut BTreeMap<String, Stored>),
) -> tempfile::TempDir {
    let (from, dir) = (fixture(name), tempfile::tempdir().unwrap());
    let mut stored: BTreeMap<String, Stored> = BTreeMap::new();
    for entry in std::fs::read_dir(&from).unwrap().map(|entry| entry.unwrap().path()) {
        let file = entry.file_name().unwrap().to_str().unwrap().to_owned();
        if file.starts_with("model") && file.ends_with(".safetensors") {
            let bytes = std::fs::read(&entry).unwrap();
            let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            stored.extend(read.tensors().into_iter().map(|(name, view)| {
                (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
            }));
        } else if entry.is_file() && !file.starts_with("reference") && !file.starts_with("model") {
            std::fs::copy(&entry, dir.path().join(file)).unwrap();
        }
    }
    let mut json: Value =
        serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    config(&mut json);
    std::fs::write(dir.path().join("config.json"), json.to_string()).unwrap();
    tensors(&mut stored);
    let views = stored.iter().map(|(name, (dtype, shape, data))| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    dir
}

fn load(dir: &Path) -> Result<Model, ModelError> {
    Model::load(&ModelFiles::new(&ModelSource::Directory(dir.to_owned())))
}

/// The furthest logit from those of a reference.
fn off(model: &Model, name: &str) -> f32 {
    let reference = Reference::open(&fixture(name));
    let columns = reference.columns(model.config.vocab_size);
    let rows = rows(&reference, "right");
    let [_, tokens, kept] = reference.shape("right.logits")[..] else { unreachable!() };
    let expected = reference.floats("right.logits");
    let expected = rows.iter().zip(expected.chunks(tokens * kept));
    let expected = expected.flat_map(|(row, e)| e.chunks(kept).take(row.len()));
    let logits = packed_logits(model, &rows).concat();
    logits.iter().zip(expected).fold(0.0, |worst, (ours, theirs)| {
        let of_columns: Vec<f32> = columns.iter().map(|&column| ours[column]).collect();
        worst.max(furthest(&of_columns, theirs))
    })
}

#[test]
fn a_tied_head_that_differs_from_the_embedding_is_untied_with_a_warning_and_saved_so() {
    let tied = |config: &mut Value| config["tie_word_embeddings"] = true.into();
    let dir = variant("qwen3", tied, |_| ());
    let model = load(dir.path()).unwrap();
    let off = off(&model, "qwen3");
    println!("furthest logit {off:.1e}");
    assert!(off <= 2e-4, "{off}");
    let warning = model.config.warning().unwrap();
    assert!(warning.contains("`lm_head.weight` differs from `model.embed_tokens.weight`"));
    assert!(!model.config.tie_word_embeddings);
    assert!(model.trainable().vars().iter().any(|(name, _)| name == HEAD), "it is trained");
    // What is saved says what it is.
    let saved = tempfile::tempdir().unwrap();
    model.save(saved.path()).unwrap();
    let text = std::fs::read_to_string(saved.path().join("config.json")).unwrap();
    assert!(text.contains("\"tie_word_embeddings\": false"), "{text}");
    let again = load(saved.path()).unwrap();
    assert_eq!(again.fingerprint(), model.fingerprint());
    assert_eq!(again.config.warning(), None);
    model.restore(saved.path()).unwrap();
    assert_eq!(again.fingerprint(), model.fingerprint());
    // Under an adapter, and merged.
    let target_modules = linear_names(&model.config);
    let config = LoraConfig {
        rank: 2,
        alpha: 4.0,
        dropout: 0.0,
        target_modules,
        rslora: false,
        patterns: Patterns::default(),
    };
    let (merged, _) =
        model.with_adapter(Adapter::new(&model.config, config, 1).unwrap()).merge().unwrap();
    assert_eq!(merged.fingerprint(), model.fingerprint());
    assert!(!merged.config.tie_word_embeddings);
}

#[test]
fn a_checkpoint_that_classifies_sequences_is_read_with_a_warning_or_refused_as_no_language_model() {
    let score = |tensors: &mut BTreeMap<String, Stored>| {
        let (dtype, shape, data) = tensors["model.norm.weight"].clone();
        tensors.insert("score.weight".to_owned(), (dtype, vec![1, shape[0]], data));
    };
    let tied = variant("qwen2", |_| (), score);
    let model = load(tied.path()).unwrap();
    let warning = model.config.warning().unwrap();
    assert!(
        warning.starts_with("the checkpoint classifies sequences: it has `score.weight`"),
        "{warning}"
    );
    assert_eq!(model.fingerprint(), load(&fixture("qwen2")).unwrap().fingerprint());
    let saved = tempfile::tempdir().unwrap();
    model.save(saved.path()).unwrap();
    assert_eq!(load(saved.path()).unwrap().config.warning(), None);
    let untied = |config: &mut Value| config["tie_word_embeddings"] = false.into();
    let refused = load(variant("qwen2", untied, score).path()).err().unwrap().to_string();
    for part in ["it classifies sequences, and is no language model", "`lm_head.weight`"] {
        assert!(refused.contains(part), "{part} is missing in {refused}");
    }
}

#[test]
fn a_head_equal_to_the_embedding_is_tied_and_one_number_apart_is_not() {
    let base = load(&fixture("qwen2")).unwrap();
    let equal = variant(
        "qwen2",
        |_| (),
        |tensors| {
            tensors.insert(HEAD.to_owned(), tensors[EMBEDDING].clone());
        },
    );
    let model = load(equal.path()).unwrap();
    assert!(model.config.tie_word_embeddings && model.config.warning().is_none());
    assert_eq!(model.fingerprint(), base.fingerprint());
    // Of another type the same numbers are equal, too.
    let wide = variant(
        "qwen2",
        |_| (),
        |tensors| {
            let (_, shape, data) = &tensors[EMBEDDING];
            let wide = data
                .as_chunks()
                .0
                .iter()
                .flat_map(|x| half::f16::from_le_bytes(*x).to_f32().to_le_bytes());
            let wide = (Dtype::F32, shape.clone(), wide.collect());
            tensors.insert(HEAD.to_owned(), wide);
        },
    );
    assert!(load(wide.path()).unwrap().config.tie_word_embeddings);
    let apart = variant(
        "qwen2",
        |_| (),
        |tensors| {
            let mut head = tensors[EMBEDDING].clone();
            *head.2.last_mut().unwrap() ^= 1;
            tensors.insert(HEAD.to_owned(), head);
        },
    );
    assert!(!load(apart.path()).unwrap().config.tie_word_embeddings);
}

#[test]
fn a_tied_head_that_is_stored_alone_is_the_embedding() {
    let base = load(&fixture("llama")).unwrap();
    let alone = variant(
        "llama",
        |_| (),
        |tensors| {
            let embedding = tensors.remove(EMBEDDING).unwrap();
            tensors.insert(HEAD.to_owned(), embedding);
        },
    );
    let model = load(alone.path()).unwrap();
    assert_eq!(model.fingerprint(), base.fingerprint());
    assert!(model.config.tie_word_embeddings);
    let untied = |config: &mut Value| config["tie_word_embeddings"] = false.into();
    let error = load(
        variant("llama", untied, |tensors| {
            let embedding = tensors.remove(EMBEDDING).unwrap();
            tensors.insert(HEAD.to_owned(), embedding);
        })
        .path(),
    );
    assert!(
        error
            .err()
            .unwrap()
            .to_string()
            .contains("`model.embed_tokens.weight` [400, 32] is missing")
    );
    // A head of another shape is neither.
    let narrow = variant(
        "llama",
        |_| (),
        |tensors| {
            let (dtype, _, data) = tensors[EMBEDDING].clone();
            tensors.insert(HEAD.to_owned(), (dtype, vec![200, 64], data));
        },
    );
    let error = load(narrow.path()).err().unwrap().to_string();
    assert!(
        error.contains("`lm_head.weight` is [200, 64]; config.json asks for [400, 32]"),
        "{error}"
    );
}

#[test]
fn the_original_context_beside_the_rope_counts_before_the_one_within() {
    let key = "original_max_position_embeddings";
    let beside = variant(
        "llama",
        |config| {
            config["rope_parameters"][key] = 128.into();
            config[key] = 32.into();
        },
        |_| (),
    );
    let model = load(beside.path()).unwrap();
    let off = off(&model, "llama");
    println!("furthest logit {off:.1e}");
    assert!(off <= 2e-4, "{off}");
}

#[test]
fn rotary_frequencies_that_old_checkpoints_store_are_ignored() {
    let old = variant(
        "llama",
        |_| (),
        |tensors| {
            for layer in 0..3 {
                let name = format!("model.layers.{layer}.self_attn.rotary_emb.inv_freq");
                tensors.insert(name, (Dtype::F32, vec![4], vec![7; 16]));
            }
        },
    );
    let model = load(old.path()).unwrap();
    assert_eq!(model.fingerprint(), load(&fixture("llama")).unwrap().fingerprint());
    assert!(off(&model, "llama") <= 2e-4);
}
