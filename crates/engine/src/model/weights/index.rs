//! Headers of safetensors files, and the index of shards.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use safetensors::tensor::{Metadata, TensorInfo};

use super::Stored;

/// The tensors of a safetensors file, by name.
pub(super) fn stored(bytes: &[u8], file: usize) -> Result<BTreeMap<String, Stored>, String> {
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
    let place = |(name, info): (String, &TensorInfo)| {
        let (from, to) = info.data_offsets;
        let span = start + from..start + to;
        (name, Stored { file, span, dtype: info.dtype, shape: info.shape.clone() })
    };
    Ok(metadata.tensors().into_iter().map(place).collect())
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
    let place = |(tensor, file): (&String, &serde_json::Value)| {
        let file = file.as_str().ok_or_else(|| format!("`{tensor}` names no file"))?;
        if Path::new(file).file_name() != Some(OsStr::new(file)) {
            return Err(format!("`{tensor}` is in {file:?}; a file beside the index is needed"));
        }
        Ok((tensor.clone(), file.to_owned()))
    };
    map.iter().map(place).collect()
}
