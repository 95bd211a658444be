//! Quantities of every trained token of a step: `samples/step-000012.tokens.safetensors.zst`.
//!
//! Tensor `offsets` (I64) has the index of the first token of each sample, and at last the number of all tokens. Every
//! other tensor (F16) has a value per token.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::f16;
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::RunDir;
use super::error::{At, RunDirError, damaged_error, encode_error};
use super::packed::pack_bytes;
use crate::IntoMap;

/// Name of the tensor of indices.
const OFFSETS: &str = "offsets";
/// Maximum size of a file, in bytes before compression.
const MOST: u64 = 4 << 30;

/// Quantities of the tokens of a step's samples, in the order of the samples.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct TokenRecord {
    /// Index of the first token of each sample, and at last the number of all tokens.
    pub offsets: Vec<usize>,
    /// Values of each quantity by its name, one a token; NaN if unknown. Files have half precision.
    ///
    /// - `entropy`: entropy in nats at the first optimizer step of the sample.
    /// - `reference`: log-prob of the trainer minus that of the reference, at the same step.
    /// - `moved`: log-ratio in the loss at the last optimizer step of the sample.
    /// - `mismatch`: log-prob of the trainer before the update minus that of the sampler, whose weights may be older.
    pub columns: BTreeMap<String, Vec<f32>>,
}

impl TokenRecord {
    /// Returns the record of samples: for each, the values of its tokens by the name of the quantity.
    #[doc(hidden)]
    pub fn of<'s>(
        samples: impl Iterator<Item = (usize, BTreeMap<&'static str, &'s [f32]>)>,
    ) -> Self {
        let mut record = Self { offsets: vec![0], columns: BTreeMap::new() };
        for (tokens, values) in samples {
            let start = record.offsets.last().copied().unwrap_or_default();
            record.offsets.push(start + tokens);
            for (name, values) in values.into_iter().filter(|(_, values)| values.len() == tokens) {
                let column = record.columns.entry(name.to_owned()).or_default();
                column.resize(start, f32::NAN);
                column.extend(values);
            }
        }
        let tokens = record.offsets.last().copied().unwrap_or_default();
        record.columns.values_mut().for_each(|column| column.resize(tokens, f32::NAN));
        // A quantity that is unknown everywhere needs no column.
        record.columns.retain(|_, column| column.iter().any(|value| !value.is_nan()));
        record
    }

    /// Returns the values of a sample's tokens by the name of the quantity.
    pub fn of_sample(&self, sample: usize) -> BTreeMap<&str, &[f32]> {
        let Some(range) = self.range(sample) else { return BTreeMap::new() };
        let columns = self.columns.iter();
        columns
            .filter_map(|(name, column)| Some((name.as_str(), column.get(range.clone())?)))
            .into_map()
    }

    fn range(&self, sample: usize) -> Option<Range<usize>> {
        Some(*self.offsets.get(sample)?..*self.offsets.get(sample + 1)?)
    }
}

/// Encodes the content of a file.
fn encode(path: &Path, record: &TokenRecord) -> Result<Vec<u8>, RunDirError> {
    let bytes = tensor_bytes(record).map_err(|error| encode_error(path, error))?;
    pack_bytes(Vec::new(), &bytes).at("compress", path)
}

/// Encodes the content of a file before compression.
fn tensor_bytes(record: &TokenRecord) -> Result<Vec<u8>, SafeTensorError> {
    let offsets: Vec<u8> =
        record.offsets.iter().flat_map(|at| (*at as i64).to_le_bytes()).collect();
    let columns: Vec<(&str, Vec<u8>)> =
        record.columns.iter().map(|(name, column)| (name.as_str(), half_bytes(column))).collect();
    let shape = vec![record.offsets.len()];
    let mut tensors = vec![(OFFSETS, TensorView::new(Dtype::I64, shape, &offsets)?)];
    for (name, bytes) in &columns {
        tensors.push((name, TensorView::new(Dtype::F16, vec![bytes.len() / 2], bytes)?));
    }
    safetensors::serialize(tensors, None)
}

fn half_bytes(column: &[f32]) -> Vec<u8> {
    column.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect()
}

