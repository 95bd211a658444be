//! Files of the cache, in the layout of `huggingface_hub`, which can go on with a download that began here, and the other
//! way round:
//!
//! ```text
//! models--ORG--NAME/blobs/BLOB                 content; BLOB.incomplete as it comes
//! models--ORG--NAME/snapshots/COMMIT/FILE      a link to its content
//! .locks/models--ORG--NAME/BLOB.lock           locked by the process that downloads it
//! ```
//!
//! Data sets are in `datasets--ORG--NAME`.
//!
//! A blob has the name that the hub lists: the SHA-256 of a large file, the hash of Git of another one. A hub that lists
//! none names it by its `ETag`. Nothing of an answer becomes a path before it is one plain name.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::requests::HubFailure;
use super::{Hub, Snapshot, has_size, is_component};
use crate::retry;

/// Longest name of a blob.
const LONGEST: usize = 128;

/// Content of a file, in the cache.
pub(super) struct Blob {
    /// Its final path.
    pub(super) path: PathBuf,
    /// Path of the part that was downloaded so far.
    pub(super) part: PathBuf,
    lock: PathBuf,
}

/// Returns true if a text is one plain component of a path, and not too long for a blob.
pub(super) fn is_plain(name: &str) -> bool {
    name.len() <= LONGEST && is_component(name)
}

impl Blob {
    /// Returns the blob of a plain name.
    pub(super) fn new(hub: &Hub, snapshot: &Snapshot, name: &str) -> Self {
        assert!(is_plain(name), "the caller checks names");
        let folder = hub.folder(snapshot.kind, &snapshot.repo);
        let blobs = folder.join("blobs");
        let locks = hub.cache.join(".locks").join(folder.file_name().unwrap_or_default());
        Self {
            path: blobs.join(name),
            part: blobs.join(format!("{name}.incomplete")),
            lock: locks.join(format!("{name}.lock")),
        }
    }

    /// Waits until no other process downloads the blob, as long as its part grows. The lock is held until the file is
    /// dropped.
    pub(super) fn lock(&self, mut wait: retry::Wait) -> Result<File, HubFailure> {
        for path in [&self.path, &self.lock] {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        }
        let file = File::options().create(true).append(true).open(&self.lock)?;
        let mut seen = self.part_length();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error.into()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(retry::LOOK),
            }
            if self.part_length() != seen {
                seen = self.part_length();
                wait.goes_on();
            } else if wait.is_over() {
                return Err(HubFailure::Busy(self.lock.clone()));
            }
        }
    }

    fn part_length(&self) -> u64 {
        std::fs::metadata(&self.part).map_or(0, |part| part.len())
    }

    /// Returns true if the blob is there, with a listed size.
    pub(super) fn is_whole(&self, size: Option<u64>) -> bool {
        has_size(&self.path, size)
    }

    /// Makes the part the blob.
    pub(super) fn complete(&self) -> io::Result<()> {
        std::fs::rename(&self.part, &self.path)
    }

    /// Links a file of a snapshot with its content.
    pub(super) fn link(&self, file: &Path) -> io::Result<()> {
        let folder = file.parent().unwrap_or(file);
        std::fs::create_dir_all(folder)?;
        let target = relative(folder, &self.path);
        match symlink(&target, file) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            // Some file systems have no links.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                std::fs::rename(&self.path, file).map_err(|_| error)
            }
            linked => linked,
        }
    }
}

#[cfg(unix)]
use std::os::unix::fs::symlink;

/// Fails as on a file system without links: on Windows, only some users may make them.
#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::PermissionDenied.into())
}

/// Returns the path that leads from a folder to a file, as a link has it.
fn relative(folder: &Path, file: &Path) -> PathBuf {
    let common = folder.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    let up = folder.components().skip(common).map(|_| Path::new(".."));
    up.chain(file.components().skip(common).map(|part| Path::new(part.as_os_str()))).collect()
}

/// Returns the SHA-256 of a file.
pub(super) fn sha256_of(path: &Path) -> std::io::Result<String> {
    use sha2::{Digest, Sha256};
    use std::io::Read;
    let (mut file, mut sha, mut buffer) =
        (std::fs::File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        sha.update(&buffer[..n]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_name_of_a_server_is_a_path_only_if_it_is_one_plain_component() {
        let hash = "a".repeat(64);
        for name in ["abc-1", "3f_2.gz", &hash] {
            assert!(is_plain(name), "{name}");
        }
        let long = "a".repeat(129);
        let wrong = [
            "",
            ".",
            "..",
            "../x",
            "/etc/passwd",
            "a/b",
            "a\\b",
            ".hidden",
            "a\0b",
            "a b",
            "a\nb",
            "ä",
            "C:x",
            "~",
            "a/../../b",
            &long,
        ];
        for name in wrong {
            assert!(!is_plain(name), "{name:?}");
        }
    }

    #[test]
    fn a_link_leads_from_the_snapshot_to_the_blob() {
        let blob = Path::new("/c/models--a--b/blobs/x");
        let cases = [
            ("/c/models--a--b/snapshots/0", "../../blobs/x"),
            ("/c/models--a--b/snapshots/0/additional_chat_templates", "../../../blobs/x"),
        ];
        for (folder, wanted) in cases {
            assert_eq!(relative(Path::new(folder), blob), Path::new(wanted));
        }
    }
}
