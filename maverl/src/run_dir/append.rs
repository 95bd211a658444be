//! An append-only file that can be truncated to an earlier length.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::disk::{hash_rest, hex, options, parent};
use super::error::{At, RunDirError, damaged_error};
use super::manifest::FileHash;

/// An append-only file. It is locked: opening it in a second process is an error. Changes by other processes are
/// errors.
#[derive(Debug)]
pub(crate) struct AppendFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    sha: Sha256,
}

impl Drop for AppendFile {
    /// Unlocks the file. A lock belongs to all copies of the descriptor: a process that another thread starts has one until it
    /// executes its program.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl AppendFile {
    /// Opens a file that begins as `known`. Without `known`, a missing file is created. Content after the known start
    /// is kept until [`AppendFile::cut`].
    pub(crate) fn open(path: &Path, known: Option<&FileHash>) -> Result<Self, RunDirError> {
        let fresh = known.is_none_or(|known| known.bytes == 0);
        let file = options(parent(path)).read(true).create(fresh).truncate(false).open(path);
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged_error(path, "it is missing"));
            }
            file => file.at("open", path)?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(RunDirError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(source).at("lock", path),
        }
        let mut opened = Self { path: path.to_owned(), file, bytes: 0, sha: Sha256::new() };
        if let Some(known) = known {
            opened.read_start(known)?;
        }
        Ok(opened)
    }

    /// Opens a file of a directory that begins as `known` by its name.
    pub(crate) fn open_in(
        dir: &Path,
        name: &str,
        known: &BTreeMap<String, FileHash>,
    ) -> Result<Self, RunDirError> {
        Self::open(&dir.join(name), known.get(name))
    }

    /// Reads the start of the file that a checkpoint recorded, and fails if it differs.
    fn read_start(&mut self, known: &FileHash) -> Result<(), RunDirError> {
        let (bytes, found) = (known.bytes, self.file.metadata().at("read", &self.path)?.len());
        if found < bytes {
            let reason =
                format!("the checkpoint was written when it had {bytes} bytes; it has {found}");
            return Err(damaged_error(&self.path, reason));
        }
        let start = (&self.file).take(bytes);
        hash_rest(start, &mut self.sha).at("read", &self.path)?;
        self.bytes = bytes;
        if self.hash().sha256 != known.sha256 {
            let reason = format!(
                "its first {bytes} bytes are not what they were when the checkpoint was written"
            );
            return Err(damaged_error(&self.path, reason));
        }
        Ok(())
    }

    /// Truncates the file to the start it was opened with.
    pub(crate) fn cut_to_start(&mut self) -> Result<(), RunDirError> {
        self.file.set_len(self.bytes).at("truncate", &self.path)?;
        self.file.seek(SeekFrom::Start(self.bytes)).at("seek in", &self.path)?;
        Ok(())
    }

    /// Appends whole records. On failure, the file ends after the last record of the previous call.
    pub(crate) fn append(&mut self, records: &[u8]) -> Result<(), RunDirError> {
        self.intact()?;
        if let Err(source) = self.file.write_all(records) {
            // Best effort: the same records are truncated again when the run is resumed.
            let _ = self.file.set_len(self.bytes);
            let _ = self.file.seek(SeekFrom::Start(self.bytes));
            return Err(source).at("append to", &self.path);
        }
        self.bytes += records.len() as u64;
        self.sha.update(records);
        Ok(())
    }

    /// Fails if another process has removed, replaced, truncated or extended the file. Changes within the file are
    /// found when the run ends.
    fn intact(&self) -> Result<(), RunDirError> {
        let found = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.changed_error("it is gone"));
            }
            found => found.at("read", &self.path)?,
        };
        if !same_file(&found, &self.file.metadata().at("read", &self.path)?) {
            return Err(self.changed_error("it is another file"));
        }
        if found.len() != self.bytes {
            let how = format!("it has {} bytes, of {} written", found.len(), self.bytes);
            return Err(self.changed_error(&how));
        }
        Ok(())
    }

    fn changed_error(&self, how: &str) -> RunDirError {
        damaged_error(&self.path, format!("another process changed it during the run: {how}"))
    }

    /// Returns true if a process has the file open for appending.
    pub(crate) fn is_locked(path: &Path) -> bool {
        let tried = File::open(path).map(|file| file.try_lock_shared());
        matches!(tried, Ok(Err(TryLockError::WouldBlock)))
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if nothing was appended yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Makes everything appended durable, and returns the file's hash and length.
    pub(crate) fn sync(&self) -> Result<FileHash, RunDirError> {
        self.intact()?;
        self.file.sync_all().at("sync", &self.path)?;
        Ok(self.hash())
    }

    fn hash(&self) -> FileHash {
        FileHash { sha256: hex(&self.sha.clone().finalize()), bytes: self.bytes }
    }
}