/// Reads the quantities of the tokens of a step.
///
/// # Errors
///
/// If the file cannot be read, or is damaged.
pub fn read_tokens(path: &Path) -> Result<TokenRecord, RunDirError> {
    let file = std::fs::File::open(path).at("open", path)?;
    let mut bytes = Vec::new();
    let mut text = std::io::Read::take(zstd::Decoder::new(file).at("read", path)?, MOST);
    std::io::Read::read_to_end(&mut text, &mut bytes).at("read", path)?;
    decode(&bytes).map_err(|reason| damaged_error(path, reason))
}

/// Decodes the content of a file.
fn decode(bytes: &[u8]) -> Result<TokenRecord, String> {
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut record = TokenRecord::default();
    for (name, tensor) in tensors.iter() {
        let data = tensor.data();
        match (name, tensor.dtype()) {
            (OFFSETS, Dtype::I64) => {
                let offsets = data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
                let offsets: Result<_, _> = offsets.map(usize::try_from).collect();
                record.offsets = offsets.map_err(|_| "an offset is negative")?;
            }
            (name, Dtype::F16) => {
                let column = data.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes));
                record.columns.insert(name.to_owned(), column.map(f16::to_f32).collect());
            }
            (name, dtype) => return Err(format!("tensor `{name}` has the type {dtype:?}")),
        }
    }
    let tokens = record.offsets.last().copied().unwrap_or_default();
    let fits = record.columns.values().all(|column| column.len() == tokens);
    if fits && record.offsets.is_sorted() && record.offsets.first() == Some(&0) {
        Ok(record)
    } else {
        Err("its offsets do not fit its columns".to_owned())
    }
}

impl RunDir {
    /// Returns the path of the quantities of the tokens of a step.
    pub fn tokens(&self, step: u64) -> PathBuf {
        self.path.join(file(step))
    }

    /// Writes the quantities of the tokens of a step.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_tokens(&mut self, step: u64, record: &TokenRecord) -> Result<(), RunDirError> {
        let bytes = encode(&self.tokens(step), record)?;
        self.write_listed(file(step), &bytes)
    }
}

fn file(step: u64) -> String {
    format!("samples/step-{step:06}.tokens.safetensors.zst")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn record() -> TokenRecord {
        let entropy: [&[f32]; 3] = [&[0.5, 1.25], &[], &[2.0]];
        let moved: &[f32] = &[-0.125];
        let sample = |i: usize| {
            let mut values = BTreeMap::from([("entropy", entropy[i])]);
            values.insert("reference", &[f32::NAN; 2][..entropy[i].len()]);
            if i == 2 {
                values.insert("moved", moved);
            }
            (entropy[i].len(), values)
        };
        TokenRecord::of((0..3).map(sample))
    }

    #[test]
    fn quantities_of_tokens_read_back_by_sample_in_half_precision() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.tokens.safetensors.zst");
        let bytes = encode(&path, &record()).unwrap();
        assert_eq!(bytes, encode(&path, &record()).unwrap(), "equal records, equal files");
        std::fs::write(&path, &bytes).unwrap();
        let read = read_tokens(&path).unwrap();
        assert_eq!(read.offsets, [0, 2, 2, 3]);
        let names: Vec<&String> = read.columns.keys().collect();
        assert_eq!(names, ["entropy", "moved"], "what is unknown everywhere has no column");
        assert_eq!(read.of_sample(0)["entropy"], [0.5, 1.25]);
        assert!(read.of_sample(0)["moved"].iter().all(|value| value.is_nan()));
        assert_eq!(read.of_sample(2)["moved"], [-0.125]);
        assert!(read.of_sample(3).is_empty());
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.tokens.safetensors.zst");
        let mut wrong = record();
        wrong.offsets.pop();
        let bytes = encode(&path, &wrong).unwrap();
        for bytes in [&bytes[..], &bytes[..bytes.len() / 2], b"", b"text"] {
            std::fs::write(&path, bytes).unwrap();
            let error = read_tokens(&path).unwrap_err().to_string();
            assert!(error.contains("step-000001.tokens"), "{error}");
        }
    }
}
