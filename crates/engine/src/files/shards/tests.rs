#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::files::ModelSource;
use crate::net::Weights;
use crate::net::tests::mutation::{fuzz, length_fits};

fn config() -> HfConfig {
    let config = json!({
        "model_type": "llama", "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 6, "vocab_size": 5, "max_position_embeddings": 16,
        "tie_word_embeddings": true
    });
    HfConfig::parse(config.to_string().as_bytes()).unwrap()
}

/// A safetensors file of zeros.
fn file(tensors: &[(String, Vec<usize>)], dtype: &str, width: usize) -> Vec<u8> {
    let (mut header, mut at) = (serde_json::Map::new(), 0);
    for (name, shape) in tensors {
        let end = at + width * shape.iter().product::<usize>();
        let info = json!({"dtype": dtype, "shape": shape, "data_offsets": [at, end]});
        header.insert(name.clone(), info);
        at = end;
    }
    assembled(&Value::Object(header).to_string(), at)
}

/// A file of a header and so many bytes.
fn assembled(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

fn directory(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn load(dir: &tempfile::TempDir) -> Result<Weights, String> {
    let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
    let place = format!("{}", dir.path().display());
    Weights::load(&files, &config()).map_err(|e| e.to_string().replace(&place, "DIR"))
}

/// The tensors in two shards, and their index.
fn shards() -> (Vec<u8>, Vec<u8>, Value) {
    let tensors = config().tensors();
    let (a, b) = tensors.split_at(4);
    let places =
        a.iter().map(|t| (t, "a.safetensors")).chain(b.iter().map(|t| (t, "b.safetensors")));
    let map: serde_json::Map<String, Value> =
        places.map(|((name, _), file)| (name.clone(), file.into())).collect();
    (file(a, "F32", 4), file(b, "F32", 4), json!({"metadata": {}, "weight_map": map}))
}

#[test]
fn every_supported_type_is_read_as_f32() {
    for (dtype, width) in [("F32", 4), ("F16", 2), ("BF16", 2)] {
        let dir = directory(&[(SINGLE, &file(&config().tensors(), dtype, width))]);
        let weights = load(&dir).unwrap();
        assert_eq!(weights.vars().len(), config().tensors().len());
        assert!(weights.vars().iter().all(|(_, var)| var.values().len() == var.elem_count()));
    }
}

#[test]
fn missing_extra_misshapen_and_mistyped_tensors_are_reported_at_once() {
    let mut tensors = config().tensors();
    tensors[0].1 = vec![5, 3];
    tensors.remove(1);
    tensors.push(("pooler.weight".to_owned(), vec![1, 4]));
    assert_eq!(
        load(&directory(&[(SINGLE, &file(&tensors, "F32", 4))])).err().unwrap(),
        "DIR: `model.embed_tokens.weight` is [5, 3]; config.json asks for [5, 4]; \
         `model.layers.0.input_layernorm.weight` [4] is missing; `pooler.weight` is not part of \
         this architecture"
    );
    let error = load(&directory(&[(SINGLE, &file(&config().tensors(), "I8", 1))])).err().unwrap();
    assert!(error.contains("`model.embed_tokens.weight` is I8; f32, f16 or bf16"), "{error}");
    assert_eq!(error.matches("is I8").count(), 8, "{error}");
    let more = format!("; and {} more", config().tensors().len() - 8);
    assert!(error.ends_with(&more), "{error}");
}

#[test]
fn a_tied_head_may_be_stored_all_the_same() {
    let mut tensors = config().tensors();
    tensors.push(("lm_head.weight".to_owned(), vec![5, 4]));
    let weights = load(&directory(&[(SINGLE, &file(&tensors, "F32", 4))])).unwrap();
    assert_eq!(weights.vars().len(), config().tensors().len());
}

#[test]
fn a_configuration_of_more_layers_than_tensors_is_one_line() {
    let shards = Shards { files: Vec::new(), tensors: BTreeMap::new() };
    let layers = vec![config().layers[0].clone(); 1024];
    let error = shards.check(&HfConfig { layers, ..config() }).unwrap_err();
    assert_eq!(error, "config.json asks for 1024 layers; there are 0 tensors");
}

#[test]
fn an_index_must_say_where_every_tensor_is() {
    let (a, b, index) = shards();
    let text = index.to_string();
    let good = [("a.safetensors", &a[..]), ("b.safetensors", &b), (INDEX, text.as_bytes())];
    assert_eq!(load(&directory(&good)).unwrap().vars().len(), config().tensors().len());

    let error = load(&directory(&[("a.safetensors", &b), (INDEX, text.as_bytes())])).err().unwrap();
    let expected = [
        "DIR: model.safetensors.index.json: `model.embed_tokens.weight` is not in a.safetensors; ",
        "DIR/b.safetensors: No such file or directory (os error 2), where 7 tensors should be",
    ];
    assert!(error.starts_with(expected[0]) && error.ends_with(expected[1]), "{error}");

    let damaged = [("a.safetensors", &a[..]), ("b.safetensors", b"x"), (INDEX, text.as_bytes())];
    let error = load(&directory(&damaged)).err().unwrap();
    assert!(
        error.contains("b.safetensors is damaged or not safetensors: it is too short"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_no_index_is_refused() {
    let cases = [
        ("", "not JSON"),
        ("{}", "no `weight_map`"),
        (r#"{"weight_map": {"x": 1}}"#, "`x` names no file"),
        (
            r#"{"weight_map": {"x": "../a"}}"#,
            "`x` is in \"../a\"; a file beside the index is needed",
        ),
        (r#"{"weight_map": {"x": "/etc/passwd"}}"#, "a file beside the index is needed"),
        (r#"{"weight_map": {"x": ".."}}"#, "a file beside the index is needed"),
        (r#"{"weight_map": {"x": ""}}"#, "a file beside the index is needed"),
    ];
    for (index, expected) in cases {
        let error = load(&directory(&[(INDEX, index.as_bytes())])).err().unwrap();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
    let error = load(&directory(&[])).err().unwrap();
    assert_eq!(error, format!("DIR has neither `{SINGLE}` nor `{INDEX}`"));
}

#[test]
fn a_damaged_header_is_an_error() {
    let huge = u64::MAX / 16;
    let far = u64::MAX - 7;
    let cases = [
        (b"abc".to_vec(), "too short for a header"),
        (u64::MAX.to_le_bytes().to_vec(), "a header of 18446744073709551615 bytes in a file of 8"),
        (assembled("{", 0), "its header"),
        (assembled("{}", 5), "5 bytes of tensors where its header promises 0"),
        (
            assembled(r#"{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, 3),
            "3 bytes of tensors where its header promises 4",
        ),
        (
            assembled(
                &format!(
                    r#"{{"x":{{"dtype":"F32","shape":[{huge},{huge}],"data_offsets":[0,4]}}}}"#
                ),
                4,
            ),
            "its header",
        ),
        (
            assembled(
                &format!(r#"{{"x":{{"dtype":"U8","shape":[{far}],"data_offsets":[0,{far}]}}}}"#),
                0,
            ),
            "its header",
        ),
    ];
    for (bytes, expected) in cases {
        let error = stored_tensors(&bytes, 0).err().unwrap();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
}

#[test]
fn damaged_headers_are_errors_or_work_and_cost_what_their_file_costs() {
    let config = config();
    let whole = file(&config.tensors(), "F32", 4);
    let empty: Vec<_> = config.tensors().into_iter().map(|(name, _)| (name, vec![0])).collect();
    let files = [whole, file(&empty, "F32", 4)];
    let mut odd = 0_u64;
    fuzz("model.safetensors", &files, 64, |bytes| {
        odd += 1;
        let mut bytes = bytes.to_vec();
        if odd.is_multiple_of(2) {
            length_fits(&mut bytes);
        }
        let Ok(tensors) = stored_tensors(&bytes, 0) else { return false };
        let inside = |stored: &Stored| bytes.get(stored.span.clone()).is_some();
        assert!(tensors.values().all(inside));
        Shards { files: Vec::new(), tensors }.check(&config).is_ok()
    });
}

#[test]
fn damaged_indices_are_errors_or_work_and_cost_what_their_file_costs() {
    let (a, b, index) = shards();
    let dir = directory(&[("a.safetensors", &a), ("b.safetensors", &b)]);
    let index = format!("{index:#}").into_bytes();
    fuzz(INDEX, &[index], 64, |bytes| {
        Shards::open_sharded(dir.path(), bytes, Shards::open_file)
            .is_ok_and(|shards| shards.check(&config()).is_ok())
    });
}
