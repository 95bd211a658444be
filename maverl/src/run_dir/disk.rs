//! Atomic writes: after a crash, a file has its old or its new content, nothing in between.
//!
//! Incomplete files are named `.tmp-*`. Such names are never read, and are removed when a run is opened.
//!
//! Only the owner can read a run directory, because prompts, replies and configurations may be confidential. Files
//! below a directory get the directory's permissions, so `chmod` on a run directory applies to all files that are
//! written later.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::error::{At, RunDirError, damaged_error, encode_error};

/// Prefix of the names of incomplete files and directories.
pub const TEMPORARY: &str = ".tmp-";

/// Writes a file under a temporary name, syncs and renames it.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), RunDirError> {
    let written = replace_file(path, |file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.at("write", path)?;
    sync_dir(parent(path))
}

/// Replaces a file by one that `write` fills under a temporary name.
pub(crate) fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary(path);
    let made = options(parent(path)).create(true).truncate(true).open(&temporary);
    let written = made.and_then(|mut file| write(&mut file));
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        // A remaining temporary file only takes space. The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    })
}

/// Writes a value as indented JSON with [`write_atomic`], and returns the written bytes.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, RunDirError> {
    let bytes = json_bytes(path, value)?;
    write_atomic(path, &bytes)?;
    Ok(bytes)
}

/// Returns a value as indented JSON.
pub(super) fn json_bytes<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, RunDirError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| encode_error(path, error))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Returns options to create a file with the read and write permissions of its directory.
#[cfg(unix)]
pub fn options(dir: &Path) -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.write(true).mode(mode(dir) & 0o666);
    options
}

/// Returns options to create a file.
#[cfg(not(unix))]
pub fn options(_: &Path) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    options
}

/// Returns the permissions of a directory; the owner's alone if they cannot be read.
#[cfg(unix)]
fn mode(dir: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(dir).map_or(0o700, |metadata| metadata.permissions().mode() & 0o777)
}

/// Creates a directory that only its owner can access.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    let builder = &mut fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(builder, 0o700);
    builder.create(dir)
}

/// Gives a directory and its content the permissions of the parent directory. Other libraries write files that
/// everybody may read.
#[cfg(unix)]
pub fn adopt(dir: &Path) -> Result<(), RunDirError> {
    use std::os::unix::fs::PermissionsExt;
    fn set(path: &Path, mode: u32) -> Result<(), RunDirError> {
        let mode = if path.is_dir() {
            entries(path)?.iter().try_for_each(|inner| set(inner, mode))?;
            mode
        } else {
            mode & 0o666
        };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).at("protect", path)
    }
    set(dir, mode(parent(dir)))
}

/// No-op on systems without file permissions.
#[cfg(not(unix))]
pub fn adopt(_: &Path) -> Result<(), RunDirError> {
    Ok(())
}

/// Reads a JSON file that maverl wrote.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, RunDirError> {
    let bytes = fs::read(path).at("read", path)?;
    serde_json::from_slice(&bytes).map_err(|e| damaged_error(path, e.to_string()))
}

/// Reads a JSON file that maverl wrote, if it exists.
pub(crate) fn read_json_if_any<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RunDirError> {
    if path.exists() { read_json(path).map(Some) } else { Ok(None) }
}

/// Returns the temporary name beside a path.
pub fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{TEMPORARY}{name}"))
}

/// Returns the directory that contains a path.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes the entries of a directory durable.
#[cfg(unix)]
pub fn sync_dir(dir: &Path) -> Result<(), RunDirError> {
    File::open(dir).and_then(|dir| dir.sync_all()).at("sync", dir)
}

/// No-op on Windows, which flushes no directories.
#[cfg(not(unix))]
pub fn sync_dir(_: &Path) -> Result<(), RunDirError> {
    Ok(())
}

/// Makes a directory and everything below it durable.
pub fn sync_tree(dir: &Path) -> Result<(), RunDirError> {
    for path in entries(dir)? {
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            // Windows flushes only what was opened for writing.
            let file = OpenOptions::new().read(true).write(cfg!(windows)).open(&path);
            file.and_then(|file| file.sync_all()).at("sync", &path)?;
        }
    }
    sync_dir(dir)
}

/// Returns the paths in a directory, sorted.
pub fn entries(dir: &Path) -> Result<Vec<PathBuf>, RunDirError> {
    let list = fs::read_dir(dir).at("list", dir)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = list.collect::<io::Result<Vec<_>>>().at("list", dir)?;
    paths.sort();
    Ok(paths)
}

/// Returns the last component of a path as text.
pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Parses the number in `step-000012` and `step-000012.jsonl.zst`.
pub fn step_of(path: &Path) -> Option<u64> {
    let name = name(path);
    let number = name.strip_prefix("step-")?;
    number.split('.').next()?.parse().ok()
}

/// Removes incomplete files and directories, recognized by their names.
pub fn sweep(dir: &Path) -> Result<(), RunDirError> {
    for path in entries(dir)?.into_iter().filter(|path| name(path).starts_with(TEMPORARY)) {
        remove(&path)?;
    }
    Ok(())
}

/// Removes a file or a directory, if it exists.
pub fn remove(path: &Path) -> Result<(), RunDirError> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at("remove", path),
    }
}

/// Returns the SHA-256 of a file in hexadecimal, and its length.
pub fn hash_file(path: &Path) -> Result<(String, u64), RunDirError> {
    let mut sha = Sha256::new();
    let bytes = File::open(path).and_then(|file| hash_rest(file, &mut sha)).at("read", path)?;
    Ok((hex(&sha.finalize()), bytes))
}

/// Adds the rest of a reader to a hash, and returns its length.
pub(super) fn hash_rest(mut reader: impl Read, sha: &mut Sha256) -> io::Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; 1 << 20], 0);
    loop {
        let n = reader.read(&mut buffer)?;
        if n == 0 {
            return Ok(bytes);
        }
        sha.update(&buffer[..n]);
        bytes += n as u64;
    }
}

/// Returns the SHA-256 of bytes in hexadecimal.
pub fn hash_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns a file name for any text: characters other than `a-z A-Z 0-9 _ - .`, and a leading dot, are written `%XX`.
/// Different texts have different file names.
pub fn file_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for (i, byte) in text.bytes().enumerate() {
        let plain =
            byte.is_ascii_alphanumeric() || b"_-".contains(&byte) || (byte == b'.' && i > 0);
        if plain {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_litter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_atomic(&path, b"old").unwrap();
        fs::create_dir(temporary(&path)).unwrap();
        let error = write_atomic(&path, b"new").unwrap_err().to_string();
        assert!(error.contains("a.json"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn names_with_slashes_and_points_become_distinct_file_names() {
        assert_eq!(file_name("search/verifier"), "search%2Fverifier");
        assert_eq!(file_name(".."), "%2E.");
        assert_eq!(file_name("a%2Fb"), "a%252Fb");
        assert_eq!(file_name("größe"), "gr%C3%B6%C3%9Fe");
    }

    #[test]
    fn the_hash_of_a_file_is_the_hash_of_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        fs::write(&path, b"abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; // FIPS 180-2, B.1
        assert_eq!(hash_file(&path).unwrap(), (expected.to_owned(), 3));
        assert_eq!(hash_bytes(b"abc"), expected);
    }
}
