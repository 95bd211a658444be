//! Checksums of a directory's files, and the version of its format.
//!
//! It is written before each checkpoint, with the files that are complete, and at the end, with all. Listed files are
//! verified before a run resumes. Only a resume changes listed files, and it rewrites the manifest first, so that a
//! kill at any point never makes an intact directory look damaged.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::disk::{TEMPORARY, entries, hash_bytes, hash_file, name, read_json, write_json};
use super::error::{At, RunDirError, damaged_error, encode_error};
use super::format::{ChangedFile, FORMAT};

/// Name of the file of a [`Manifest`].
pub const MANIFEST: &str = "manifest.json";

/// Content of a directory. In a checkpoint, it is written last: a directory without a manifest is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// See [`FORMAT`].
    pub format: u64,
    /// Hash of each file by its path below the directory, components separated by `/`.
    pub files: BTreeMap<String, FileHash>,
    /// Alternative content of files that were about to be replaced when the manifest was written.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replaced: BTreeMap<String, FileHash>,
}

/// Hash and length of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHash {
    /// SHA-256 of the content, in hexadecimal.
    pub sha256: String,
    /// Length in bytes.
    pub bytes: u64,
}

/// A manifest with its own checksum, so that a changed manifest is not reported as changed files.
#[derive(Serialize, Deserialize)]
struct Signed {
    #[serde(flatten)]
    manifest: Manifest,
    sha256: String,
}

impl FileHash {
    /// Returns the hash of a file with this content.
    pub fn of(bytes: &[u8]) -> Self {
        Self { sha256: hash_bytes(bytes), bytes: bytes.len() as u64 }
    }

    /// Returns the hash of a file, which is read in blocks.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<Self, RunDirError> {
        let (sha256, bytes) = hash_file(path)?;
        Ok(Self { sha256, bytes })
    }
}

impl Manifest {
    /// Returns a manifest of no files.
    pub fn empty() -> Self {
        Self { format: FORMAT, files: BTreeMap::new(), replaced: BTreeMap::new() }
    }

    /// Hashes every file below a directory. Of a subdirectory with its own manifest, only that manifest is listed.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn of(dir: &Path) -> Result<Self, RunDirError> {
        let mut manifest = Self::empty();
        list(dir, "", &mut manifest.files)?;
        Ok(manifest)
    }

    /// Writes `manifest.json` into the directory, atomically.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), RunDirError> {
        let signed = Signed { sha256: self.sha256(dir)?, manifest: self.clone() };
        write_json(&dir.join(MANIFEST), &signed).map(drop)
    }

    /// Reads `manifest.json`.
    ///
    /// # Errors
    ///
    /// If it is missing or damaged, or of an unknown format.
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
        let Signed { manifest, sha256 } = read_json(&path)?;
        if manifest.sha256(dir)? != sha256 {
            return Err(damaged_error(&path, "it was changed: its own checksum does not match"));
        }
        Ok(manifest)
    }

    /// Returns the checksum of the manifest's content.
    fn sha256(&self, dir: &Path) -> Result<String, RunDirError> {
        let bytes =
            serde_json::to_vec(self).map_err(|error| encode_error(&dir.join(MANIFEST), error))?;
        Ok(hash_bytes(&bytes))
    }

    /// Verifies every listed file whose path `wanted` accepts.
    ///
    /// # Errors
    ///
    /// Every file that is missing or differs, by name.
    pub fn verify(&self, dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), RunDirError> {
        RunDirError::unless_none(dir, self.differences(dir, wanted)?)
    }

    /// Returns every listed file whose path `wanted` accepts and that is missing or has changed. Files are read in
    /// blocks.
    ///
    /// # Errors
    ///
    /// If a file exists and cannot be read.
    pub fn differences(
        &self,
        dir: &Path,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<ChangedFile>, RunDirError> {
        let mut differences = Vec::new();
        for (file, expected) in self.files.iter().filter(|(file, _)| wanted(file)) {
            let path = dir.join(file);
            if let Some(reason) = differs(&path, expected, self.replaced.get(file))? {
                differences.push(ChangedFile { path, reason });
            }
        }
        Ok(differences)
    }
}

