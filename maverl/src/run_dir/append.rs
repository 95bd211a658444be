//! A file that only grows, and can be cut back to where it was.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::{At, RunDirError, damaged};

/// A file that only grows. It is locked: a second process that opens it is refused.
#[derive(Debug)]
pub(crate) struct AppendFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl AppendFile {
    /// Opens a file, making it if needed, and cuts it back to `bytes`.
    pub(crate) fn open(path: &Path, bytes: u64) -> Result<Self, RunDirError> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .at("open", path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(RunDirError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(source).at("lock", path),
        }
        let found = file.metadata().at("read", path)?.len();
        if found < bytes {
            let reason =
                format!("the checkpoint was written when it had {bytes} bytes; it has {found}");
            return Err(damaged(path, reason));
        }
        file.set_len(bytes).at("truncate", path)?;
        file.seek(SeekFrom::Start(bytes)).at("seek in", path)?;
        Ok(Self { path: path.to_owned(), file, bytes })
    }

    /// Appends whole records. If that fails, the file ends after the last record appended before.
    pub(crate) fn append(&mut self, records: &[u8]) -> Result<(), RunDirError> {
        if let Err(source) = self.file.write_all(records) {
            // Best effort: the same records are cut off again when the run is resumed.
            let _ = self.file.set_len(self.bytes);
            let _ = self.file.seek(SeekFrom::Start(self.bytes));
            return Err(source).at("append to", &self.path);
        }
        self.bytes += records.len() as u64;
        Ok(())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Nothing has been appended yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Makes everything appended durable, and says how many bytes that is.
    pub(crate) fn sync(&self) -> Result<u64, RunDirError> {
        self.file.sync_all().at("sync", &self.path)?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    #[test]
    fn what_was_appended_after_a_checkpoint_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut file = AppendFile::open(&path, 0).unwrap();
        file.append(b"one\n").unwrap();
        let bytes = file.sync().unwrap();
        file.append(b"two\nthr").unwrap();
        drop(file);
        let mut file = AppendFile::open(&path, bytes).unwrap();
        file.append(b"TWO\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\nTWO\n");
    }

    #[test]
    fn a_file_shorter_than_its_checkpoint_says_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        fs::write(&path, b"on").unwrap();
        let error = AppendFile::open(&path, 4).unwrap_err().to_string();
        assert!(error.contains("metrics.jsonl") && error.contains("4 bytes"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"on");
    }

    #[test]
    fn a_file_is_open_for_one_writer_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let first = AppendFile::open(&path, 0).unwrap();
        let error = AppendFile::open(&path, 0).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        drop(first);
        AppendFile::open(&path, 0).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let mut file = AppendFile {
            path: "full".into(),
            file: File::options().write(true).open("/dev/full").unwrap(),
            bytes: 0,
        };
        let error = file.append(b"line\n").unwrap_err().to_string();
        assert!(error.contains("`full`") && error.contains("No space left"), "{error}");
        assert_eq!(file.bytes, 0);
    }
}
