//! Size of a model, from the headers of its files; no number is read.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::ModelSource;
use crate::files::{HfConfig, ModelFiles, Shards, builtin};
use crate::files::{open_file, read_file, weight_map};

/// Weights as PyTorch pickles them: one file, or the index of several.
const PICKLED: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// Headers larger than this are damage, not headers.
const MAX_HEADER: u64 = 100_000_000;

/// The number of parameters of a model. One on the hub is not downloaded for that: its `config.json` says how many it has.
///
/// # Errors
///
/// Problem of the directory: a file that is missing or damaged.
pub fn parameters(source: &ModelSource) -> Result<u64, String> {
    match source {
        ModelSource::Hub(snapshot) => configured_parameters(&snapshot.dir, source),
        ModelSource::Gguf(_) => mapped(source),
        ModelSource::Builtin(name) => {
            let bytes = builtin::model_file(name, "model.safetensors")
                .ok_or_else(|| format!("builtin:{name} has no weights"))?;
            Ok(size(&header(bytes, bytes.len() as u64)?))
        }
        ModelSource::Directory(dir) => match directory(dir)? {
            Some(headers) => Ok(headers.iter().map(size).sum()),
            None => mapped(source),
        },
    }
}

/// The number of parameters in files that are no safetensors.
fn mapped(source: &ModelSource) -> Result<u64, String> {
    let shards = Shards::open(&ModelFiles::new(source)).map_err(|error| error.to_string())?;
    Ok(shards.stored_types().values().map(|[numbers, _]| numbers).sum())
}

/// The number of parameters in a file. A byte of a block of MXFP4 has two numbers, and its scales have none.
fn size(header: &Metadata) -> u64 {
    let tensors = header.tensors().into_iter();
    let sizes = tensors.map(|(name, tensor)| match tensor.dtype {
        Dtype::U8 if name.ends_with("_blocks") => 2 * numbers(&tensor.shape),
        Dtype::U8 if name.ends_with("_scales") => 0,
        _ => numbers(&tensor.shape),
    });
    sizes.sum()
}

fn numbers(shape: &[usize]) -> u64 {
    shape.iter().map(|&n| n as u64).product()
}

/// True for a directory with configuration and tokenizer of a model, and no file of weights of any kind.
pub fn absent(source: &ModelSource) -> bool {
    let ModelSource::Directory(dir) = source else { return false };
    let is_model = ["config.json", "tokenizer.json"].iter().all(|file| dir.join(file).is_file());
    let mut files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    is_model && !files.any(|entry| is_weights(&entry.file_name().to_string_lossy()))
}

/// Returns true for the name of a file of weights of any kind.
fn is_weights(name: &str) -> bool {
    let kinds = ["safetensors", "bin", "gguf", "pt", "pth"];
    name.ends_with(".safetensors.index.json")
        || Path::new(name).extension().is_some_and(|kind| kinds.iter().any(|k| kind == *k))
}

/// The number of parameters that the `config.json` in a model's directory describes.
///
/// # Errors
///
/// Problem of the file.
pub fn configured_parameters(dir: &Path, source: &ModelSource) -> Result<u64, String> {
    let path = dir.join("config.json");
    let text = read_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let config = HfConfig::parse(&text).map_err(|error| format!("{source}: {error}"))?;
    Ok(config.tensors().iter().map(|(_, shape)| numbers(shape)).sum())
}

/// The headers of the safetensors files in a model's directory; `None` if PyTorch pickled its weights.
fn directory(dir: &Path) -> Result<Option<Vec<Metadata>>, String> {
    if !dir.is_dir() {
        return Err(format!("{} is not a directory", dir.display()));
    }
    for file in ["config.json", "tokenizer.json"] {
        if !dir.join(file).is_file() {
            return Err(format!("{} has no `{file}`", dir.display()));
        }
    }
    let single = dir.join("model.safetensors");
    if single.is_file() {
        return Ok(Some(vec![file(&single)?]));
    }
    let index = dir.join("model.safetensors.index.json");
    if !index.is_file() && PICKLED.iter().any(|name| dir.join(name).is_file()) {
        return Ok(None);
    }
    if !index.is_file() {
        return Err(format!(
            "{} has neither `model.safetensors` nor `model.safetensors.index.json`",
            dir.display()
        ));
    }
    shards(&index)?.iter().map(|shard| file(&dir.join(shard))).collect::<Result<_, _>>().map(Some)
}

fn shards(index: &Path) -> Result<BTreeSet<String>, String> {
    let text = read_file(index).map_err(|error| format!("{}: {error}", index.display()))?;
    let files = weight_map(&text)
        .map_err(|problem| format!("{} is damaged: {problem}", index.display()))?;
    Ok(files.into_values().collect())
}

