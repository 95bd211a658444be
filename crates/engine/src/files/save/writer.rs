//! Ways of tensors into files: at once, or from a copy in memory that is written later.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use maverl_kernels::large_zero_bytes;
use safetensors::tensor::TensorView;
use serde_json::json;

use crate::files::ModelError;
use crate::files::save::{
    SaveOptions, SavedTensor, StoredDtype, one_file, refuse_overflow, safetensors_file, unwritten,
};

/// Way of the tensors of a model into files.
#[derive(Debug)]
pub enum TensorWriter {
    /// Each file is written at once.
    Direct,
    /// The tensors of each file are copied. [`CopiedFile::write`] writes them later.
    Copying(Vec<CopiedFile>, SpareMemory),
}

impl TensorWriter {
    /// Creates a writer that copies tensors, into memory of earlier copies as far as there is some.
    pub fn copying(spare: &SpareMemory) -> Self {
        Self::Copying(Vec::new(), spare.clone())
    }

    /// Writes a safetensors file, or copies its tensors.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, or a number is beyond the range of its type.
    pub fn put(&mut self, file: PathBuf, entries: &[SavedTensor<'_>]) -> Result<(), ModelError> {
        match self {
            Self::Direct => one_file(&file, entries),
            Self::Copying(files, spare) => {
                files.push(CopiedFile::new(file, entries, spare)?);
                Ok(())
            }
        }
    }

    /// Returns the copies, in the order in which their files are to be written.
    pub fn into_copies(self) -> Vec<CopiedFile> {
        match self {
            Self::Direct => Vec::new(),
            Self::Copying(files, _) => files,
        }
    }
}

/// Memory of copies that were written, which the next copies take. The first use of a page can cost more than twenty times as much
/// as a later one.
#[derive(Clone, Default)]
pub struct SpareMemory(Arc<Mutex<Vec<Vec<u8>>>>);

impl SpareMemory {
    /// Returns at least `len` bytes of any value: the fewest that suffice, or new ones in place of the most.
    fn take_bytes(&self, len: usize) -> Vec<u8> {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spare.sort_by_key(Vec::len);
        let fitting = spare.iter().position(|bytes| bytes.len() >= len);
        let place = fitting.or_else(|| spare.len().checked_sub(1));
        let taken = place.map(|place| spare.remove(place));
        taken.filter(|bytes| bytes.len() >= len).unwrap_or_else(|| large_zero_bytes(len))
    }

    fn give_back(&self, bytes: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

impl fmt::Debug for SpareMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpareMemory").finish_non_exhaustive()
    }
}

/// Tensors of a safetensors file in the memory of this process, as the file will have them.
pub struct CopiedFile {
    path: PathBuf,
    tensors: Vec<CopiedTensor>,
    /// Bytes of all tensors, one after the other, and any others after them.
    bytes: Vec<u8>,
    /// Place of the bytes when the file is written.
    spare: SpareMemory,
}

/// A tensor of a [`CopiedFile`].
struct CopiedTensor {
    name: String,
    shape: Vec<usize>,
    dtype: StoredDtype,
    /// Place of its bytes.
    range: Range<usize>,
}

impl CopiedFile {
    /// Copies tensors, each on all threads of the current pool.
    ///
    /// # Errors
    ///
    /// If a number is beyond the range of its type.
    fn new(
        path: PathBuf,
        entries: &[SavedTensor<'_>],
        spare: &SpareMemory,
    ) -> Result<Self, ModelError> {
        let (mut tensors, mut end) = (Vec::with_capacity(entries.len()), 0);
        for entry in entries {
            let range = end..end + entry.byte_count();
            end = range.end;
            let SavedTensor { name, shape, dtype, .. } = entry;
            let (name, shape) = (name.clone(), shape.clone());
            tensors.push(CopiedTensor { name, shape, dtype: *dtype, range });
        }
        let bytes = spare.take_bytes(end);
        let mut copied = Self { path, tensors, bytes, spare: spare.clone() };
        for (entry, tensor) in entries.iter().zip(&copied.tensors) {
            entry.encode_into(&mut copied.bytes[tensor.range.clone()]);
        }
        refuse_overflow(entries)?;
        Ok(copied)
    }

    /// Returns the number of bytes of the tensors.
    pub fn byte_count(&self) -> usize {
        self.tensors.last().map_or(0, |tensor| tensor.range.end)
    }

    /// Writes the file. Its bytes are those that [`TensorWriter::Direct`] writes.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(self) -> Result<(), ModelError> {
        let views = self.tensors.iter().map(|CopiedTensor { name, shape, dtype, range }| {
            let view = TensorView::new((*dtype).into(), shape.clone(), &self.bytes[range.clone()]);
            view.map(|view| (name.as_str(), view))
        });
        let views = views.collect::<Result<Vec<_>, _>>().map_err(|e| unwritten(&self.path, e))?;
        safetensors_file(&self.path, views)
    }
}

/// Leaves the memory for the next copy.
impl Drop for CopiedFile {
    fn drop(&mut self) {
        self.spare.give_back(std::mem::take(&mut self.bytes));
    }
}

impl fmt::Debug for CopiedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tensors, bytes) = (self.tensors.len(), self.byte_count());
        let mut text = f.debug_struct("CopiedFile");
        text.field("path", &self.path).field("tensors", &tensors).field("bytes", &bytes).finish()
    }
}

