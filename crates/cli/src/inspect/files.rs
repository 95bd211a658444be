//! Files of a model, with their sizes.

use std::path::{Path, PathBuf};

use maverl::files::{ModelFiles, builtin};
use serde::Serialize;

use super::Failure;

/// A file of a model.
#[derive(Debug, Serialize)]
pub(super) struct FileReport {
    pub(super) name: String,
    pub(super) bytes: u64,
}

impl FileReport {
    /// Reads the size of a file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let found = std::fs::metadata(path)
            .map_err(|e| Failure(format!("cannot read {}: {e}", path.display())))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, bytes: found.len() })
    }
}

/// Lists the files of a directory.
pub(super) fn list_files(dir: &Path) -> Result<Vec<FileReport>, Failure> {
    let failed = |e: std::io::Error| Failure(format!("cannot list {}: {e}", dir.display()));
    let entries = std::fs::read_dir(dir).map_err(failed)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<_, _>>().map_err(failed)?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_file() {
            files.push(FileReport::read(&path)?);
        }
    }
    Ok(files)
}

/// Lists the files of a model that the library contains.
pub(super) fn list_embedded(files: &ModelFiles) -> Result<Vec<FileReport>, Failure> {
    let mut reports = Vec::new();
    for name in builtin::FILES {
        let bytes = files.require(name)?.len() as u64;
        reports.push(FileReport { name: (*name).to_owned(), bytes });
    }
    Ok(reports)
}
