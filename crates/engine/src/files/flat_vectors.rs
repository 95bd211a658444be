//! Vectors in the flat file of faiss (`faiss/impl/index_write.cpp`, `IndexFlat`), mapped into memory.
//!
//! Numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `IxFI` (inner product) or `IxF2` (squared distance) |
//! | 4 | width `d`, i32 |
//! | 8 | number of vectors `n`, i64 |
//! | 16 | two numbers that readers skip |
//! | 1 | 1: nothing is left to train |
//! | 4 | metric, i32: 0 for the inner product, 1 for the squared distance |
//! | 8 | `n d`, u64 |
//! | 4 n d | the vectors, f32 |

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::files::map::map_file;
use crate::files::{ModelError, ModelErrorKind};

/// Bytes before the vectors.
const HEAD: usize = 45;
/// Number that faiss writes where readers skip.
const SKIPPED: i64 = 1 << 20;
/// Largest width of a vector.
const WIDEST: usize = 1 << 20;

/// Measure of the nearness of vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlatMetric {
    /// `Σ qᵢ xᵢ`; larger is nearer (`IndexFlatIP`).
    InnerProduct,
    /// `Σ (qᵢ − xᵢ)²`; smaller is nearer (`IndexFlatL2`).
    SquaredDistance,
}

impl FlatMetric {
    fn fourcc(self) -> &'static [u8; 4] {
        match self {
            Self::InnerProduct => b"IxFI",
            Self::SquaredDistance => b"IxF2",
        }
    }

    fn number(self) -> i32 {
        match self {
            Self::InnerProduct => 0,
            Self::SquaredDistance => 1,
        }
    }
}

/// Vectors of a flat file.
pub struct FlatVectors {
    map: Mmap,
    metric: FlatMetric,
    width: usize,
    len: usize,
}

impl FlatVectors {
    /// Maps a file of `IndexFlatIP` or `IndexFlatL2`. The vectors are read when they are used.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, is an index of another kind, or does not have the size that its head asks for.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let map = map_file(path)?;
        let (metric, width, len) = read_head(&map).map_err(|what| {
            let message = format!("{}: {what}", path.display());
            ModelError::new(ModelErrorKind::Invalid, message)
        })?;
        Ok(Self { map, metric, width, len })
    }

    /// Returns the measure of nearness.
    pub fn metric(&self) -> FlatMetric {
        self.metric
    }

    /// Returns the number of components of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of vectors.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes some vectors `[rows, width]` to a buffer, which gets their length.
    ///
    /// # Panics
    ///
    /// If there are no such rows.
    pub fn read(&self, rows: Range<usize>, to: &mut Vec<f32>) {
        let bytes = 4 * self.width;
        // The head has an odd number of bytes, so the numbers cannot be used in place.
        let (numbers, _) =
            self.map[HEAD + rows.start * bytes..HEAD + rows.end * bytes].as_chunks::<4>();
        to.clear();
        to.extend(numbers.iter().map(|number| f32::from_le_bytes(*number)));
    }
}

/// Reads the metric, the width and the number of vectors.
fn read_head(file: &[u8]) -> Result<(FlatMetric, usize, usize), String> {
    let Some((head, vectors)) = file.split_at_checked(HEAD) else {
        return Err(format!("{} bytes are no faiss index", file.len()));
    };
    let fourcc: [u8; 4] = field(head, 0);
    let metrics = [FlatMetric::InnerProduct, FlatMetric::SquaredDistance];
    let Some(metric) = metrics.into_iter().find(|metric| *metric.fourcc() == fourcc) else {
        return Err(format!(
            "it begins with {:?}, and only flat indexes of faiss are read (`IxFI`, `IxF2`); write the vectors to an \
             `IndexFlatIP`, or serve the index with faiss and set `retriever`",
            String::from_utf8_lossy(&fourcc)
        ));
    };
    let (width, len) = (i32::from_le_bytes(field(head, 4)), i64::from_le_bytes(field(head, 8)));
    let (found, count) = (i32::from_le_bytes(field(head, 33)), u64::from_le_bytes(field(head, 37)));
    if found != metric.number() {
        let name = String::from_utf8_lossy(metric.fourcc());
        return Err(format!("its metric is {found}, and that of `{name}` is {}", metric.number()));
    }
    let width = usize::try_from(width).ok().filter(|width| (1..=WIDEST).contains(width));
    let len = usize::try_from(len).ok();
    let (Some(width), Some(len)) = (width, len) else {
        let (width, len) = (i32::from_le_bytes(field(head, 4)), i64::from_le_bytes(field(head, 8)));
        return Err(format!("{len} vectors of {width} numbers are no index"));
    };
    if len.checked_mul(width).map(|numbers| numbers as u64) != Some(count) {
        return Err(format!("{len} vectors of {width} numbers are not {count} numbers"));
    }
    if (vectors.len() as u64) != count.saturating_mul(4) {
        let wanted = count.saturating_mul(4).saturating_add(HEAD as u64);
        return Err(format!(
            "it has {} bytes, and {len} vectors of {width} numbers need {wanted}; is it complete?",
            file.len()
        ));
    }
    Ok((metric, width, len))
}

/// Returns the bytes of a number of the head.
fn field<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[at..at + N]);
    bytes
}

