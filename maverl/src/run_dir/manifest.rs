//! Checksums of a directory's files, and the version of its format.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::disk::{TEMPORARY, entries, hash_file, name, read_json, write_json};
use super::error::{At, RunDirError, damaged};

/// The version of the format of run directories and checkpoints.
pub const FORMAT: u64 = 1;

/// The name of the file a [`Manifest`] is kept in.
pub const MANIFEST: &str = "manifest.json";

/// What a directory holds. It is written last: a directory without one is not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// See [`FORMAT`].
    pub format: u64,
    /// Each file by its path below the directory, parts separated by `/`.
    pub files: BTreeMap<String, FileHash>,
}

/// A file's content in two numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHash {
    /// Of the content, in hexadecimal.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
}

impl Manifest {
    /// Hashes every file below a directory. A subdirectory with a manifest of its own stands for itself: only its
    /// manifest is listed.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn of(dir: &Path) -> Result<Self, RunDirError> {
        let mut files = BTreeMap::new();
        list(dir, "", &mut files)?;
        Ok(Self { format: FORMAT, files })
    }

    /// Writes `manifest.json` into the directory, atomically.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), RunDirError> {
        write_json(&dir.join(MANIFEST), self)
    }

    /// Reads `manifest.json`.
    ///
    /// # Errors
    ///
    /// If it is missing or damaged, or of a format this version does not know.
    pub fn read(dir: &Path) -> Result<Self, RunDirError> {
        #[derive(Deserialize)]
        struct Version {
            format: u64,
        }
        let path = dir.join(MANIFEST);
        let version: Version = read_json(&path)?;
        if version.format != FORMAT {
            return Err(RunDirError::Format { path, found: version.format });
        }
        read_json(&path)
    }

    /// Checks that every listed file whose path `wanted` accepts is as it was written.
    ///
    /// # Errors
    ///
    /// The first file that is missing or differs, by name.
    pub fn verify(&self, dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), RunDirError> {
        for (file, expected) in self.files.iter().filter(|(file, _)| wanted(file)) {
            let path = dir.join(file);
            let bytes = match fs::metadata(&path) {
                Ok(metadata) => metadata.len(),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    return Err(damaged(&path, "it is missing"));
                }
                Err(e) => return Err(e).at("read", &path),
            };
            if bytes != expected.bytes {
                let reason =
                    format!("it has {bytes} bytes and was written with {}", expected.bytes);
                return Err(damaged(&path, reason));
            }
            if hash_file(&path)?.0 != expected.sha256 {
                return Err(damaged(
                    &path,
                    "its content does not match the checksum in `manifest.json`",
                ));
            }
        }
        Ok(())
    }
}

fn list(
    dir: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, FileHash>,
) -> Result<(), RunDirError> {
    for path in entries(dir)? {
        let name = name(&path);
        if name.starts_with(TEMPORARY) || (prefix.is_empty() && name == MANIFEST) {
            continue;
        }
        let (path, name) = if path.join(MANIFEST).is_file() {
            (path.join(MANIFEST), format!("{prefix}{name}/{MANIFEST}"))
        } else {
            (path, format!("{prefix}{name}"))
        };
        if path.is_dir() {
            list(&path, &format!("{name}/"), files)?;
        } else {
            let (sha256, bytes) = hash_file(&path)?;
            files.insert(name, FileHash { sha256, bytes });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("policies/small")).unwrap();
        fs::write(dir.path().join("policies/small/model.safetensors"), b"weights").unwrap();
        fs::write(dir.path().join("trainer.json"), b"{}").unwrap();
        fs::write(dir.path().join(".tmp-x"), b"left over").unwrap();
        Manifest::of(dir.path()).unwrap().write(dir.path()).unwrap();
        dir
    }

    fn check(dir: &Path) -> Result<(), String> {
        let verify = || Manifest::read(dir)?.verify(dir, |_| true);
        verify().map_err(|e: RunDirError| e.to_string())
    }

    #[test]
    fn an_intact_directory_is_accepted() {
        let dir = directory();
        assert_eq!(check(dir.path()), Ok(()));
        let files: Vec<String> = Manifest::read(dir.path()).unwrap().files.into_keys().collect();
        assert_eq!(files, ["policies/small/model.safetensors", "trainer.json"]);
    }

    #[test]
    fn every_kind_of_damage_is_refused_with_the_name_of_the_file() {
        let weights = "policies/small/model.safetensors";
        type Case<'c> = (&'c str, &'c dyn Fn(&Path), &'c str);
        let damages: [Case<'_>; 6] = [
            ("model.safetensors", &|d| fs::write(d.join(weights), b"weightz").unwrap(), "checksum"),
            ("model.safetensors", &|d| fs::write(d.join(weights), b"weig").unwrap(), "4 bytes"),
            ("model.safetensors", &|d| fs::remove_file(d.join(weights)).unwrap(), "missing"),
            (MANIFEST, &|d| fs::write(d.join(MANIFEST), b"{\"format\": 1, ").unwrap(), "EOF"),
            (MANIFEST, &|d| fs::write(d.join(MANIFEST), b"{\"format\": 99}").unwrap(), "format 99"),
            (MANIFEST, &|d| fs::remove_file(d.join(MANIFEST)).unwrap(), "cannot read"),
        ];
        for (file, damage, expected) in damages {
            let dir = directory();
            damage(dir.path());
            let error = check(dir.path()).unwrap_err();
            assert!(error.contains(file) && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_subdirectory_with_a_manifest_stands_for_itself() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("checkpoints/step-000001");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("a"), b"a").unwrap();
        Manifest::of(&inner).unwrap().write(&inner).unwrap();
        let files: Vec<String> = Manifest::of(outer.path()).unwrap().files.into_keys().collect();
        assert_eq!(files, ["checkpoints/step-000001/manifest.json"]);
    }
}
