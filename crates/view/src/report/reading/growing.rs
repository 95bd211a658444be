//! Files that grow while they are read.

use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Maximum length of a line; a longer one ends the reading of the file.
const LONGEST: usize = 64 << 20;

/// A file of lines that another process appends to, and may cut back. A last line without its end waits.
#[derive(Debug)]
pub(crate) struct GrowingLines {
    path: PathBuf,
    /// Number of bytes of the lines that were read.
    bytes: u64,
    /// Identity of the file, if it exists.
    identity: Option<u64>,
}

/// Result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileChange {
    /// No new line.
    None,
    /// New lines.
    Grown,
    /// The file was cut back or replaced: it is read from its start.
    Reset,
}

impl GrowingLines {
    /// Creates a reader of a file that may not exist yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, bytes: 0, identity: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of bytes of the lines that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads new lines. `reset` is called first if earlier lines no longer count; `line` is called with each line and
    /// its offset.
    pub(crate) fn poll<S>(
        &mut self,
        state: &mut S,
        reset: impl FnOnce(&mut S),
        mut line: impl FnMut(&mut S, u64, &[u8]),
    ) -> io::Result<FileChange> {
        let found = match fs::metadata(&self.path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (length, now) = found.as_ref().map_or((0, None), |f| (f.len(), Some(identity(f))));
        let before = self.bytes;
        let is_new = length < self.bytes || (self.identity.is_some() && now != self.identity);
        self.identity = now;
        if is_new {
            self.bytes = 0;
            reset(state);
        }
        if length > self.bytes {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.bytes))?;
            let mut file = BufReader::with_capacity(1 << 16, file);
            let mut text = Vec::new();
            loop {
                text.clear();
                let limit = LONGEST as u64;
                io::Read::take(&mut file, limit).read_until(b'\n', &mut text)?;
                if text.pop_if(|last| *last == b'\n').is_none() {
                    break;
                }
                line(state, self.bytes, &text);
                self.bytes += text.len() as u64 + 1;
            }
        }
        Ok(match self.bytes {
            _ if is_new && before > 0 => FileChange::Reset,
            bytes if bytes != before => FileChange::Grown,
            _ => FileChange::None,
        })
    }
}

#[cfg(unix)]
fn identity(found: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(found)
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn lines_are_read_once_as_they_grow_and_anew_when_they_were_cut_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        let mut growing = GrowingLines::new(path.clone());
        let mut lines: Vec<(u64, String)> = Vec::new();
        let mut poll = |lines: &mut Vec<(u64, String)>| {
            let add = |lines: &mut Vec<_>, at, line: &[u8]| {
                lines.push((at, String::from_utf8(line.to_vec()).unwrap()));
            };
            growing.poll(lines, Vec::clear, add).unwrap()
        };
        assert_eq!(poll(&mut lines), FileChange::None);
        fs::write(&path, "one\ntw").unwrap();
        assert_eq!(poll(&mut lines), FileChange::Grown);
        assert_eq!(poll(&mut lines), FileChange::None);
        fs::write(&path, "one\ntwo\n").unwrap();
        assert_eq!(poll(&mut lines), FileChange::Grown);
        assert_eq!(lines, [(0, "one".to_owned()), (4, "two".to_owned())]);
        File::options().write(true).open(&path).unwrap().set_len(4).unwrap();
        assert_eq!(poll(&mut lines), FileChange::Reset);
        assert_eq!(lines, [(0, "one".to_owned())]);
        fs::write(dir.path().join("new"), "1\n2\n3\n4\n").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert_eq!(poll(&mut lines), FileChange::Reset);
        assert_eq!(lines.len(), 4);
        fs::remove_file(&path).unwrap();
        assert_eq!(poll(&mut lines), FileChange::Reset);
        assert!(lines.is_empty());
    }
}
