//! Headers of safetensors files.

use std::collections::BTreeMap;
use std::ops::Range;

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

#[cfg(feature = "candle")]
use crate::files::gguf::NumberKind;
#[cfg(feature = "candle")]
use crate::files::gguf::write::{Change, to_halves};

/// Position and shape of a tensor.
pub(super) struct Stored {
    pub(super) file: usize,
    pub(super) span: Range<usize>,
    pub(super) form: Form,
    pub(super) shape: Vec<usize>,
}

/// Numbers of a tensor in a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// Rows, one after the other.
    Rows(Dtype),
    /// Columns of a matrix, one after the other.
    Columns(Dtype),
    /// Numbers of a GGUF file, and their change.
    #[cfg(feature = "candle")]
    Gguf(NumberKind, Change),
}

impl Form {
    /// Returns the type of numbers that are not those of a GGUF file.
    pub(super) fn dtype(self) -> Option<Dtype> {
        match self {
            Self::Rows(dtype) | Self::Columns(dtype) => Some(dtype),
            #[cfg(feature = "candle")]
            Self::Gguf(..) => None,
        }
    }

    /// Returns true if the numbers can be read.
    pub(super) fn is_supported(self) -> bool {
        self.dtype().is_none_or(is_supported)
    }

    /// Returns the name of the type, for `maverl inspect`.
    pub(super) fn name(self) -> String {
        match self {
            Self::Rows(dtype) | Self::Columns(dtype) => format!("{dtype:?}").to_lowercase(),
            #[cfg(feature = "candle")]
            Self::Gguf(kind, _) => kind.name().to_lowercase(),
        }
    }
}

/// The tensors of a safetensors file, by name.
pub(super) fn stored_tensors(
    bytes: &[u8],
    file: usize,
) -> Result<BTreeMap<String, Stored>, String> {
    let (length, rest) = bytes.split_first_chunk().ok_or("it is too short for a header")?;
    let length = u64::from_le_bytes(*length);
    let (header, data) = usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length))
        .ok_or_else(|| format!("a header of {length} bytes in a file of {}", bytes.len()))?;
    let metadata: Metadata =
        serde_json::from_slice(header).map_err(|e| format!("its header: {e}"))?;
    let (expected, found) = (metadata.data_len(), data.len());
    if expected != found {
        return Err(format!("{found} bytes of tensors where its header promises {expected}"));
    }
    let start = 8 + header.len();
    let tensors = metadata.tensors().into_iter();
    Ok(tensors.map(|(name, info)| (name, Stored::stored_at(file, start, info))).collect())
}

impl Stored {
    /// Returns a tensor of a file whose data begin at `start`.
    fn stored_at(file: usize, start: usize, info: &TensorInfo) -> Self {
        let (from, to) = info.data_offsets;
        let span = start + from..start + to;
        Self { file, span, form: Form::Rows(info.dtype), shape: info.shape.clone() }
    }

    /// Writes the numbers as f32; false if they are of a type that is not supported.
    pub(super) fn read(&self, bytes: &[u8], to: &mut [f32]) -> bool {
        match self.form {
            Form::Rows(dtype) => numbers(dtype, bytes, to),
            Form::Columns(dtype) => {
                let mut columns = vec![0.0; to.len()];
                let read = numbers(dtype, bytes, &mut columns);
                let rows = self.shape.first().copied().unwrap_or(1).max(1);
                let width = to.len() / rows;
                to.iter_mut()
                    .enumerate()
                    .for_each(|(i, to)| *to = columns[i % width * rows + i / width]);
                read
            }
            #[cfg(feature = "candle")]
            Form::Gguf(kind, change) => {
                let columns =
                    if self.shape.len() < 2 { 1 } else { self.shape[self.shape.len() - 1] };
                let read = kind.read(bytes, to);
                match change {
                    Change::None => {}
                    Change::PlusOne => to.iter_mut().for_each(|value| *value -= 1.0),
                    Change::Pairs(heads) => to_halves(to, heads, columns),
                }
                read
            }
        }
    }
}

/// Returns true if numbers of a type are read.
pub(super) fn is_supported(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

/// Writes numbers of a supported type as f32; false if the type is another.
pub(super) fn numbers(dtype: Dtype, data: &[u8], to: &mut [f32]) -> bool {
    match dtype {
        Dtype::F32 => decode(data, to, f32::from_le_bytes),
        Dtype::F16 => decode(data, to, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Dtype::BF16 => decode(data, to, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => return false,
    }
    true
}

/// Numbers of `N` little-endian bytes each.
fn decode<const N: usize>(data: &[u8], to: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    to.iter_mut().zip(data.as_chunks::<N>().0).for_each(|(to, bytes)| *to = number(*bytes));
}
