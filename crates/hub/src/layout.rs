//! Files of a model directory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// File of weights, if there is one.
pub const SINGLE: &str = "model.safetensors";
/// Index of the files of weights, if there are several.
pub const INDEX: &str = "model.safetensors.index.json";

/// File of weights as PyTorch pickles them, if there is one, and no safetensors.
pub const PICKLED: &str = "pytorch_model.bin";
/// Index of the files of pickled weights, if there are several.
pub const PICKLED_INDEX: &str = "pytorch_model.bin.index.json";

/// Largest size in bytes of a file that is read as a whole.
const LARGEST: u64 = 1 << 30;

/// Opens a regular file. Others are refused before they are opened: a pipe may have no writer, and a device no end.
///
/// # Errors
///
/// If it does not exist, is no regular file, or cannot be opened.
pub fn open_file(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"))
}

/// Reads a regular file of at most 1 GiB as a whole.
///
/// # Errors
///
/// If it does not exist, is something else, or cannot be read.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than 1 GiB"));
    }
    Ok(bytes)
}

/// Names of the files beside the weights that a saved directory gets unchanged.
pub const COMPANIONS: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
];

/// Files of sentence-transformers beside those of a model: the steps after it, and its longest text.
const SENTENCE: [&str; 2] = ["modules.json", "sentence_bert_config.json"];

/// Returns true for a file that says how an encoder makes one vector of a text, as `modules.json` and `1_Pooling/config.json`.
pub(crate) fn is_of_sentences(name: &str) -> bool {
    let pooling = name.strip_suffix("_Pooling/config.json");
    SENTENCE.contains(&name) || pooling.is_some_and(|at| !at.contains('/'))
}

/// The file of each tensor, as an index says it.
///
/// # Errors
///
/// If it is no JSON object with the files of tensors, or names a file that is not beside it.
pub fn weight_map(index: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let index: serde_json::Value =
        serde_json::from_slice(index).map_err(|e| format!("not JSON: {e}"))?;
    let map = index.get("weight_map").and_then(|map| map.as_object()).ok_or("no `weight_map`")?;
    let files = map.iter().map(|(tensor, file)| {
        let file = file.as_str().ok_or_else(|| format!("`{tensor}` names no file"))?;
        if Path::new(file).file_name() != Some(OsStr::new(file)) {
            return Err(format!("`{tensor}` is in {file:?}; a file beside the index is needed"));
        }
        Ok((tensor.clone(), file.to_owned()))
    });
    files.collect()
}

/// Returns true if a file is there, with a listed size.
pub(crate) fn has_size(path: &Path, size: Option<u64>) -> bool {
    let length = std::fs::metadata(path).ok().map(|file| file.len());
    length.is_some_and(|length| size.is_none_or(|size| size == length))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_without_an_end_are_refused_before_they_are_opened() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(made.success());
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::fs::create_dir(path("directory")).unwrap();
        for (name, target) in [
            ("zero", "/dev/zero"),
            ("random", "/dev/urandom"),
            ("null", "/dev/null"),
            ("link", "pipe"),
        ] {
            std::os::unix::fs::symlink(target, path(name)).unwrap();
        }
        for name in ["pipe", "socket", "directory", "zero", "random", "null", "link"] {
            let refused = read_file(&path(name)).unwrap_err();
            assert_eq!(refused.to_string(), "it is no regular file", "{name}");
        }
        assert_eq!(read_file(&path("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
        File::create(path("small")).unwrap().set_len(3).unwrap();
        std::os::unix::fs::symlink("small", path("linked")).unwrap();
        assert_eq!(read_file(&path("linked")).unwrap(), [0; 3]);
    }
}
