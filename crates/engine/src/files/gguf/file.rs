//! A GGUF file, with access to its metadata.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

use super::header::{GgufHeader, MetaValue, TensorPlace};
use super::kinds::NumberKind;
use super::names::Architecture;
use crate::files::map::map_file;
use crate::files::{ModelError, ModelErrorKind};

/// A GGUF file, memory-mapped.
pub(crate) struct GgufFile {
    path: PathBuf,
    bytes: Arc<Mmap>,
    pub(super) header: GgufHeader,
    pub(crate) architecture: &'static Architecture,
}

impl GgufFile {
    /// Opens a file, and looks at the kinds of all tensors.
    ///
    /// # Errors
    ///
    /// If it is damaged, or has an architecture or tensors of kinds that are not read.
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let bytes = map_file(path)?;
        let place = path.display();
        let invalid =
            |what: String| ModelError::new(ModelErrorKind::Invalid, format!("{place}: {what}"));
        let header = GgufHeader::read(&bytes).map_err(invalid)?;
        let architecture = architecture(&header, &bytes).map_err(invalid)?;
        Ok(Self { path: path.to_owned(), bytes: Arc::new(bytes), header, architecture })
    }

    /// Returns the error of a value in the file.
    pub(crate) fn invalid(&self, what: impl std::fmt::Display) -> ModelError {
        let message = format!("{}: {what}", self.path.display());
        ModelError::new(ModelErrorKind::Invalid, message)
    }

    /// Returns the bytes of the file, to be shared.
    pub(crate) fn bytes(&self) -> Arc<Mmap> {
        Arc::clone(&self.bytes)
    }

    /// Returns the numbers of heads of queries and of keys.
    pub(crate) fn heads(&self) -> [usize; 2] {
        let name = self.architecture.name;
        let count = |key: &str| self.whole(&format!("{name}.attention.{key}"));
        let q = count("head_count").unwrap_or(1);
        let counts = [q, count("head_count_kv").unwrap_or(q)];
        counts.map(|count| usize::try_from(count).unwrap_or(1).clamp(1, 1 << 20))
    }

    /// Returns the tensors by their names in the file.
    pub(crate) fn tensors(&self) -> &BTreeMap<String, TensorPlace> {
        &self.header.tensors
    }

    pub(super) fn value(&self, key: &str) -> Option<&MetaValue> {
        self.header.metadata.get(key)
    }

    /// Returns a number, or a flag as 0 or 1; `None` if the key is missing or something else.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.value(key)?.number()
    }

    /// Returns a whole number that is not negative.
    pub(super) fn whole(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            MetaValue::Unsigned(n) => Some(*n),
            MetaValue::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// Returns a text.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        text(self.value(key)?, &self.bytes)
    }

    /// Returns a list of texts.
    pub(super) fn texts(&self, key: &str) -> Option<Vec<&str>> {
        match self.value(key)? {
            MetaValue::List(list) => list.texts(&self.bytes),
            _ => None,
        }
    }

    /// Returns a list of numbers or flags.
    pub(super) fn numbers(&self, key: &str) -> Option<Vec<f64>> {
        match self.value(key)? {
            MetaValue::List(list) => list.numbers(&self.bytes),
            _ => None,
        }
    }

    /// Returns the numbers of a tensor of one dimension, if it is there as f32.
    pub(super) fn row(&self, tensor: &str) -> Option<Vec<f32>> {
        let place = self.tensors().get(tensor)?;
        let bytes = &self.bytes[place.span.clone()];
        let row = place.dims.len() == 1 && place.kind == NumberKind::F32;
        row.then(|| bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

/// Returns a text of metadata.
fn text<'a>(value: &MetaValue, bytes: &'a [u8]) -> Option<&'a str> {
    match value {
        MetaValue::Text(range) => std::str::from_utf8(&bytes[range.clone()]).ok(),
        _ => None,
    }
}

/// Returns the architecture that a file names.
fn architecture(header: &GgufHeader, bytes: &[u8]) -> Result<&'static Architecture, String> {
    const KEY: &str = "general.architecture";
    let kind = header.metadata.get("general.type").and_then(|value| text(value, bytes));
    if let Some(kind) = kind.filter(|kind| *kind != "model") {
        return Err(format!("general.type is {kind:?}; a model is needed"));
    }
    let parts = header.metadata.get("split.count").and_then(MetaValue::number).unwrap_or(1.0);
    if parts > 1.0 {
        return Err(format!(
            "it is a part of {parts}; `llama-gguf-split --merge` of llama.cpp makes one file of all"
        ));
    }
    let name = header.metadata.get(KEY).and_then(|value| text(value, bytes));
    let name = name.ok_or_else(|| format!("`{KEY}` is missing, or no text"))?;
    Architecture::named(name)
        .ok_or_else(|| format!("{KEY} is {name:?}; read are {}", Architecture::names()))
}