/// Writer of a flat file. The file appears under its name when [`FlatWriter::finish`] returns.
pub struct FlatWriter {
    out: BufWriter<File>,
    path: PathBuf,
    temporary: PathBuf,
    /// Number of numbers that are still to be written.
    left: usize,
}

impl FlatWriter {
    /// Begins a file of `len` vectors of `width` numbers.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn create(
        path: &Path,
        metric: FlatMetric,
        width: usize,
        len: usize,
    ) -> Result<Self, ModelError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary)
            .map_err(|error| ModelError::cannot_do("write", &temporary, error))?;
        let mut writer =
            Self { out: BufWriter::new(file), path: path.to_owned(), temporary, left: len * width };
        let mut head = metric.fourcc().to_vec();
        head.extend((width as i32).to_le_bytes());
        head.extend((len as i64).to_le_bytes());
        head.extend([SKIPPED.to_le_bytes(); 2].as_flattened());
        head.push(1);
        head.extend(metric.number().to_le_bytes());
        head.extend(((len * width) as u64).to_le_bytes());
        writer.write(&head)?;
        Ok(writer)
    }

    /// Appends vectors.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn add(&mut self, vectors: &[f32]) -> Result<(), ModelError> {
        self.left = self.left.saturating_sub(vectors.len());
        let bytes: Vec<u8> = vectors.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.write(&bytes)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    ///
    /// If vectors are missing, or the file cannot be written.
    pub fn finish(mut self) -> Result<(), ModelError> {
        if self.left > 0 {
            let message = format!("{}: {} numbers are missing", self.path.display(), self.left);
            return Err(ModelError::wrong_argument(message));
        }
        let written = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        let named = written.and_then(|()| std::fs::rename(&self.temporary, &self.path));
        named.map_err(|error| ModelError::cannot_do("write", &self.path, error))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        let written = self.out.write_all(bytes);
        written.map_err(|error| ModelError::cannot_do("write", &self.temporary, error))
    }
}

/// Removes a file that was not finished.
impl Drop for FlatWriter {
    fn drop(&mut self) {
        // After a rename there is none.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn written(metric: FlatMetric, vectors: &[f32], width: usize) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e5_Flat.index");
        let mut writer = FlatWriter::create(&path, metric, width, vectors.len() / width).unwrap();
        vectors.chunks(width).for_each(|vector| writer.add(vector).unwrap());
        writer.finish().unwrap();
        (dir, path)
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let vectors: Vec<f32> = (0..12).map(|i| i as f32 / 7.0).collect();
        for metric in [FlatMetric::InnerProduct, FlatMetric::SquaredDistance] {
            let (_dir, path) = written(metric, &vectors, 4);
            let file = FlatVectors::open(&path).unwrap();
            assert_eq!((file.metric(), file.width(), file.len()), (metric, 4, 3));
            let mut rows = vec![9.0];
            file.read(1..3, &mut rows);
            assert_eq!(rows, vectors[4..]);
        }
    }

    #[test]
    fn a_file_that_is_not_complete_never_has_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("half.index");
        let mut writer = FlatWriter::create(&path, FlatMetric::InnerProduct, 2, 2).unwrap();
        writer.add(&[1.0, 2.0]).unwrap();
        let message = writer.finish().unwrap_err().to_string();
        assert!(message.ends_with("half.index: 2 numbers are missing"), "{message}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_bytes_are_those_of_faiss() {
        // `faiss.write_index` of two vectors of three numbers.
        let (_dir, path) = written(FlatMetric::InnerProduct, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3);
        let bytes = std::fs::read(path).unwrap();
        let mut expected = b"IxFI\x03\0\0\0\x02\0\0\0\0\0\0\0".to_vec();
        expected.extend(b"\0\0\x10\0\0\0\0\0\0\0\x10\0\0\0\0\0\x01\0\0\0\0\x06\0\0\0\0\0\0\0");
        assert_eq!(bytes[..HEAD], expected);
        assert_eq!(bytes[HEAD..HEAD + 4], 1.0_f32.to_le_bytes());
    }

    #[test]
    fn another_file_is_refused_with_what_was_found() {
        let (dir, path) = written(FlatMetric::InnerProduct, &[1.0; 6], 3);
        let whole = std::fs::read(path).unwrap();
        let changed = |at: usize, bytes: &[u8]| {
            let mut file = whole.clone();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            file
        };
        for (bytes, expected) in [
            (changed(0, b"IHNf"), "begins with \"IHNf\", and only flat indexes"),
            (changed(0, b"IwFl"), "serve the index with faiss and set `retriever`"),
            (changed(0, b"IxF2"), "its metric is 0, and that of `IxF2` is 1"),
            (changed(4, &[0]), "2 vectors of 0 numbers are no index"),
            (changed(8, &[255; 8]), "-1 vectors of 3 numbers are no index"),
            (changed(8, &[5]), "5 vectors of 3 numbers are not 6 numbers"),
            (whole[..60].to_vec(), "it has 60 bytes, and 2 vectors of 3 numbers need 69"),
            (whole[..9].to_vec(), "9 bytes are no faiss index"),
        ] {
            let path = dir.path().join("changed.index");
            std::fs::write(&path, bytes).unwrap();
            let message = FlatVectors::open(&path).err().unwrap().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
