//! Weights on disk that differ from those of a model in every number, for the check that a server uses what it is given.

use std::fs;
use std::path::Path;

use maverl_kernels::sample::derive_seed;
use serde_json::{Map, Value};

use crate::files::{ModelError, ModelErrorKind};

/// Amount by which the weights of an adapter are moved: several times their usual size.
const ADAPTER: f32 = 0.25;
/// Amount by which all weights of a model are moved: about twice the deviation of their usual start.
const MODEL: f32 = 0.05;
/// Salt of the signs.
const SIGNS: u64 = 0x7369_676e;
/// Bytes before the header of a safetensors file: its length.
const LENGTH: usize = 8;

/// Moves every number in the safetensors files of a directory up or down.
pub(crate) fn directory(dir: &Path) -> Result<(), ModelError> {
    for entry in fs::read_dir(dir).map_err(|e| ModelError::cannot_do("read", dir, e))? {
        let path = entry.map_err(|e| ModelError::cannot_do("read", dir, e))?.path();
        if path.extension().is_none_or(|extension| extension != "safetensors") {
            continue;
        }
        let adapter = path.file_stem().is_some_and(|name| name == "adapter_model");
        file(&path, if adapter { ADAPTER } else { MODEL })?;
    }
    Ok(())
}

fn file(path: &Path, amount: f32) -> Result<(), ModelError> {
    let mut bytes = fs::read(path).map_err(|e| ModelError::cannot_do("change", path, e))?;
    let start = f32s(&bytes).ok_or_else(|| {
        let message = format!("{} is no safetensors file of f32 numbers", path.display());
        ModelError::new(ModelErrorKind::Invalid, message)
    })?;
    let (numbers, _) = bytes[start..].as_chunks_mut::<4>();
    for (at, number) in numbers.iter_mut().enumerate() {
        let sign = if derive_seed(SIGNS, at as u64) & 1 == 0 { amount } else { -amount };
        *number = (f32::from_le_bytes(*number) + sign).to_le_bytes();
    }
    fs::write(path, bytes).map_err(|e| ModelError::cannot_do("change", path, e))
}

/// Returns the place of the numbers of a safetensors file; `None` if it is none, or has numbers of another type.
fn f32s(bytes: &[u8]) -> Option<usize> {
    let length = u64::from_le_bytes(*bytes.first_chunk::<LENGTH>()?);
    let start = LENGTH.checked_add(usize::try_from(length).ok()?)?;
    let header: Map<String, Value> = serde_json::from_slice(bytes.get(LENGTH..start)?).ok()?;
    let mut tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
    tensors.all(|(_, tensor)| tensor["dtype"] == "F32").then_some(start)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::files::{ModelFiles, ModelSource};
    use crate::net::Model;

    #[test]
    fn every_number_moves_by_the_amount_and_the_directory_still_holds_the_model() {
        let source = ModelSource::Builtin("tiny".to_owned());
        let model = Model::load(&ModelFiles::new(&source)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        model.save(dir.path()).unwrap();
        let read = || {
            let bytes = fs::read(dir.path().join("model.safetensors")).unwrap();
            let start = f32s(&bytes).unwrap();
            let (numbers, rest) = bytes[start..].as_chunks::<4>();
            assert!(rest.is_empty());
            numbers.iter().map(|number| f32::from_le_bytes(*number)).collect::<Vec<_>>()
        };
        let before = read();
        directory(dir.path()).unwrap();
        let after = read();
        assert_eq!(before.len(), after.len());
        let moved = before.iter().zip(&after).map(|(a, b)| b - a);
        assert!(moved.clone().all(|by| (by.abs() - MODEL).abs() < 1e-4));
        let up = moved.filter(|by| *by > 0.0).count();
        assert!((0.45..0.55).contains(&(up as f64 / before.len() as f64)), "{up}");
        let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
        assert_ne!(Model::load(&files).unwrap().fingerprint(), model.fingerprint());
    }
}
