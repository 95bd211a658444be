//! A file of episodes that grows while they end.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::programs::ProgramLogs;
use super::{EpisodePosition, FRAME, encode, write};
use crate::run_dir::disk::{hex, name, options, parent, sync_dir, write_atomic};
use crate::run_dir::error::{At, RunDirError};
use crate::run_dir::manifest::FileHash;
use crate::run_dir::packed::begin_frame;
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
    content: EpisodesContent,
    /// Place of each episode in the file.
    places: Vec<EpisodePosition>,
    logs: ProgramLogs,
}

enum EpisodesContent {
    /// Episodes are appended.
    Growing(Box<Growing>),
    /// All episodes are in the growing file.
    Whole(FileHash),
    /// The file has its final name.
    Finished(FileHash),
    /// There is no file.
    Discarded,
}

/// A file of frames, as those of [`encode`], the last of which grows.
struct Growing {
    file: File,
    /// Hash and number of the bytes in the file.
    sha: Sha256,
    bytes: u64,
    /// The last frame. Its buffer holds the bytes that are not in the file yet.
    frame: zstd::Encoder<'static, Vec<u8>>,
    /// Offset of the last frame in the file.
    start: u64,
    /// Number of bytes in the last frame, before compression.
    text: usize,
}

impl Growing {
    fn create(path: &Path) -> io::Result<Self> {
        let file = options(parent(path)).create(true).truncate(true).open(path)?;
        let frame = begin_frame(Vec::new())?;
        Ok(Self { file, sha: Sha256::new(), bytes: 0, frame, start: 0, text: 0 })
    }

    /// Appends an episode, and returns its place.
    fn append(&mut self, episode: &Episode) -> io::Result<EpisodePosition> {
        if self.text >= FRAME {
            self.end_frame()?;
            (self.frame, self.start, self.text) = (begin_frame(Vec::new())?, self.bytes, 0);
        }
        let place = [self.start, self.text as u64];
        let mut text = Vec::new();
        write(&mut text, episode)?;
        self.text += text.len();
        self.frame.write_all(&text)?;
        // A flush ends a block of the compression, not its window.
        self.frame.flush()?;
        self.drain()?;
        Ok(place)
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.frame.do_finish()?;
        self.drain()
    }

    /// Moves compressed bytes to the file.
    fn drain(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(self.frame.get_mut());
        self.file.write_all(&bytes)?;
        self.sha.update(&bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
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
        let content = Growing::create(&growing).at("make", &growing)?;
        let content = EpisodesContent::Growing(Box::new(content));
        let logs = ProgramLogs::beside_rollouts(path)?;
        Ok(Self { path: path.to_owned(), growing, content, places: Vec::new(), logs })
    }

    /// Creates a writer that writes nothing, for ranks other than the one that writes the run.
    pub fn discarding() -> Self {
        let (path, places, logs) = (PathBuf::new(), Vec::new(), ProgramLogs::beside_nothing());
        Self { growing: path.clone(), path, content: EpisodesContent::Discarded, places, logs }
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
        let out = match &mut self.content {
            EpisodesContent::Growing(out) => out,
            EpisodesContent::Discarded => return Ok(()),
            EpisodesContent::Whole(_) | EpisodesContent::Finished(_) => {
                panic!("no episode is appended to a complete file")
            }
        };
        self.places.push(out.append(episode).at("append to", &self.growing)?);
        self.logs.append(episode)
    }

    /// Replaces all episodes of a growing file, atomically.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn replace(&mut self, episodes: &[Episode]) -> Result<(), RunDirError> {
        if matches!(self.content, EpisodesContent::Discarded) {
            return Ok(());
        }
        let (bytes, places) = encode(&self.growing, episodes)?;
        write_atomic(&self.growing, &bytes)?;
        (self.content, self.places) = (EpisodesContent::Whole(FileHash::of(&bytes)), places);
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
            EpisodesContent::Finished(hash) => return Ok(hash.clone()),
            EpisodesContent::Discarded => return Ok(FileHash::of(&[])),
            EpisodesContent::Whole(hash) => hash.clone(),
            EpisodesContent::Growing(out) => {
                out.end_frame().at("append to", &self.growing)?;
                out.file.sync_all().at("sync", &self.growing)?;
                FileHash { sha256: hex(&out.sha.clone().finalize()), bytes: out.bytes }
            }
        };
        fs::rename(&self.growing, &self.path).at("write", &self.path)?;
        sync_dir(parent(&self.path))?;
        self.content = EpisodesContent::Finished(hash.clone());
        Ok(hash)
    }

    /// Returns the place of each episode in the file.
    pub fn into_places(self) -> Vec<EpisodePosition> {
        self.places
    }
}

/// Returns the path of a file while it grows.
pub(in crate::run_dir) fn growing(path: &Path) -> PathBuf {
    let name = name(path);
    let stem = name.strip_suffix(WHOLE).unwrap_or(&name);
    path.with_file_name(format!("{stem}{PART}"))
}

/// Returns true if the name of a path is that of a growing file.
pub fn is_growing(path: &Path) -> bool {
    name(path).ends_with(PART)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::run_dir::tests::episode;
    use crate::run_dir::{read_ended_rollouts, read_episode, read_rollouts};

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
    fn every_episode_is_read_from_its_place_in_frames_of_a_mebibyte_and_after_a_replacement() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let mut all = episodes();
        for (episode, digit) in all.iter_mut().zip("01234".chars()) {
            episode.turns[1].reply = digit.to_string().repeat(600_000);
        }
        let mut writer = RolloutWriter::create(&path).unwrap();
        all.iter().for_each(|episode| writer.append(episode).unwrap());
        let hash = writer.finish().unwrap();
        assert_eq!(hash, FileHash::read(&path).unwrap());
        let places = writer.into_places();
        let frames: Vec<u64> = places.iter().map(|[frame, _]| *frame).collect();
        // Two episodes of 600 kB are the first past 1 MiB.
        assert!(frames[0] == 0 && frames[1] == 0 && frames[2] == frames[3], "{places:?}");
        assert!(frames[2] > 0 && frames[4] > frames[3], "{places:?}");
        for (place, episode) in places.iter().zip(&all) {
            assert_eq!(&read_episode(&path, *place).unwrap(), episode);
        }
        assert_eq!(read_rollouts(&path).unwrap(), all);
        let mut writer = RolloutWriter::create(&path).unwrap();
        writer.append(&all[0]).unwrap();
        writer.replace(&all[1..]).unwrap();
        writer.finish().unwrap();
        let places = writer.into_places();
        assert_eq!(places.len(), all.len() - 1);
        for (place, episode) in places.iter().zip(&all[1..]) {
            assert_eq!(&read_episode(&path, *place).unwrap(), episode);
        }
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
