//! Replies of a judge by the hash of their requests, in memory and in a file that outlives a resume.
//!
//! A line of the file is a reply with its key and a checksum. It is synced before the reply is used, and the file is never cut
//! back: a step that is repeated finds its replies. Several runs may share a file. A line that a crash tore is removed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use crate::trajectory::Fault;

/// Replies by key. Equal requests at the same time are one request.
#[derive(Default)]
pub(super) struct VerdictCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    known: BTreeMap<String, Arc<OnceCell<String>>>,
    file: Option<CacheFile>,
}

struct CacheFile {
    path: PathBuf,
    file: File,
    /// Length of what was read.
    read: u64,
}

#[derive(Serialize, Deserialize)]
struct CacheLine {
    key: String,
    reply: String,
    /// CRC-32C of key and reply.
    crc: u32,
}

impl CacheLine {
    fn new(key: &str, reply: &str) -> Self {
        let crc = crc32c::crc32c_append(crc32c::crc32c(key.as_bytes()), reply.as_bytes());
        Self { key: key.to_owned(), reply: reply.to_owned(), crc }
    }

    /// Reads a line, whose checksum must be right.
    fn read(line: &str) -> Option<Self> {
        let read: Self = serde_json::from_str(line).ok()?;
        let crc = Self::new(&read.key, &read.reply).crc;
        (crc == read.crc).then_some(read)
    }
}

impl VerdictCache {
    /// Opens a file, and reads the replies in it.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, or a line is damaged.
    pub(super) fn open(&self, path: &Path) -> Result<(), String> {
        let options = File::options().create(true).read(true).append(true).open(path);
        let file = options.map_err(|error| failure(path, "open", &error))?;
        let mut state = self.state();
        let mut file = CacheFile { path: path.to_owned(), file, read: 0 };
        let lines = file.locked(CacheFile::read_new)?;
        state.learn(lines);
        state.file = Some(file);
        Ok(())
    }

    /// Returns the reply of a key, and true if it was known; else asks for it.
    ///
    /// # Errors
    ///
    /// If it is not known and asking fails, or it cannot be written.
    pub(super) async fn reply(
        &self,
        key: &str,
        ask: impl Future<Output = Result<String, Fault>>,
    ) -> Result<(String, bool), String> {
        let cell = Arc::clone(self.state().known.entry(key.to_owned()).or_default());
        let mut known = true;
        let asking = async {
            known = false;
            let reply = ask.await.map_err(|fault| fault.message)?;
            self.store(key, reply)
        };
        let reply = cell.get_or_try_init(|| asking).await?.clone();
        Ok((reply, known))
    }

    /// Writes a reply, unless another process has written one for the key. Returns the one that counts.
    fn store(&self, key: &str, reply: String) -> Result<String, String> {
        let mut state = self.state();
        let Some(mut file) = state.file.take() else { return Ok(reply) };
        let stored = file.locked(|file| {
            let lines = file.read_new()?;
            let own = lines.iter().find(|line| line.key == key).map(|line| line.reply.clone());
            if own.is_none() {
                file.append(&CacheLine::new(key, &reply))?;
            }
            Ok((lines, own))
        });
        state.file = Some(file);
        let (lines, own) = stored?;
        state.learn(lines.into_iter().filter(|line| line.key != key).collect());
        Ok(own.unwrap_or(reply))
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    /// Adds replies. The first one of a key counts.
    fn learn(&mut self, lines: Vec<CacheLine>) {
        for CacheLine { key, reply, .. } in lines {
            // A cell that is set, or being set, stays: who sets it looks for the reply in the file.
            let _ = self.known.entry(key).or_default().set(reply);
        }
    }
}

impl CacheFile {
    /// Runs a part while no other process has the file.
    fn locked<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        self.file.lock().map_err(|error| failure(&self.path, "lock", &error))?;
        let done = part(self);
        self.file.unlock().map_err(|error| failure(&self.path, "unlock", &error))?;
        done
    }

