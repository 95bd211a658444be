//! Headers of safetensors files.

use std::collections::BTreeMap;
use std::ops::Range;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

/// Position and shape of a tensor.
pub(super) struct Stored {
    pub(super) file: usize,
    pub(super) span: Range<usize>,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
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
        Self { file, span, dtype: info.dtype, shape: info.shape.clone() }
    }
}
