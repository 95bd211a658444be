#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::*;
use crate::files::{ModelFiles, ModelSource};
use crate::text::Tokenizer;

/// A text with values of transformers (`tests/python/make_encoders.py`).
#[derive(Deserialize)]
struct RecordedText {
    text: String,
    ids: Vec<u32>,
    hidden: Vec<f32>,
}

const MODELS: [&str; 3] = ["bert-mean", "distilbert-cls", "xlm-roberta-cls"];

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/encoders").join(name)
}

fn files(dir: &Path) -> ModelFiles {
    ModelFiles::new(&ModelSource::Directory(dir.to_owned()))
}

fn recorded(name: &str) -> Vec<RecordedText> {
    let text = std::fs::read_to_string(directory(name).join("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn hidden_states_are_those_of_transformers() {
    for name in MODELS {
        let model = BertModel::load(&files(&directory(name))).unwrap();
        let recorded = recorded(name);
        let texts: Vec<&[u32]> = recorded.iter().map(|text| text.ids.as_slice()).collect();
        let hidden = model.forward(&texts).unwrap();
        let expected: Vec<f32> = recorded.iter().flat_map(|text| text.hidden.clone()).collect();
        assert_eq!(hidden.len(), expected.len());
        let differences = hidden.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let largest = differences.fold(0.0, f32::max);
        println!("{name}: largest difference of {} numbers {largest:e}", hidden.len());
        assert!(largest < 1e-5, "{name}: {largest}");
    }
}

#[test]
fn texts_have_the_ids_of_transformers() {
    for name in MODELS {
        let tokenizer = Tokenizer::load(&files(&directory(name))).unwrap();
        for RecordedText { text, ids, .. } in recorded(name) {
            let mut found = tokenizer.encode_framed(&text).unwrap();
            let end = *found.last().unwrap();
            if found.len() > ids.len() {
                found.truncate(ids.len());
                *found.last_mut().unwrap() = end;
            }
            assert_eq!(found, ids, "{name}: {text:?}");
        }
    }
}

#[test]
fn hidden_states_are_the_same_alone_in_a_batch_and_on_any_number_of_threads() {
    for name in MODELS {
        let model = BertModel::load(&files(&directory(name))).unwrap();
        let recorded = recorded(name);
        let texts: Vec<&[u32]> = recorded.iter().map(|text| text.ids.as_slice()).collect();
        let together = model.forward(&texts).unwrap();
        let alone: Vec<f32> =
            texts.iter().flat_map(|text| model.forward(&[text]).unwrap()).collect();
        assert_eq!(alone, together, "{name}");
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| model.forward(&texts).unwrap()), together, "{name}");
        }
    }
}

#[test]
fn a_token_attends_to_later_ones() {
    let model = BertModel::load(&files(&directory("bert-mean"))).unwrap();
    let first = |text: &[u32]| model.forward(&[text]).unwrap()[..12].to_vec();
    assert_ne!(first(&[2, 5, 3]), first(&[2, 6, 3]));
}

#[test]
fn texts_that_an_encoder_cannot_read_are_refused() {
    let model = BertModel::load(&files(&directory("xlm-roberta-cls"))).unwrap();
    let message = |text: &[u32]| model.forward(&[text]).unwrap_err().to_string();
    assert_eq!(message(&[2; 36]), "a text has 36 tokens; the encoder has 35 positions");
    assert!(message(&[2, 4_000]).starts_with("token 4000 is not below"));
    assert_eq!(model.forward(&[]).unwrap(), [] as [f32; 0]);
    assert_eq!(model.forward(&[&[]]).unwrap(), [] as [f32; 0]);
}

#[test]
fn positions_after_the_padding_token_leave_it_out() {
    let model = BertModel::load(&files(&directory("xlm-roberta-cls"))).unwrap();
    assert_eq!(model.config.padding, Some(0));
    assert_eq!(model.positions_of(&[2, 5, 0, 6]), [1, 2, 0, 3]);
}

#[test]
fn a_checkpoint_of_another_shape_is_refused_with_every_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let source = directory("bert-mean");
    std::fs::copy(source.join("model.safetensors"), dir.path().join("model.safetensors")).unwrap();
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let with = |from: &str, to: &str| {
        assert!(config.contains(from), "{config}");
        std::fs::write(dir.path().join("config.json"), config.replace(from, to)).unwrap();
        BertModel::load(&files(dir.path())).err().unwrap().to_string()
    };
    let fewer = with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    assert!(
        fewer.contains("`encoder.layer.1.attention.output.LayerNorm.bias` is not part"),
        "{fewer}"
    );
    let more = with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    assert!(
        more.contains("`encoder.layer.2.attention.self.query.weight` [12, 12] is missing"),
        "{more}"
    );
    let wide = with("\"intermediate_size\": 20", "\"intermediate_size\": 24");
    assert!(wide.contains("is [20, 12]; config.json asks for [24, 12]"), "{wide}");
    let other = with("\"model_type\": \"bert\"", "\"model_type\": \"t5\"");
    assert!(other.ends_with(
        "`model_type` is none of \"bert\", \"distilbert\", \"roberta\", \"xlm-roberta\""
    ));
}
