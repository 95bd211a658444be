//! Lines of a compressed file, and the position of an episode among those of a rollout.

use std::fmt::Display;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use super::error::{At, RunDirError, damaged_error};

/// Maximum length of a line in bytes before compression. In rollouts, an episode has one line, and one for each turn.
pub(super) const LONGEST: u64 = 64 << 20;
/// Maximum length of a file in bytes before compression.
const MOST: u64 = 4 << 30;

/// Position of an episode in its file: the offset of its frame, and the offset of its first line in the content of the
/// frame.
pub type EpisodePosition = [u64; 2];

/// Lines of a compressed file, read one at a time. Their length is limited, and that of the file.
pub(super) struct PackedLines<'p> {
    pub(super) path: &'p Path,
    text: BufReader<zstd::Decoder<'static, BufReader<fs::File>>>,
    /// Number of the last line, from 1.
    pub(super) number: usize,
    /// Number of bytes read, before compression.
    pub(super) bytes: u64,
}

impl<'p> PackedLines<'p> {
    pub(super) fn open(path: &'p Path) -> Result<Self, RunDirError> {
        let file = fs::File::open(path).at("open", path)?;
        let text = BufReader::new(zstd::Decoder::new(file).at("read", path)?);
        Ok(Self { path, text, number: 0, bytes: 0 })
    }

    /// Opens the frame at an offset. The text ends with it if it is the `only` one, else with the file.
    pub(super) fn open_frame(path: &'p Path, offset: u64, only: bool) -> Result<Self, RunDirError> {
        let mut file = fs::File::open(path).at("open", path)?;
        file.seek(io::SeekFrom::Start(offset)).at("seek in", path)?;
        let decoder = zstd::Decoder::new(file).at("read", path)?;
        let text = BufReader::new(if only { decoder.single_frame() } else { decoder });
        Ok(Self { path, text, number: 0, bytes: 0 })
    }

    /// Skips bytes of the text, and returns how many there were.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<u64, RunDirError> {
        io::copy(&mut (&mut self.text).take(bytes), &mut io::sink()).at("read", self.path)
    }

    /// Returns true if the text has no more lines.
    pub(super) fn at_end(&mut self) -> Result<bool, RunDirError> {
        Ok(self.text.fill_buf().at("read", self.path)?.is_empty())
    }

    /// Reads the rest of a frame, so that its checksum is verified. Larger rests are those of files without frames,
    /// which have no checksum.
    pub(super) fn drain(&mut self) -> Result<(), RunDirError> {
        self.skip(LONGEST).map(drop)
    }

    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, RunDirError> {
        let mut line = Vec::new();
        Ok(self.read(&mut line)?.then_some(line))
    }

    /// Replaces the content of `line` by the next line; false at the end of the text.
    pub(super) fn read(&mut self, line: &mut Vec<u8>) -> Result<bool, RunDirError> {
        self.number += 1;
        line.clear();
        let read = (&mut self.text).take(LONGEST + 1).read_until(b'\n', line);
        self.bytes += read.map_err(|error| self.damaged_line(error))? as u64;
        if line.len() as u64 > LONGEST {
            return Err(self.damaged_line(format!("it has more than {} MiB", LONGEST >> 20)));
        }
        if self.bytes > MOST {
            let packed = fs::metadata(self.path).map_or(0, |metadata| metadata.len());
            let most = MOST >> 20;
            return Err(damaged_error(
                self.path,
                format!("it has {packed} bytes and unpacks to more than {most} MiB"),
            ));
        }
        Ok(!line.is_empty())
    }

    /// Returns the error about the last line.
    pub(super) fn damaged_line(&self, what: impl Display) -> RunDirError {
        damaged_error(self.path, format!("line {}: {what}", self.number))
    }
}