/// Writes the weights of a model, and tensors that it does not read; see [`shards`].
///
/// # Errors
///
/// If a file cannot be written.
pub fn weights(
    dir: &Path,
    own: Vec<SavedTensor<'_>>,
    skipped: Vec<SavedTensor<'_>>,
    (options, writer): (&SaveOptions, &mut TensorWriter),
) -> Result<(), ModelError> {
    let all = own.into_iter().chain(skipped).map(|tensor| tensor.stored_as(options.dtype));
    let entries: Vec<SavedTensor<'_>> = all.collect();
    shards(dir, &entries, options.shard_bytes, writer)
}

/// Writes `model.safetensors`, or, if it would be larger than a shard may be, `model-00001-of-0000N.safetensors` and
/// the index that says which tensor is where.
///
/// # Errors
///
/// If a file cannot be written.
pub fn shards(
    dir: &Path,
    entries: &[SavedTensor<'_>],
    shard_bytes: u64,
    writer: &mut TensorWriter,
) -> Result<(), ModelError> {
    let sizes: Vec<u64> = entries.iter().map(|entry| entry.byte_count() as u64).collect();
    let parts = split(&sizes, shard_bytes);
    if parts.len() <= 1 {
        return writer.put(dir.join("model.safetensors"), entries);
    }
    let mut map = BTreeMap::new();
    for (index, part) in parts.iter().enumerate() {
        let file = format!("model-{:05}-of-{:05}.safetensors", index + 1, parts.len());
        writer.put(dir.join(&file), &entries[part.clone()])?;
        map.extend(entries[part.clone()].iter().map(|entry| (&entry.name, file.clone())));
    }
    let parameters: usize = entries.iter().map(|entry| entry.shape.iter().product::<usize>()).sum();
    let metadata =
        json!({ "total_parameters": parameters, "total_size": sizes.iter().sum::<u64>() });
    let index = json!({ "metadata": metadata, "weight_map": map });
    let path = dir.join("model.safetensors.index.json");
    std::fs::write(&path, format!("{index:#}\n"))
        .map_err(|e| ModelError::cannot_do("write", &path, e))
}

/// Runs of tensors that fit a shard, in order; one that is larger than a shard is alone in its own.
fn split(sizes: &[u64], limit: u64) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut used = 0;
    for (at, &size) in sizes.iter().enumerate() {
        match parts.last_mut() {
            Some(part) if used + size <= limit => {
                part.end = at + 1;
                used += size;
            }
            _ => {
                parts.push(at..at + 1);
                used = size;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;
    use crate::files::ModelErrorKind;

    #[test]
    fn shards_are_as_full_as_they_may_be_and_a_large_tensor_is_alone() {
        assert_eq!(split(&[4, 4, 9, 1, 2, 3], 8), [0..2, 2..3, 3..6]);
        assert_eq!(split(&[4, 4], 8).len(), 1);
        assert!(split(&[], 8).is_empty());
    }

    /// Returns tensors of every kind and type.
    fn tensors<'a>(own: &'a [f32], others: &'a [f32]) -> Vec<SavedTensor<'a>> {
        vec![
            SavedTensor::slice("norm.weight", &[own.len()], own),
            SavedTensor::slice("m.norm.weight", &[own.len()], own).stored_as(StoredDtype::Bf16),
            SavedTensor::computed("v.mlp.weight", &[2, others.len() / 2], move || others.to_vec())
                .stored_as(StoredDtype::Bf16),
            SavedTensor::slice("embed.weight", &[others.len()], others),
            SavedTensor::slice("bias", &[own.len()], own).stored_as(StoredDtype::F16),
            SavedTensor::slice("empty", &[0, 3], &[]),
        ]
    }

    #[test]
    fn a_copy_is_written_as_the_bytes_that_the_tensors_had_when_it_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let [direct, copied] = ["direct", "copied"].map(|name| dir.path().join(name));
        let mut own: Vec<f32> = (0..77).map(|i| (i as f32 * 0.37).sin()).collect();
        // As many as several threads divide among them.
        let others: Vec<f32> = (0..100_002).map(|i| (i as f32 * 1.1).cos()).collect();
        TensorWriter::Direct.put(direct.clone(), &tensors(&own, &others)).unwrap();
        let mut writer = TensorWriter::copying(&SpareMemory::default());
        writer.put(copied.clone(), &tensors(&own, &others)).unwrap();
        own.fill(0.0);
        assert!(!copied.exists(), "nothing is written yet");
        let copies = writer.into_copies();
        assert_eq!(copies.len(), 1);
        assert_eq!(copies[0].byte_count(), 77 * (4 + 2 + 2) + 100_002 * (2 + 4));
        copies.into_iter().try_for_each(CopiedFile::write).unwrap();
        assert!(fs::read(&direct).unwrap() == fs::read(&copied).unwrap());
        assert_eq!(
            fs::metadata(direct).unwrap().permissions(),
            fs::metadata(copied).unwrap().permissions()
        );
    }

    #[test]
    fn a_copy_in_shards_has_the_files_and_the_index_of_weights_that_are_written_at_once() {
        let others: Vec<f32> = (0..5000).map(|i| i as f32).collect();
        let entries = tensors(&[1.0, 2.0], &others);
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut writers = [TensorWriter::Direct, TensorWriter::copying(&SpareMemory::default())];
        for (dir, writer) in dirs.iter().zip(&mut writers) {
            shards(dir.path(), &entries, 12_000, writer).unwrap();
        }
        let copies = writers.into_iter().flat_map(TensorWriter::into_copies);
        copies.map(CopiedFile::write).collect::<Result<Vec<()>, _>>().unwrap();
        let [direct, copied] = dirs.each_ref().map(|dir| {
            let files = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap());
            files.map(|file| (file.file_name(), fs::read(file.path()).unwrap())).collect()
        });
        let (direct, copied): (BTreeMap<_, _>, BTreeMap<_, _>) = (direct, copied);
        assert!(direct.len() > 2, "{:?}", direct.keys());
        assert!(direct == copied, "{:?} {:?}", direct.keys(), copied.keys());
    }

    #[test]
    fn the_memory_of_a_copy_that_was_written_is_taken_again_and_none_of_its_bytes_is_written_again()
    {
        let dir = tempfile::tempdir().unwrap();
        let spare = SpareMemory::default();
        let lengths = || -> Vec<usize> {
            let mut lengths: Vec<usize> = spare.0.lock().unwrap().iter().map(Vec::len).collect();
            lengths.sort_unstable();
            lengths
        };
        let copy = |numbers: &[f32]| {
            let path = dir.path().join(format!("{}.safetensors", numbers.len()));
            let mut writer = TensorWriter::copying(&spare);
            let entry = [SavedTensor::slice("weight", &[numbers.len()], numbers)];
            writer.put(path.clone(), &entry).unwrap();
            let held = lengths();
            writer.into_copies().into_iter().try_for_each(CopiedFile::write).unwrap();
            TensorWriter::Direct.put(dir.path().join("direct"), &entry).unwrap();
            assert!(fs::read(path).unwrap() == fs::read(dir.path().join("direct")).unwrap());
            held
        };
        assert_eq!(copy(&[7.0; 100]), [] as [usize; 0]);
        assert_eq!(lengths(), [400]);
        assert_eq!(copy(&[1.0; 60]), [] as [usize; 0], "its memory is taken");
        assert_eq!(copy(&[2.0; 300]), [] as [usize; 0], "memory that is too small is freed");
        assert_eq!(lengths(), [1200]);
    }

    #[test]
    fn a_copy_that_cannot_be_written_names_its_file_as_one_that_is_written_at_once_does() {
        let path = Path::new("/nowhere/at/all/optimizer.safetensors");
        let entries = tensors(&[1.0], &[2.0, 3.0]);
        let direct = TensorWriter::Direct.put(path.to_owned(), &entries).unwrap_err();
        let mut writer = TensorWriter::copying(&SpareMemory::default());
        writer.put(path.to_owned(), &entries).unwrap();
        let copied = writer.into_copies().pop().unwrap().write().unwrap_err();
        assert_eq!(direct.to_string(), copied.to_string());
        assert!(copied.to_string().contains("/nowhere/at/all/optimizer.safetensors"), "{copied}");
    }

    #[test]
    fn a_number_that_the_type_cannot_hold_is_an_error_of_the_copy() {
        let values = [f32::MAX];
        let entry = SavedTensor::slice("m.norm.weight", &[1], &values);
        let mut writer = TensorWriter::copying(&SpareMemory::default());
        let copied = writer.put(PathBuf::new(), &[entry.stored_as(StoredDtype::Bf16)]);
        let error = copied.unwrap_err();
        assert_eq!(error.kind(), ModelErrorKind::Invalid);
        assert!(error.to_string().contains("`m.norm.weight`"), "{error}");
    }
}
