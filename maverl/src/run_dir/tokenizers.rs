//! Tokenizers of a run's policies: `tokenizers/<policy>.json.zst`. They give the words of ids without weights.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::disk::{entries, file_name, name, remove, write_atomic};
use super::error::{At, RunDirError};
use super::{FileHash, RunDir};

/// Name of the directory.
pub(super) const TOKENIZERS: &str = "tokenizers";
/// End of the name of a file.
const END: &str = ".json.zst";

/// Returns the path of the tokenizer of a policy in a run directory.
pub fn tokenizer(run: &Path, policy: &str) -> PathBuf {
    run.join(TOKENIZERS).join(file_name(policy) + END)
}

/// Reads a tokenizer.
///
/// # Errors
///
/// If the file cannot be read.
pub fn read_tokenizer(path: &Path) -> Result<Vec<u8>, RunDirError> {
    let file = std::fs::File::open(path).at("open", path)?;
    zstd::decode_all(file).at("read", path)
}

impl RunDir {
    /// Writes the tokenizers of policies, by name, and removes all others. They follow from the configuration, so they
    /// are listed in the manifest only at the end.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_tokenizers(
        &self,
        tokenizers: &BTreeMap<String, String>,
    ) -> Result<(), RunDirError> {
        let now: Vec<PathBuf> =
            tokenizers.keys().map(|policy| tokenizer(&self.path, policy)).collect();
        let there = entries(&self.path.join(TOKENIZERS))?;
        there.iter().filter(|path| !now.contains(path)).try_for_each(|path| remove(path))?;
        for (policy, json) in tokenizers {
            let path = tokenizer(&self.path, policy);
            write_atomic(&path, &zstd::encode_all(json.as_bytes(), 3).at("compress", &path)?)?;
        }
        Ok(())
    }

    /// Lists the tokenizers in the manifest.
    pub(super) fn list_tokenizers(&mut self) -> Result<(), RunDirError> {
        for path in entries(&self.path.join(TOKENIZERS))? {
            let file = format!("{TOKENIZERS}/{}", name(&path));
            self.manifest.files.insert(file, FileHash::read(&path)?);
        }
        Ok(())
    }
}