#[cfg(unix)]
fn same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn same_file(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn open(path: &Path, known: Option<&FileHash>) -> Result<AppendFile, RunDirError> {
        let mut file = AppendFile::open(path, known)?;
        file.cut_to_start()?;
        Ok(file)
    }

    #[test]
    fn what_was_appended_after_a_checkpoint_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut file = open(&path, None).unwrap();
        file.append(b"one\n").unwrap();
        let known = file.sync().unwrap();
        file.append(b"two\nthr").unwrap();
        drop(file);
        drop(AppendFile::open(&path, Some(&known)).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\nthr", "opening alone cuts nothing");
        let mut file = open(&path, Some(&known)).unwrap();
        file.append(b"TWO\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\nTWO\n");
        let whole = file.sync().unwrap();
        assert_eq!(whole.sha256, super::super::disk::hash_bytes(b"one\nTWO\n"));
    }

    #[test]
    fn a_file_that_does_not_begin_as_its_checkpoint_says_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let known = FileHash { bytes: 4, sha256: super::super::disk::hash_bytes(b"one\n") };
        let error = open(&path, Some(&known)).unwrap_err().to_string();
        assert!(error.contains("metrics.jsonl") && error.contains("missing"), "{error}");
        assert!(!path.exists());
        for (content, expected) in [(&b"on"[..], "4 bytes"), (b"oNe\ntwo\n", "first 4 bytes")] {
            fs::write(&path, content).unwrap();
            let error = open(&path, Some(&known)).unwrap_err().to_string();
            assert!(error.contains("metrics.jsonl") && error.contains(expected), "{error}");
            assert_eq!(fs::read(&path).unwrap(), content);
        }
    }

    #[test]
    fn what_another_process_does_to_the_file_is_an_error() {
        type Damage = fn(&Path);
        let damages: [(Damage, &str); 4] = [
            (|path| File::options().write(true).open(path).unwrap().set_len(2).unwrap(), "2 bytes"),
            (|path| fs::write(path, b"one\ntwo\n").unwrap(), "8 bytes, of 4"),
            (|path| fs::remove_file(path).unwrap(), "it is gone"),
            (
                |path| {
                    fs::write(path.with_extension("new"), b"one\n").unwrap();
                    fs::rename(path.with_extension("new"), path).unwrap();
                },
                "another file",
            ),
        ];
        for (damage, expected) in damages {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("metrics.jsonl");
            let mut file = open(&path, None).unwrap();
            file.append(b"one\n").unwrap();
            damage(&path);
            for result in [file.sync().map(drop), file.append(b"two\n")] {
                let error = result.unwrap_err().to_string();
                let parts = ["metrics.jsonl", "another process", expected];
                assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            }
        }
    }

    #[test]
    fn a_file_is_open_for_one_writer_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let first = AppendFile::open(&path, None).unwrap();
        let error = AppendFile::open(&path, None).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        drop(first);
        AppendFile::open(&path, None).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let mut file = AppendFile {
            path: "/dev/full".into(),
            file: File::options().write(true).open("/dev/full").unwrap(),
            bytes: 0,
            sha: Sha256::new(),
        };
        let error = file.append(b"line\n").unwrap_err().to_string();
        assert!(error.contains("`/dev/full`") && error.contains("No space left"), "{error}");
        assert_eq!(file.bytes, 0);
    }
}