/// Describes the difference between a file and its expected hash, if there is one.
fn differs(
    path: &Path,
    expected: &FileHash,
    or: Option<&FileHash>,
) -> Result<Option<String>, RunDirError> {
    let bytes = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(Some("it is a directory".to_owned())),
        Ok(metadata) => metadata.len(),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Some("it is missing".to_owned()));
        }
        Err(e) => return Err(e).at("read", path),
    };
    if bytes != expected.bytes && or.is_none_or(|or| bytes != or.bytes) {
        return Ok(Some(format!("it has {bytes} bytes and was written with {}", expected.bytes)));
    }
    let found = FileHash::read(path)?;
    let same = found == *expected || or == Some(&found);
    Ok((!same).then(|| "its content does not match the checksum in `manifest.json`".to_owned()))
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
            files.insert(name, FileHash::read(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const WEIGHTS: &str = "policies/small/model.safetensors";

    fn directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("policies/small")).unwrap();
        fs::write(dir.path().join(WEIGHTS), b"weights").unwrap();
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
        assert_eq!(files, [WEIGHTS, "trainer.json"]);
    }

    #[test]
    fn every_kind_of_damage_is_refused_with_the_name_of_the_file() {
        type Case<'c> = (&'c str, &'c dyn Fn(&Path), &'c str);
        let damages: [Case<'_>; 6] = [
            ("model.safetensors", &|d| fs::write(d.join(WEIGHTS), b"weightz").unwrap(), "checksum"),
            ("model.safetensors", &|d| fs::write(d.join(WEIGHTS), b"weig").unwrap(), "4 bytes"),
            ("model.safetensors", &|d| fs::remove_file(d.join(WEIGHTS)).unwrap(), "missing"),
            (MANIFEST, &|d| fs::write(d.join(MANIFEST), b"{\"format\": 2, ").unwrap(), "EOF"),
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
    fn a_manifest_that_was_changed_blames_itself_and_no_other_file() {
        let dir = directory();
        let path = dir.path().join(MANIFEST);
        let good = fs::read_to_string(&path).unwrap();
        let (weights, _) = good.split_once(WEIGHTS).unwrap();
        // Every second digit of the checksum of the weights, and its length.
        for at in weights.len() + WEIGHTS.len()..good.len() {
            let mut bad = good.clone().into_bytes();
            for digit in [at, at + 1] {
                match bad.get_mut(digit) {
                    Some(byte) if byte.is_ascii_hexdigit() => *byte = *byte % 10 + b'0',
                    _ => {}
                }
            }
            if bad == good.as_bytes() {
                continue;
            }
            fs::write(&path, bad).unwrap();
            let error = check(dir.path()).unwrap_err();
            assert!(error.contains(MANIFEST) && !error.contains("safetensors"), "{at}: {error}");
        }
    }

    #[test]
    fn everything_that_differs_is_named_at_once() {
        let dir = directory();
        fs::write(dir.path().join(WEIGHTS), b"weightz").unwrap();
        fs::remove_file(dir.path().join("trainer.json")).unwrap();
        let error = check(dir.path()).unwrap_err();
        assert!(error.contains("model.safetensors") && error.contains("trainer.json"), "{error}");
    }

    #[test]
    fn a_file_that_is_being_replaced_may_be_either() {
        let dir = directory();
        let mut manifest = Manifest::read(dir.path()).unwrap();
        let old =
            manifest.files.insert("trainer.json".into(), FileHash::of(b"{\"a\": 1}")).unwrap();
        manifest.replaced.insert("trainer.json".into(), old);
        manifest.write(dir.path()).unwrap();
        for (content, fine) in [("{}", true), ("{\"a\": 1}", true), ("{\"a\": 2}", false)] {
            fs::write(dir.path().join("trainer.json"), content).unwrap();
            assert_eq!(check(dir.path()).is_ok(), fine, "{content}");
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