    /// Reads the lines that were written since the last call. Removes a last line that a crash tore.
    fn read_new(&mut self) -> Result<Vec<CacheLine>, String> {
        let mut text = Vec::new();
        let read = self.file.seek(SeekFrom::Start(self.read));
        read.and_then(|_| self.file.read_to_end(&mut text))
            .map_err(|error| failure(&self.path, "read", &error))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            let length = self.read + whole as u64;
            let cut = self.file.set_len(length);
            cut.map_err(|error| failure(&self.path, "cut", &error))?;
        }
        let mut lines = Vec::new();
        let mut at = self.read;
        for line in text[..whole].split_inclusive(|byte| *byte == b'\n') {
            let read =
                std::str::from_utf8(line).ok().and_then(|line| CacheLine::read(line.trim_end()));
            lines.push(read.ok_or_else(|| {
                format!(
                    "the line at byte {at} of `{}` is damaged; remove it, and the judge is asked again",
                    self.path.display()
                )
            })?);
            at += line.len() as u64;
        }
        self.read += whole as u64;
        Ok(lines)
    }

    /// Appends a line, and waits until it is on the disk.
    fn append(&mut self, line: &CacheLine) -> Result<(), String> {
        let mut text = serde_json::to_vec(line).map_err(|error| error.to_string())?;
        text.push(b'\n');
        let written = self.file.write_all(&text).and_then(|()| self.file.sync_data());
        written.map_err(|error| failure(&self.path, "write", &error))?;
        self.read += text.len() as u64;
        Ok(())
    }
}

fn failure(path: &Path, what: &str, error: &std::io::Error) -> String {
    format!("cannot {what} `{}`: {error}", path.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    async fn reply(cache: &VerdictCache, key: &str, text: &str) -> (String, bool) {
        cache.reply(key, async { Ok(text.to_owned()) }).await.unwrap()
    }

    fn opened(path: &Path) -> VerdictCache {
        let cache = VerdictCache::default();
        cache.open(path).unwrap();
        cache
    }

    #[tokio::test]
    async fn a_reply_is_asked_for_once_also_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("judge.jsonl");
        let cache = opened(&path);
        assert_eq!(reply(&cache, "a", "one\n").await, ("one\n".to_owned(), false));
        assert_eq!(reply(&cache, "a", "two").await, ("one\n".to_owned(), true));
        let whole = std::fs::read(&path).unwrap();
        for torn in 1..whole.len() {
            std::fs::write(&path, [&whole[..], &whole[..torn]].concat()).unwrap();
            let cache = opened(&path);
            assert_eq!(reply(&cache, "a", "two").await, ("one\n".to_owned(), true));
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
    }

    #[tokio::test]
    async fn two_processes_that_share_a_file_use_the_same_reply() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("judge.jsonl");
        let (one, other) = (opened(&path), opened(&path));
        assert_eq!(reply(&one, "a", "one").await, ("one".to_owned(), false));
        assert_eq!(reply(&other, "a", "two").await, ("one".to_owned(), false));
        assert_eq!(reply(&other, "b", "three").await, ("three".to_owned(), false));
        assert_eq!(reply(&one, "b", "four").await, ("three".to_owned(), false));
        assert_eq!(reply(&opened(&path), "b", "four").await, ("three".to_owned(), true));
    }

    #[tokio::test]
    async fn a_damaged_line_is_named_and_a_failed_request_is_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("judge.jsonl");
        reply(&opened(&path), "a", "one").await;
        let text = std::fs::read_to_string(&path).unwrap().replace("one", "two");
        std::fs::write(&path, text).unwrap();
        let error = VerdictCache::default().open(&path).unwrap_err();
        assert!(error.starts_with("the line at byte 0 of `"), "{error}");
        let cache = VerdictCache::default();
        let fault = Fault::new(crate::trajectory::FaultKind::Endpoint, "down");
        assert_eq!(cache.reply("a", async { Err(fault) }).await, Err("down".to_owned()));
        assert_eq!(reply(&cache, "a", "one").await, ("one".to_owned(), false));
    }
}