/// The header of a safetensors file.
pub fn file(path: &Path) -> Result<Metadata, String> {
    let opened = open_file(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (length, file) = opened.map_err(|error| format!("{}: {error}", path.display()))?;
    header(file, length).map_err(|what| format!("{} is damaged: {what}", path.display()))
}

/// The header of a file of `found` bytes, which must be as long as its header says.
fn header(mut file: impl Read, found: u64) -> Result<Metadata, String> {
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|_| "it is too short for a header".to_owned())?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER || length + 8 > found {
        return Err(format!("a header of {length} bytes in a file of {found}"));
    }
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let metadata: Metadata =
        serde_json::from_slice(&bytes).map_err(|error| format!("its header: {error}"))?;
    let expected = (8 + length).saturating_add(metadata.data_len() as u64);
    if expected != found {
        return Err(format!("it has {found} bytes where its header promises {expected}"));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn safetensors(shapes: &[&[usize]]) -> Vec<u8> {
        let mut at = 0;
        let mut map = serde_json::Map::new();
        for (i, shape) in shapes.iter().enumerate() {
            let end = at + 4 * shape.iter().product::<usize>();
            let info =
                serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [at, end] });
            map.insert(format!("t{i}"), info);
            at = end;
        }
        let header = serde_json::to_vec(&map).unwrap();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.resize(bytes.len() + at, 0);
        bytes
    }

    fn model(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        dir
    }

    fn counted(dir: &Path) -> Result<u64, String> {
        parameters(&ModelSource::Directory(dir.to_owned()))
    }

    #[test]
    fn parameters_are_counted_from_headers() {
        let one = safetensors(&[&[3, 4], &[5]]);
        let dir = model(&[
            ("config.json", b"{}"),
            ("tokenizer.json", b"{}"),
            ("model.safetensors", &one),
        ]);
        assert_eq!(counted(dir.path()), Ok(17));

        let index = br#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}}"#;
        let two = safetensors(&[&[2]]);
        let dir = model(&[
            ("config.json", b"{}"),
            ("tokenizer.json", b"{}"),
            ("model.safetensors.index.json", index),
            ("1.safetensors", &one),
            ("2.safetensors", &two),
        ]);
        assert_eq!(counted(dir.path()), Ok(19));
    }

    #[test]
    fn weights_are_absent_only_where_a_model_has_no_file_of_them() {
        let absent_in = |names: &[&str]| {
            let files: Vec<_> = names.iter().map(|name| (*name, &b"{}"[..])).collect();
            let dir = model(&files);
            absent(&ModelSource::Directory(dir.path().to_owned()))
        };
        let bare = ["config.json", "tokenizer.json", "generation_config.json"];
        assert!(absent_in(&bare));
        assert!(!absent_in(&bare[..1]), "no tokenizer");
        for weights in [
            "model.safetensors",
            "model.safetensors.index.json",
            "model-00001-of-00002.safetensors",
            "pytorch_model.bin",
            "model.gguf",
        ] {
            assert!(!absent_in(&[&bare[..], &[weights]].concat()), "{weights}");
        }
        assert!(!absent(&ModelSource::Builtin("tiny".to_owned())));
    }

    #[test]
    fn missing_and_damaged_files_are_named() {
        let whole = safetensors(&[&[3, 4]]);
        let half = &whole[..whole.len() - 5];
        type Files<'a> = &'a [(&'a str, &'a [u8])];
        let cases: [(Files<'_>, &str); 6] = [
            (&[], "has no `config.json`"),
            (&[("config.json", b"{}")], "has no `tokenizer.json`"),
            (&[("config.json", b"{}"), ("tokenizer.json", b"{}")], "neither `model.safetensors`"),
            (
                &[
                    ("config.json", b"{}"),
                    ("tokenizer.json", b"{}"),
                    ("model.safetensors.index.json", b"{"),
                ],
                "index.json is damaged",
            ),
            (
                &[("config.json", b"{}"), ("tokenizer.json", b"{}"), ("model.safetensors", half)],
                "bytes where its header promises",
            ),
            (
                &[("config.json", b"{}"), ("tokenizer.json", b"{}"), ("model.safetensors", b"x")],
                "too short for a header",
            ),
        ];
        for (files, expected) in cases {
            let dir = model(files);
            let error = counted(dir.path()).unwrap_err();
            assert!(error.contains(expected), "{error:?} does not say {expected:?}");
        }
    }
}
