//! A file of episodes that grows while they end.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{LEVEL, encode, write};
use crate::run_dir::disk::{hex, name, options, parent, sync_dir, write_atomic};
use crate::run_dir::error::{At, RunDirError};
use crate::run_dir::manifest::FileHash;
use crate::trajectory::Episode;

/// Mark in the name of a growing file, as in `step-000012.part.jsonl.zst`.
const PART: &str = ".part.jsonl.zst";
/// End of the name of a complete file.
const WHOLE: &str = ".jsonl.zst";

/// Writer of the rollouts of a step. Every appended episode can be read at once, also after a kill. The file has its
/// final name only when it is complete.
///
/// The content depends on the episodes and their order alone.
pub struct RolloutWriter {
    path: PathBuf,
    growing: PathBuf,
    content: Content,
}

enum Content {
    /// Episodes are appended.
    Growing(Box<zstd::Encoder<'static, Hashing>>),
    /// All episodes are in the growing file.
    Whole(FileHash),
    /// The file has its final name.
    Finished(FileHash),
}

/// A file with the hash of its content.
struct Hashing {
    file: File,
    sha: Sha256,
    bytes: u64,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.sha.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl RolloutWriter {
    /// Creates the growing file beside a path, or empties it.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn create(path: &Path) -> Result<Self, RunDirError> {
        let growing = growing(path);
        let create = || {
            let file = options(parent(&growing)).create(true).truncate(true).open(&growing)?;
            let out = Hashing { file, sha: Sha256::new(), bytes: 0 };
            zstd::Encoder::new(out, LEVEL)
        };
        let content = Content::Growing(Box::new(create().at("make", &growing)?));
        Ok(Self { path: path.to_owned(), growing, content })
    }

    /// Appends an episode. It can be read when this returns.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    ///
    /// # Panics
    ///
    /// If the file was finished or replaced.
    pub fn append(&mut self, episode: &Episode) -> Result<(), RunDirError> {
        let Content::Growing(out) = &mut self.content else {
            panic!("no episode is appended to a complete file")
        };
        // A flush ends a block of the compression, not its window.
        write(&mut **out, episode).and_then(|()| out.flush()).at("append to", &self.growing)
    }

    /// Replaces all episodes of a growing file, atomically.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn replace(&mut self, episodes: &[Episode]) -> Result<(), RunDirError> {
        let bytes = encode(&self.growing, episodes)?;
        write_atomic(&self.growing, &bytes)?;
        self.content = Content::Whole(FileHash::of(&bytes));
        Ok(())
    }

    /// Completes the file: makes it durable, and gives it its final name. Returns its hash and length. Does nothing if
    /// the file is complete.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn finish(&mut self) -> Result<FileHash, RunDirError> {
        let hash = match &mut self.content {
            Content::Finished(hash) => return Ok(hash.clone()),
            Content::Whole(hash) => hash.clone(),
            Content::Growing(out) => {
                out.do_finish().at("append to", &self.growing)?;
                let Hashing { file, sha, bytes } = out.get_ref();
                file.sync_all().at("sync", &self.growing)?;
                FileHash { sha256: hex(&sha.clone().finalize()), bytes: *bytes }
            }
        };
        fs::rename(&self.growing, &self.path).at("write", &self.path)?;
        sync_dir(parent(&self.path))?;
        self.content = Content::Finished(hash.clone());
        Ok(hash)
    }
}

/// Returns the path of a file while it grows.
pub(in crate::run_dir) fn growing(path: &Path) -> PathBuf {
    let name = name(path);
    let stem = name.strip_suffix(WHOLE).unwrap_or(&name);
    path.with_file_name(format!("{stem}{PART}"))
}

/// Returns true if the name of a path is that of a growing file.
pub(in crate::run_dir) fn is_growing(path: &Path) -> bool {
    name(path).ends_with(PART)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::run_dir::tests::episode;
    use crate::run_dir::{read_ended_rollouts, read_rollouts};

    fn episodes() -> Vec<Episode> {
        (0..5).map(|index| episode("a", index, index % 2 == 0, 2)).collect()
    }

    #[test]
    fn every_episode_can_be_read_as_soon_as_it_is_appended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let mut writer = RolloutWriter::create(&path).unwrap();
        let (all, growing) = (episodes(), growing(&path));
        for n in 1..=all.len() {
            writer.append(&all[n - 1]).unwrap();
            assert_eq!(read_ended_rollouts(&growing).unwrap(), all[..n]);
            assert!(read_rollouts(&growing).is_err() && !path.exists(), "it is not complete");
        }
        let hash = writer.finish().unwrap();
        assert_eq!(read_rollouts(&path).unwrap(), all);
        assert_eq!(hash, FileHash::read(&path).unwrap());
        assert_eq!(writer.finish().unwrap(), hash);
        assert!(!growing.exists());
    }

    #[test]
    fn a_file_that_was_cut_anywhere_has_the_episodes_before_the_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let mut writer = RolloutWriter::create(&path).unwrap();
        let all = episodes();
        all.iter().for_each(|episode| writer.append(episode).unwrap());
        writer.finish().unwrap();
        let bytes = fs::read(&path).unwrap();
        let mut most = 0;
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let read = read_ended_rollouts(&path).unwrap();
            assert_eq!(read, all[..read.len()], "cut to {cut} bytes");
            assert!(read.len() >= most, "more bytes have no fewer episodes");
            most = read.len();
        }
        assert_eq!(most, all.len());
    }

    #[test]
    fn equal_episodes_make_equal_files() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["a.jsonl.zst", "b.jsonl.zst"].map(|name| {
            let path = dir.path().join(name);
            let mut writer = RolloutWriter::create(&path).unwrap();
            episodes().iter().for_each(|episode| writer.append(episode).unwrap());
            writer.finish().unwrap();
            fs::read(path).unwrap()
        });
        assert_eq!(files[0], files[1]);
    }

    #[test]
    fn replaced_episodes_are_those_of_the_complete_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let mut writer = RolloutWriter::create(&path).unwrap();
        let all = episodes();
        writer.append(&all[0]).unwrap();
        writer.replace(&all[1..]).unwrap();
        assert!(!path.exists());
        assert_eq!(writer.finish().unwrap(), FileHash::read(&path).unwrap());
        assert_eq!(read_rollouts(&path).unwrap(), all[1..]);
    }
}
