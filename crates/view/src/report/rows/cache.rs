//! Rows of old runs in the user's cache directory, so that they are made once. The run itself is never written.
//!
//! A file of rows belongs to a file of episodes of one length and modification time. Files that cannot be read or
//! written are as if they were not there.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use maverl::run_dir::EpisodeRow;
use maverl::run_dir::disk::{create_private_dir, name, write_atomic};

/// Rows of the files of a run.
pub(crate) struct RowCache(Option<PathBuf>);

/// Rows of a file that are being made.
pub(crate) struct RowWriter {
    path: PathBuf,
    lines: zstd::Encoder<'static, Vec<u8>>,
}

impl RowCache {
    /// Returns the rows of a run below a cache directory.
    pub(crate) fn new(cache: Option<&Path>, run: &Path) -> Self {
        Self(cache.and_then(|cache| Some(cache.join("rows").join(run_hash(run)?))))
    }

    /// Returns the path of the rows of a file of episodes.
    fn rows_path(&self, stage: &str, file: &Path) -> Option<PathBuf> {
        let found = std::fs::metadata(file).ok()?;
        let changed = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        let bytes = found.len();
        let file = name(file);
        let file = file.strip_suffix(".jsonl.zst").unwrap_or(&file);
        Some(self.0.as_ref()?.join(format!("{stage}-{file}-{bytes}-{changed}.jsonl.zst")))
    }

    /// Returns the rows of a file of episodes; `None` if they are not there.
    pub(crate) fn read_rows(&self, stage: &str, file: &Path) -> Option<Vec<EpisodeRow>> {
        let rows = std::fs::File::open(self.rows_path(stage, file)?).ok()?;
        let lines = BufReader::new(zstd::Decoder::new(rows).ok()?).lines();
        lines.map(|line| serde_json::from_slice(line.ok()?.as_bytes()).ok()).collect()
    }

    /// Begins the rows of a file of episodes.
    pub(crate) fn start_writing(&self, stage: &str, file: &Path) -> Option<RowWriter> {
        let mut lines = zstd::Encoder::new(Vec::new(), 3).ok()?;
        lines.include_checksum(true).ok()?;
        Some(RowWriter { path: self.rows_path(stage, file)?, lines })
    }
}

impl RowWriter {
    /// Adds a row; `None` if it cannot be written.
    pub(crate) fn add_row(mut self, row: &EpisodeRow) -> Option<Self> {
        serde_json::to_writer(&mut self.lines, row).ok()?;
        self.lines.write_all(b"\n").ok()?;
        Some(self)
    }

    /// Writes the rows; `None` if they cannot be written.
    pub(crate) fn write_rows(self) -> Option<()> {
        let Self { path, lines } = self;
        let dir = path.parent()?;
        if !dir.is_dir() {
            std::fs::create_dir_all(dir.parent()?).ok()?;
            create_private_dir(dir).ok()?;
        }
        write_atomic(&path, &lines.finish().ok()?).ok()
    }
}

/// Returns the beginning of the hash of a run's path and identity; `None` if the path does not exist.
fn run_hash(run: &Path) -> Option<String> {
    let mut hash = Sha256::new();
    hash.update(run.canonicalize().ok()?.to_string_lossy().as_bytes());
    for file in ["provenance.json", "resolved.toml"] {
        hash.update(std::fs::read(run.join(file)).unwrap_or_default());
    }
    Some(hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use maverl::run_dir::TRAIN;
    use maverl::run_dir::testing::episode;

    #[test]
    fn rows_are_stored_for_a_file_as_it_is_and_a_damaged_file_of_rows_is_none() {
        let home = tempfile::tempdir().unwrap();
        let (run, cache) = (home.path().join("run"), home.path().join("cache"));
        std::fs::create_dir(&run).unwrap();
        let file = run.join("step-000001.jsonl.zst");
        std::fs::write(&file, "one").unwrap();
        let rows = RowCache::new(Some(&cache), &run);
        assert!(rows.read_rows(TRAIN, &file).is_none());
        let row = EpisodeRow::new(TRAIN, 1, 0, [0, 0], &episode("a", 0, true, 2));
        let writer = rows.start_writing(TRAIN, &file).unwrap().add_row(&row).unwrap();
        writer.write_rows().unwrap();
        assert_eq!(rows.read_rows(TRAIN, &file), Some(vec![row]));
        assert!(rows.read_rows("before", &file).is_none(), "another stage");
        let path = rows.rows_path(TRAIN, &file).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 6]).unwrap();
        assert!(rows.read_rows(TRAIN, &file).is_none(), "half a file");
        std::fs::write(&file, "other").unwrap();
        assert!(!rows.rows_path(TRAIN, &file).unwrap().exists(), "another length");
        assert!(RowCache::new(None, &run).start_writing(TRAIN, &file).is_none());
    }
}
