//! Runs that pages are about: those in some directories, found again every few seconds.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use maverl::run_dir::MANIFEST;
use maverl::run_dir::disk::entries;
use maverl_serve::Keys;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::report::rows::run::ReportedRun;
use crate::report::rows::scan::start_scan;
use crate::report::watched::WatchedRun;

/// Maximum depth at which runs are searched below a directory: sweeps have their own directories.
const DEPTH: usize = 3;
/// Interval between two searches for new runs.
const SEARCH: Duration = Duration::from_secs(3);

/// Pages about the runs in some directories.
pub struct Viewer {
    /// First component of every path.
    key: String,
    /// The same, to be compared with.
    keys: Keys,
    /// Directories of runs, or runs.
    dirs: Vec<PathBuf>,
    /// Directory below which rows of old runs are stored.
    cache: Option<PathBuf>,
    runs: Mutex<Runs>,
}

/// Runs in the order in which they were found; the number and the name of a run never change.
#[derive(Default)]
struct Runs {
    all: Vec<Arc<WatchedRun>>,
    searched: Option<Instant>,
}

impl Viewer {
    /// Creates pages about runs, and about every run below directories.
    ///
    /// # Errors
    ///
    /// If the operating system gives no random key.
    pub fn new(dirs: Vec<PathBuf>) -> std::io::Result<Self> {
        let key = random_key()?;
        let mut keys = Keys::default();
        keys.add("the pages", &key).map_err(std::io::Error::other)?;
        Ok(Self { key, keys, dirs, cache: None, runs: Mutex::default() })
    }

    /// Keeps the rows that are made for old runs below a directory.
    #[must_use]
    pub fn keeping_rows(self, cache: Option<PathBuf>) -> Self {
        Self { cache, ..self }
    }

    /// Returns the path of the first page. It is secret: other users of the machine can reach the port, too.
    pub fn secret_path(&self) -> String {
        format!("/{}/", self.key)
    }

    /// Returns the keys that a path may begin with.
    pub(crate) fn path_keys(&self) -> Keys {
        self.keys.clone()
    }

    /// Lists the runs.
    pub(crate) fn run_lines(&self) -> Value {
        self.watched_runs().iter().map(|run| run.list_line()).collect::<Vec<Value>>().into()
    }

    /// Returns the runs, with those that appeared since the last call.
    pub(crate) fn watched_runs(&self) -> Vec<Arc<WatchedRun>> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.searched.is_none_or(|at| at.elapsed() >= SEARCH) {
            for (dir, found) in self.dirs.iter().flat_map(|dir| self.found_runs(dir)) {
                if !runs.all.iter().any(|run| run.run.path() == found) {
                    let name = self.run_name(dir, &found);
                    let id = address_name(&name, &found, |id| {
                        runs.all.iter().any(|run| run.run.id == id)
                    });
                    let run = Arc::new(WatchedRun::new(ReportedRun::new(found, name).with_id(id)));
                    start_scan(&run.run, self.cache.as_deref());
                    runs.all.push(run);
                }
            }
            runs.searched = Some(Instant::now());
        }
        runs.all.clone()
    }

    fn found_runs<'p>(&self, dir: &'p Path) -> Vec<(&'p Path, PathBuf)> {
        let mut found = Vec::new();
        collect_runs(dir, DEPTH, &mut found);
        found.into_iter().map(|run| (dir, run)).collect()
    }

    /// Returns the name of a run in lists: relative to the only directory, else as the user wrote it.
    fn run_name(&self, dir: &Path, run: &Path) -> String {
        let inside = run.strip_prefix(dir).ok().filter(|inside| !inside.as_os_str().is_empty());
        let last = run.file_name().map_or(run, Path::new);
        let short = match self.dirs.len() {
            1 => inside.unwrap_or(last),
            _ if run.is_relative() => run,
            _ => inside.unwrap_or(last),
        };
        short.display().to_string()
    }

    /// Returns a run by its name in addresses, or else by its number.
    pub(crate) fn find_run(&self, name: &str) -> Option<Arc<WatchedRun>> {
        let runs = self.watched_runs();
        let named = runs.iter().find(|run| run.run.id == name);
        named.or_else(|| runs.get(name.parse::<usize>().ok()?)).cloned()
    }
}

/// Maximum number of characters of the name of a run in addresses that are from its name in lists.
pub(crate) const NAME: usize = 60;

/// Returns the name of a run in addresses, made of small letters, digits and `-`. A name that would not distinguish the run from
/// others has a hash of its path.
pub(crate) fn address_name(name: &str, path: &Path, taken: impl Fn(&str) -> bool) -> String {
    let id: String = name
        .chars()
        .take(NAME)
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let is_short = name.chars().count() <= NAME;
    if is_short && id.contains(|c| c != '-') && !taken(&id) {
        return id;
    }
    let hash = Sha256::digest(path.as_os_str().as_encoded_bytes());
    let hash: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{id}-{hash}")
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// Finds the run directories in a directory and below it, sorted. What cannot be read has none.
fn collect_runs(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if dir.join(MANIFEST).is_file() {
        found.push(dir.to_owned());
    } else if depth > 0 {
        let inner = entries(dir).unwrap_or_default();
        for path in inner.into_iter().filter(|path| path.is_dir() && !is_hidden(path)) {
            collect_runs(&path, depth - 1, found);
        }
    }
}

/// Returns 128 random bits in hexadecimal, from the operating system.
fn random_key() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn keys_are_random() {
        let keys: std::collections::BTreeSet<String> =
            (0..100).map(|_| random_key().unwrap()).collect();
        assert!(keys.len() == 100 && keys.iter().all(|key| key.len() == 32));
    }
}
